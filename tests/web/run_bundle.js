/**
 * Runs a bundle on feeds: `node run_bundle.js JOBS.json`.
 *
 * A job is `{bundle, options, feeds: [{name, type, dims, file}], outputs}`; outputs are written as
 * raw bytes, and what was written is printed as JSON.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const ARRAYS = { float32: Float32Array, int64: BigInt64Array };
const [jobsFile] = process.argv.slice(2);
const jobs = JSON.parse(readFileSync(jobsFile, "utf8"));
const report = [];

for (const { bundle, options, runs } of jobs) {
  const runtime = await import(pathToFileURL(`${bundle}/runtime/index.js`).href);
  const session = await runtime.InferenceSession.create(`${bundle}/`, options);
  for (const { feeds, output } of runs) {
    const tensors = Object.fromEntries(
      feeds.map(({ name, type, dims, file }) => {
        const { buffer } = Uint8Array.from(readFileSync(file));
        return [name, new runtime.Tensor(type, new ARRAYS[type](buffer), dims)];
      }),
    );
    const found = await session.run(tensors);
    const rows = Object.entries(found).map(([name, { type, dims, data }], position) => {
      const file = `${output}.${position}`;
      writeFileSync(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return { name, type, dims, file };
    });
    report.push(rows);
  }
  report.push({
    programs: session.programs.length,
    plans: session.planCount,
    inputs: session.inputMetadata,
    outputs: session.outputMetadata,
  });
  await session.release();
}
console.log(JSON.stringify(report));
