/** What `bench/page.py` has the page do. Both sides run on the thread that calls, with one thread. */

const WARM_UP = 3;

/** @param {{name: string, type: string, dims: number[], data: string}[]} feeds */
function unpacked(feeds) {
  return feeds.map(({ name, type, dims, data }) => {
    const bytes = Uint8Array.from(atob(data), (unit) => unit.charCodeAt(0));
    const array = type === "int64" ? BigInt64Array : Float32Array;
    return { name, type, dims, data: new array(bytes.buffer) };
  });
}

/** @param {any} job */
async function ours({ model, feeds }) {
  const { InferenceSession, Tensor } = await import("/runtime/index.js");
  const session = await InferenceSession.create(`/bundles/${model}/`);
  const tensors = unpacked(feeds).map(({ name, type, dims, data }) => [name, new Tensor(type, data, dims)]);
  const inputs = Object.fromEntries(tensors);
  return () => session.run(inputs);
}

/** @param {any} job */
async function theirs({ model, feeds }) {
  const ort = await import("/ort/ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = "/ort/";
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(`/models/${model}.onnx`, {
    executionProviders: ["wasm"],
    graphOptimizationLevel: "all",
    logSeverityLevel: 3,
  });
  const tensors = unpacked(feeds).map(({ name, type, dims, data }) => [name, new ort.Tensor(type, data, dims)]);
  const inputs = Object.fromEntries(tensors);
  return () => session.run(inputs);
}

/**
 * The largest difference of an output, relative to its largest value.
 *
 * @param {Record<string, any>} a
 * @param {Record<string, any>} b
 */
function difference(a, b) {
  let worst = 0;
  for (const name of Object.keys(b)) {
    const [x, y] = [a[name].data, b[name].data];
    if (x.length !== y.length) return Infinity;
    let largest = 0;
    let most = 0;
    for (let i = 0; i < y.length; i += 1) {
      largest = Math.max(largest, Math.abs(Number(y[i])));
      most = Math.max(most, Math.abs(Number(x[i]) - Number(y[i])));
    }
    worst = Math.max(worst, largest ? most / largest : most);
  }
  return worst;
}

/**
 * Milliseconds a run of each side, a measurement a round.
 *
 * @param {any} job
 */
export async function compareRuns({ rounds, least, ...job }) {
  const sides = [await ours(job), await theirs(job)];
  const found = difference(await sides[0](), await sides[1]());
  const repeats = [];
  for (const run of sides) {
    for (let i = 0; i < WARM_UP; i += 1) await run();
    const start = performance.now();
    let count = 0;
    while (performance.now() - start < least) {
      await run();
      count += 1;
    }
    repeats.push(count);
  }
  /** @type {number[][]} */
  const times = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    for (const [side, run] of sides.entries()) {
      const start = performance.now();
      for (let i = 0; i < repeats[side]; i += 1) await run();
      times[side].push((performance.now() - start) / repeats[side]);
    }
  }
  return { ours: times[0], theirs: times[1], difference: found };
}

/** @param {any} job */
export async function firstOfOurs(job) {
  const start = performance.now();
  await (await ours(job))();
  return performance.now() - start;
}

/** @param {any} job */
export async function firstOfTheirs(job) {
  const start = performance.now();
  await (await theirs(job))();
  return performance.now() - start;
}

/**
 * Python, compilation, weights, first run, as the page does it.
 *
 * @param {any} job
 */
export async function firstInPage({ model, feeds }) {
  const start = performance.now();
  const file = await (await fetch(`/models/${model}.onnx`)).blob();
  const inputs = unpacked(feeds);
  const values = Object.fromEntries(
    inputs.filter(({ type }) => type === "int64").map(({ name, data }) => [name, Array.from(data, Number)]),
  );
  const worker = new Worker("/compiler/worker.js", { type: "module" });
  const compiled = await new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.kind === "failed") reject(new Error(data.message));
      else if (data.kind === "compiled") resolve(data);
    };
    worker.postMessage({ id: 1, kind: "compile", file, name: model, values });
  });
  const { InferenceSession, Tensor } = await import("/runtime/index.js");
  const { program, kernels, extra, constants } = compiled;
  const weights = { files: { model: file, extra }, constants };
  const session = await InferenceSession.create({ name: model, program, wasm: kernels, weights });
  const tensors = inputs.map(({ name, type, dims, data }) => [name, new Tensor(type, data, dims)]);
  await session.run(Object.fromEntries(tensors));
  worker.terminate();
  return performance.now() - start;
}
