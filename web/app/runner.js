/**
 * The worker that runs models, so that kernels never block the page. Requests carry an `id`:
 *
 * | request | answer |
 * | --- | --- |
 * | `{kind: "create", name, model, file, gateway}` | `progress`…, `created` |
 * | `{kind: "run", feeds, repeat, profile, gateway}` | `progress`…, `ran` |
 * | `{kind: "cancel", target}` | none; the request `target` fails with `session.cancelled` |
 * | `{kind: "release"}` | `released` |
 *
 * A variant that is missing is asked for: `{kind: "ask", id, values, shapes}` goes out and
 * `{kind: "answer", id, value | failed}` comes back. `{kind: "notice", gateway}` tells how the
 * connection to the gateway fares.
 *
 * @typedef {{type: string, data: any, dims: number[]}} PlainTensor
 * @typedef {object} RunAnswer
 * @property {Record<string, PlainTensor>} outputs
 * @property {number} first milliseconds of the first run: plan, memory, kernels
 * @property {number[]} times milliseconds of the further runs
 * @property {import("../runtime/trace.js").TraceEvent[]} events of the instrumented run, or of the
 *   last one where a gateway had a part in it
 * @property {import("../runtime/gateway_client.js").RemoteRun | null} remote the gateway's part of
 *   the same run
 * @property {number} variant which of the compiled programs ran
 * @property {Record<string, number>} symbols sizes and values that the plan was made for
 * @property {number} peak bytes that the plan needs
 * @property {{memory: number, plans: number, compilations: number}} counts
 */

import { FeedChecker } from "../runtime/feeds.js";
import { GatewayClient, InferenceSession, Tensor } from "../runtime/index.js";
import { evaluate } from "../runtime/plan.js";
import { failedGuard } from "../runtime/runner.js";

const scope = /** @type {any} */ (globalThis);
/** Progress messages are at least this many milliseconds apart. */
const PAUSE = 50;

/** @type {InferenceSession | null} */
let session = null;
/** @type {GatewayClient | null} */
let gateway = null;
let token = "";
let compilations = 0;
/** @type {Map<number, AbortController>} */
const running = new Map();
/** @type {Map<number, {resolve: (value: any) => void, reject: (error: unknown) => void}>} */
const asked = new Map();
let asks = 0;

/**
 * @param {any} model an answer of the compiler
 * @param {string} name
 * @param {Blob} file
 */
function compiledModel(model, name, file) {
  const { program, kernels, extra, constants } = model;
  return { name, program, wasm: kernels, weights: { files: { model: file, extra }, constants } };
}

/**
 * @param {any} request
 * @param {AbortSignal} signal
 * @param {(progress: any) => void} onProgress
 */
async function create({ name, model, file, gateway: asked }, signal, onProgress) {
  await session?.release();
  session = null;
  compilations = 0;
  const peer = await peerFor(model, asked, file);
  session = await InferenceSession.create(compiledModel(model, name, file), {
    signal,
    onProgress,
    peer,
    device: peer && JSON.parse(model.program).part.device,
    compile: async (request) => {
      compilations += 1;
      const { gateway: again, ...variant } = await ask(request);
      await peerFor(variant, again, file);
      return compiledModel(variant, name, file);
    },
  });
  return { kind: "created", outputs: session.outputMetadata, memory: session.memorySize };
}

/**
 * The gateway's client, which knows the other part of a compiled model; none where there is no
 * other part.
 *
 * @param {any} compiled
 * @param {{url: string, token: string, model: string, values: Record<string, number[]>}} asked
 * @param {Blob} file
 */
async function peerFor(compiled, asked, file) {
  if (!compiled.peer) {
    const client = gateway;
    gateway = null;
    await client?.close();
    return undefined;
  }
  token = asked.token;
  gateway ??= new GatewayClient(asked.url, {
    token: () => token,
    client: "page",
    onState: (state) => scope.postMessage({ kind: "notice", gateway: state }),
  });
  await gateway.add({
    device: compiled.peer,
    ir: compiled.placed,
    irDigest: compiled.ir_digest,
    taskGraph: compiled.task_graph,
    weights: { files: { model: file, extra: compiled.extra }, constants: compiled.constants },
    model: asked.model,
    values: asked.values,
  });
  return gateway;
}

/**
 * @param {any} request
 * @returns {Promise<any>}
 */
function ask(request) {
  asks += 1;
  const id = asks;
  return new Promise((resolve, reject) => {
    asked.set(id, { resolve, reject });
    scope.postMessage({ kind: "ask", id, ...request });
  });
}

/**
 * @param {any} request
 * @param {AbortSignal} signal
 * @param {(progress: any) => void} onProgress
 */
async function run({ feeds: plain, repeat, profile, gateway: asked }, signal, onProgress) {
  if (!session) throw new Error("no model is loaded");
  token = asked.token;
  const feeds = Object.fromEntries(
    Object.entries(plain).map(([name, { type, data, dims }]) => [
      name,
      new Tensor(type, data, dims),
    ]),
  );
  const start = performance.now();
  const outputs = await session.run(feeds, { signal, onProgress });
  const first = performance.now() - start;
  const times = [];
  for (let round = 1; round <= repeat; round += 1) {
    const begin = performance.now();
    await session.run(feeds, { signal });
    times.push(performance.now() - begin);
    onProgress({ step: "run", done: round, total: repeat });
  }
  /** @type {import("../runtime/trace.js").TraceEvent[]} */
  let events = gateway ? session.lastProfile : [];
  if (profile) {
    session.startProfiling();
    try {
      await session.run(feeds, { signal });
      events = session.lastProfile;
    } finally {
      session.endProfiling();
    }
  }
  const plain_outputs = Object.entries(outputs).map(([name, { type, data, dims }]) => [
    name,
    { type, data, dims: [...dims] },
  ]);
  return {
    kind: "ran",
    outputs: Object.fromEntries(plain_outputs),
    first,
    times,
    events,
    remote: gateway?.lastRun ?? null,
    ...planned(session, feeds),
    counts: { memory: session.memorySize, plans: session.planCount, compilations },
  };
}

/**
 * Which program ran, and for which sizes.
 *
 * @param {InferenceSession} session
 * @param {Record<string, Tensor>} feeds
 */
function planned(session, feeds) {
  for (const [variant, program] of session.programs.entries()) {
    const { symbols } = new FeedChecker(program.inputs, program.bindings).bind(feeds);
    if (!failedGuard(program, symbols)) {
      const shown = Object.entries(symbols).map(([name, value]) => [name, Number(value)]);
      const { peak } = evaluate(program, symbols);
      return { variant, symbols: Object.fromEntries(shown), peak };
    }
  }
  throw new Error("no program fits what was run");
}

/** @param {(progress: any) => void} tell */
function paced(tell) {
  let last = -Infinity;
  return (/** @type {any} */ progress) => {
    const now = performance.now();
    if (now - last < PAUSE && progress.done !== progress.total) return;
    last = now;
    tell(progress);
  };
}

scope.addEventListener("message", async (/** @type {MessageEvent} */ { data: request }) => {
  const { id, kind } = request;
  if (kind === "cancel") {
    running.get(request.target)?.abort();
    return;
  }
  if (kind === "answer") {
    const { resolve, reject } = /** @type {any} */ (asked.get(id));
    asked.delete(id);
    if (request.failed) reject(Object.assign(new Error(request.failed.message), request.failed));
    else resolve(request.value);
    return;
  }
  const controller = new AbortController();
  running.set(id, controller);
  const tell = paced((progress) => scope.postMessage({ id, kind: "progress", ...progress }));
  try {
    if (kind === "create") scope.postMessage({ id, ...(await create(request, controller.signal, tell)) });
    else if (kind === "run") {
      scope.postMessage({ id, ...(await run(request, controller.signal, tell)) });
    } else {
      await session?.release();
      session = null;
      scope.postMessage({ id, kind: "released" });
    }
  } catch (error) {
    const { name, code, message, excerpt } = /** @type {any} */ (error);
    const reported = name === "AbortError" ? "session.cancelled" : (code ?? "runner.failed");
    scope.postMessage({ id, kind: "failed", code: reported, message, excerpt });
  } finally {
    running.delete(id);
  }
});
