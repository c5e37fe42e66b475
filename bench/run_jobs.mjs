// Times jobs (see jobs.py) in V8: every job once a round. Prints a list of seconds a job, which
// are processor time as in timing.py; once code is compiled, only this thread runs.
// usage: node run_jobs.mjs JOBS.json ROUNDS
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const PAGE = 1 << 16;
const SHORTEST = 0.01; // seconds that one measurement lasts at least
const WARM_UP = 0.15; // seconds of calls before timing, so that the optimising compiler is done

const [jobsPath, rounds] = [process.argv[2], Number(process.argv[3])];
const folder = dirname(jobsPath);

function prepare(job) {
  const module = new WebAssembly.Module(readFileSync(join(folder, job.wasm)));
  const { memory, run } = new WebAssembly.Instance(module, {}).exports;
  if (job.timed.length === 0) return run;
  const missing = Math.ceil(job.memory / PAGE) - memory.buffer.byteLength / PAGE;
  if (missing > 0) memory.grow(missing);
  const bytes = new Uint8Array(memory.buffer);
  const data = readFileSync(join(folder, job.data));
  for (const [address, offset, size] of job.writes) {
    bytes.set(data.subarray(offset, offset + size), address);
  }
  const launch = (ranges) => {
    for (const [begin, end] of ranges) run(job.block, begin, end, 0);
  };
  launch(job.setup);
  return () => launch(job.timed);
}

function measure(call, count) {
  const started = process.cpuUsage();
  for (let k = 0; k < count; k++) call();
  const { user, system } = process.cpuUsage(started);
  return (user + system) / 1e6 / count;
}

async function warmUp(call) {
  const end = performance.now() + 1000 * WARM_UP;
  for (let done = 0; done < 5 || performance.now() < end; done++) {
    call();
    // Compilation finishes on another thread and is taken over between turns.
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}

function repeats(call) {
  let count = 1;
  while (measure(call, count) * count < SHORTEST / 4) count *= 2;
  return Math.max(1, Math.round(SHORTEST / measure(call, count)));
}

const calls = JSON.parse(readFileSync(jobsPath, "utf8")).map(prepare);
const counts = [];
for (const call of calls) {
  await warmUp(call);
  counts.push(repeats(call));
}
const times = calls.map(() => []);
for (let round = 0; round < rounds; round++) {
  calls.forEach((call, k) => times[k].push(measure(call, counts[k])));
}
console.log(JSON.stringify(times));
