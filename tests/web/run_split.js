/**
 * Runs compiled parts against a gateway: `node run_split.js JOB.json`.
 *
 * A job is `{url, token, model, parts: [{files, feeds, output}], repeat}`; `files` names the files of
 * one compiled part, outputs are written as raw bytes, and what was written is printed as JSON.
 * `between` has shell commands that are executed after the run with that number, `abort` the
 * milliseconds after which the run with that number is cancelled once its inputs are on the way.
 */

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

import { GatewayClient, InferenceSession, Tensor } from "../../web/runtime/index.js";

const WebSocket = createRequire(import.meta.url)("ws");
const ARRAYS = { float32: Float32Array, int64: BigInt64Array };
const [jobFile] = process.argv.slice(2);
const { url, token, model, parts, between, abort } = JSON.parse(readFileSync(jobFile, "utf8"));
const text = (file) => readFileSync(file, "utf8");
const bytes = (file) => Uint8Array.from(readFileSync(file));

const states = [];
const onState = ({ state }) => states.push(state);
const gateway = new GatewayClient(url, { token, client: "node", onState, WebSocket });
const report = [];

async function runPart({ files, device, irDigest, feeds, output, digest, abortAfter }) {
  const weights = {
    files: { model: bytes(files.model), extra: bytes(files.extra) },
    constants: JSON.parse(text(files.constants)),
  };
  const ir = text(files.placed);
  const taskGraph = text(files.graph);
  await gateway.add({ device, ir, irDigest, taskGraph, weights, model: digest, values: {} });
  const compiled = { program: text(files.program), wasm: bytes(files.kernels), weights };
  const session = await InferenceSession.create(compiled, { peer: gateway, device: "browser:0" });
  try {
    const tensors = Object.fromEntries(
      feeds.map(({ name, type, dims, file }) => [
        name,
        new Tensor(type, new ARRAYS[type](bytes(file).buffer), dims),
      ]),
    );
    if (abortAfter !== undefined) await session.run(tensors); // loaded on both sides
    const signal = abortAfter === undefined ? undefined : AbortSignal.timeout(abortAfter);
    const found = await session.run(tensors, { signal });
    const rows = Object.entries(found).map(([name, { type, dims, data }], position) => {
      const file = `${output}.${position}`;
      writeFileSync(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return { name, type, dims, file };
    });
    const { events, uncertainty } = gateway.lastRun;
    const kinds = (list) => list.map(({ kind }) => kind);
    return {
      rows,
      local: kinds(session.lastProfile),
      remote: kinds(events),
      nested: events.every(({ start }) => start > session.lastProfile[0].start - 1e9),
      uncertainty,
    };
  } finally {
    await session.release();
  }
}

for (const [number, part] of parts.entries()) {
  try {
    report.push(await runPart({ ...part, digest: model, abortAfter: abort?.[number] }));
  } catch (error) {
    if (!error.code) throw error;
    report.push({ error: error.code, message: error.message, kind: error.name });
  }
  if (between?.[number]) execFileSync("sh", ["-c", between[number]]);
}
await gateway.close();
console.log(JSON.stringify({ report, states }));
