// Times WebAssembly jobs from standard input, every job once a round; prints milliseconds a call.
"use strict";

const SHORTEST = 10;

async function prepare(job) {
  const module = await WebAssembly.compile(Buffer.from(job.wasm, "base64"));
  const { exports } = await WebAssembly.instantiate(module, {});
  const view = new Float32Array(exports.memory.buffer);
  for (const [address, count] of job.fills) {
    for (let i = 0; i < count; i++) view[address / 4 + i] = ((i * 7919) % 1013) / 1013 - 0.5;
  }
  if (exports.prepare) exports.prepare();
  exports.run();
  const [address, count] = job.result;
  const result = Buffer.from(exports.memory.buffer, address, 4 * count).toString("base64");
  return { run: exports.run, result, milliseconds: [], repeats: 1 };
}

function time(entry) {
  const started = performance.now();
  for (let i = 0; i < entry.repeats; i++) entry.run();
  return (performance.now() - started) / entry.repeats;
}

// Calls that start in the baseline tier stay there, so the optimising tier needs several calls and
// pauses in which its code can be installed.
async function warm(entry) {
  const started = performance.now();
  for (let calls = 0; calls < 6 || performance.now() - started < 200; calls++) {
    entry.run();
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
  entry.repeats = Math.max(1, Math.round(SHORTEST / Math.min(time(entry), time(entry))));
}

async function main() {
  const { jobs, rounds } = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const entries = [];
  for (const job of jobs) entries.push(await prepare(job));
  for (const entry of entries) await warm(entry);
  for (let round = 0; round < rounds; round++) {
    for (const entry of entries) entry.milliseconds.push(time(entry));
  }
  process.stdout.write(
    JSON.stringify(entries.map(({ milliseconds, result }) => ({ milliseconds, result }))),
  );
}

main();
