/**
 * `InferenceSession`: a compiled model, ready to run, as onnxruntime-web's users know it.
 *
 *     const session = await InferenceSession.create("bundle/");
 *     const { y } = await session.run({ x: new Tensor("float32", data, [1, 3, 224, 224]) });
 *
 * A shape that was not seen before costs only a plan. Where a model branches on the value of an
 * integer input, or on a size, a bundle has one variant for each way, and the first whose guards
 * hold runs.
 *
 * @typedef {import("./feeds.js").BoundFeeds} BoundFeeds
 * @typedef {import("./program.js").Port} Port
 * @typedef {import("./runner.js").Progress} Progress
 * @typedef {import("./trace.js").TraceEvent} TraceEvent
 * @typedef {import("./variant.js").Kernels} Kernels
 * @typedef {import("./weights.js").WeightRanges} WeightRanges
 *
 * @typedef {object} CompiledVariant
 * @property {unknown} program the document of a program: a JSON text or what it holds
 * @property {Kernels} [wasm] where the document has none
 *
 * @typedef {object} CompiledModel a model that is at hand and not in a bundle
 * @property {CompiledVariant[]} [variants]
 * @property {unknown} [program] instead of `variants` where there is one
 * @property {Kernels} [wasm]
 * @property {WeightRanges} [weights]
 * @property {string} [name] for messages
 *
 * @typedef {object} SessionOptions
 * @property {AbortSignal} [signal] cancels the creation
 * @property {(progress: Progress) => void} [onProgress]
 * @property {boolean | "weights"} [verify] check digests of programs and kernels (`true`), of the
 *   weights too, or none. By default programs and kernels are checked where the page can.
 * @property {Record<string, number | bigint>} [valueHint] integer inputs that choose the variant
 *   whose kernels and weights are loaded now; the first one otherwise
 * @property {boolean} [preload] `false` leaves all loading to the first run
 * @property {boolean} [profile] time every launch
 * @property {number} [plans] how many shapes are remembered, 64 by default
 * @property {number} [slice] milliseconds of kernels between two turns of the event loop; 12
 * @property {string} [device] the name in messages and traces
 * @property {import("./links.js").Peer} [peer] runs the parts that stand on other devices
 * @property {(request: VariantRequest, signal?: AbortSignal) => Promise<CompiledModel>} [compile]
 *   compiles a variant that is missing
 *
 * @typedef {object} VariantRequest what a missing variant is for
 * @property {Record<string, (number | bigint)[]>} values content of small integer inputs
 * @property {Record<string, number[]>} shapes of all inputs
 *
 * @typedef {{signal?: AbortSignal, onProgress?: (progress: Progress) => void}} RunOptions
 * @typedef {{name: string, isTensor: true, type: string, shape: (number | string)[]}} ValueMetadata
 */

import { fetchKernels, fetchManifest, fetchText } from "./bundle.js";
import { canDigest } from "./digests.js";
import { symbolsOf } from "./dims.js";
import { cancelled, failure, throwIfCancelled } from "./errors.js";
import { integer } from "./integers.js";
import { shownSymbols } from "./plan.js";
import { failedGuard } from "./runner.js";
import { kindOf, TYPE_NAMES } from "./tensor.js";
import { Trace } from "./trace.js";
import { Variant } from "./variant.js";
import { checkRanges } from "./weights.js";

const PLANS = 64;
const SLICE = 12;
/** Elements of an integer input that may decide which variant runs. */
const VALUE_ELEMENTS = 64;
/** Variants whose weights are in memory at a time, least recently used first out. */
const LOADED = 4;

/** A model on this thread's WebAssembly. Calls take turns. */
export class InferenceSession {
  /** @type {Variant[]} */
  #variants = [];
  /**
   * Those that have been loaded, most recently used last.
   *
   * @type {Variant[]}
   */
  #loaded = [];
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** @type {Set<AbortController>} */
  #calls = new Set();
  /** @type {SessionOptions} */
  #options;
  #closed = false;
  #isBundle = false;
  #trace;

  /**
   * Use `InferenceSession.create`.
   *
   * @param {string} name
   * @param {SessionOptions} options
   */
  constructor(name, options) {
    this.name = name;
    this.#options = options;
    this.#trace = new Trace(options.device ?? "wasm:0");
    /**
     * What happened in the last run, or in `create` before any run.
     *
     * @type {TraceEvent[]}
     */
    this.lastProfile = [];
    /** How many variants were compiled on demand. */
    this.compileCount = 0;
  }

  /**
   * A session for a bundle (the URL of its folder or manifest) or for a compiled model at hand.
   *
   * @param {string | URL | CompiledModel} model
   * @param {SessionOptions} [options]
   * @returns {Promise<InferenceSession>}
   */
  static async create(model, options = {}) {
    checkOptions(options);
    const { signal } = options;
    throwIfCancelled(signal, "is fetched");
    if (typeof model === "string" || model instanceof URL) {
      if (/\.(onnx|ort)$/.test(String(model))) throw notCompiled(String(model));
      const manifest = await fetchManifest(model, signal);
      const session = new InferenceSession(manifest.model, options);
      session.#isBundle = true;
      await session.#guarded(async () => {
        const added = manifest.variants.map(async ({ program, kernels }) => {
          const source = await fetchText(new URL(program), "the program", signal);
          const load = (/** @type {AbortSignal | undefined} */ stop) =>
            fetchKernels(new URL(kernels), stop);
          return session.#variant(source, program, load, manifest.weights);
        });
        session.#variants = await Promise.all(added);
      });
      return session;
    }
    const session = new InferenceSession(modelName(model), options);
    await session.#guarded(async () => {
      session.#variants = await session.#variantsOf(model);
    });
    return session;
  }

  // ---- what the model is ----------------------------------------------------------------------

  /** @returns {readonly string[]} */
  get inputNames() {
    return this.#variants[0].program.inputs.map((port) => port.name);
  }

  /** @returns {readonly string[]} */
  get outputNames() {
    return this.#variants[0].program.outputs.map((port) => port.name);
  }

  /** Name, type and shape of every input; open sizes are texts. */
  get inputMetadata() {
    return this.#variants[0].program.inputs.map(metadata);
  }

  /** Name, type and shape of every output. */
  get outputMetadata() {
    return this.#variants[0].program.outputs.map(metadata);
  }

  /** The compiled variants. */
  get programs() {
    return this.#variants.map((variant) => variant.program);
  }

  /** How many plans were evaluated. */
  get planCount() {
    return this.#variants.reduce((sum, { runner }) => sum + (runner?.planCount ?? 0), 0);
  }

  /** Bytes of linear memory that the variants have now. */
  get memorySize() {
    return this.#variants.reduce((sum, { runner }) => sum + (runner?.memorySize ?? 0), 0);
  }

  // ---- running --------------------------------------------------------------------------------

  /**
   * The named outputs (all by default), as fresh tensors.
   *
   * `run(feeds)`, `run(feeds, options)`, `run(feeds, fetches)` and `run(feeds, fetches, options)`
   * with `fetches` as a list of names or an object whose keys are names. `InputError` for names,
   * shapes or element types that do not fit, `GuardError` for sizes and values that no variant
   * covers, `LimitError` where memory does not suffice; `AbortError` after a cancel.
   *
   * @param {Record<string, unknown>} feeds
   * @param {readonly string[] | Record<string, unknown> | RunOptions | null} [fetches]
   * @param {RunOptions} [options]
   * @returns {Promise<Record<string, import("./tensor.js").Tensor>>}
   */
  async run(feeds, fetches, options) {
    const [wanted, call] = splitArguments(fetches, options);
    return this.#inTurn(call.signal, async (signal) => {
      const { variant, bound } = await this.#variantFor(feeds, signal);
      const names = this.#checkedNames(wanted ?? this.outputNames);
      const runner = await this.#load(variant, { ...call, signal });
      runner.profile = Boolean(this.#options.profile);
      try {
        const tensors = await runner.run(bound.tensors, bound.symbols, { ...call, signal });
        const all = this.outputNames;
        return Object.fromEntries(names.map((name) => [name, tensors[all.indexOf(name)]]));
      } finally {
        this.lastProfile = this.#trace.take();
      }
    });
  }

  /** Time every launch from now on. */
  startProfiling() {
    this.#options = { ...this.#options, profile: true };
  }

  /** Stop that; the events of the last run are in `lastProfile`. */
  endProfiling() {
    this.#options = { ...this.#options, profile: false };
  }

  /** End what is running and drop instances, memory and code. Calling it again does nothing. */
  async release() {
    this.#closed = true;
    for (const controller of this.#calls) controller.abort();
    await this.#turn;
    for (const variant of this.#variants) variant.close();
  }

  /**
   * `work` when everything before it has ended, with a signal that ends it early.
   *
   * @template T
   * @param {AbortSignal | undefined} outer
   * @param {(signal: AbortSignal) => Promise<T>} work
   * @returns {Promise<T>}
   */
  async #inTurn(outer, work) {
    this.#checkOpen();
    const controller = new AbortController();
    const stop = () => controller.abort(outer?.reason);
    if (outer?.aborted) stop();
    outer?.addEventListener("abort", stop);
    this.#calls.add(controller);
    const before = this.#turn;
    /** @type {() => void} */
    let done = () => {};
    this.#turn = new Promise((resolve) => {
      done = () => resolve(undefined);
    });
    try {
      await before;
      this.#checkOpen();
      if (outer?.aborted) throw cancelled("runs", outer);
      return await work(controller.signal);
    } catch (error) {
      this.#checkOpen(); // a run that release() ended says so
      throw error;
    } finally {
      done();
      this.#calls.delete(controller);
      outer?.removeEventListener("abort", stop);
    }
  }

  #checkOpen() {
    if (this.#closed) throw failure("session.closed", {}, { where: this.name });
  }

  /**
   * @param {readonly unknown[]} names
   * @returns {string[]}
   */
  #checkedNames(names) {
    const known = this.outputNames;
    return names.map((name) => {
      if (typeof name === "string" && known.includes(name)) return name;
      throw failure("output.name", { name, names: known });
    });
  }

  // ---- variants -------------------------------------------------------------------------------

  /**
   * Fill a new session; one that fails keeps nothing.
   *
   * @param {() => Promise<void>} fill
   */
  async #guarded(fill) {
    const { signal, onProgress, preload = true } = this.#options;
    try {
      await fill();
      throwIfCancelled(signal, "is loaded");
      if (!this.#variants.length) {
        throw failure("session.model", { found: "no program", allowed: "one at least" });
      }
      if (preload) await this.#load(this.#hinted(), { signal, onProgress });
      this.lastProfile = this.#trace.take();
    } catch (error) {
      await this.release();
      throw error;
    }
  }

  /**
   * A variant's runner, with its weights in memory; others make room.
   *
   * @param {Variant} variant
   * @param {RunOptions} call
   */
  #load(variant, call) {
    this.#loaded = [...this.#loaded.filter((item) => item !== variant), variant];
    if (this.#loaded.length > LOADED) this.#loaded.shift()?.unload();
    return variant.ready(call);
  }

  /** The variant for the given hint, else the first. */
  #hinted() {
    const hint = this.#options.valueHint ?? {};
    for (const name of Object.keys(hint)) {
      if (!this.inputNames.includes(name)) {
        throw failure("input.name", { name, names: this.inputNames });
      }
    }
    const guards = [];
    for (const variant of this.#variants) {
      const symbols = Object.create(null);
      for (const { symbol, parameter, position } of variant.program.bindings) {
        if (position === 0 && parameter in hint) symbols[symbol] = integer(BigInt(hint[parameter]));
      }
      const failed = failedGuard(variant.program, symbols);
      if (!failed) return variant;
      guards.push(failed.text);
    }
    throw failure("session.variant", { symbols: shownSymbols(hint), guards: guards.join(" or ") });
  }

  /**
   * @param {Record<string, unknown>} feeds
   * @param {AbortSignal} signal
   * @returns {Promise<{variant: Variant, bound: BoundFeeds}>}
   */
  async #variantFor(feeds, signal) {
    const { compile } = this.#options;
    const missed = [];
    for (const variant of this.#variants) {
      const bound = variant.checker.bind(feeds);
      const guard = failedGuard(variant.program, bound.symbols);
      if (!guard) return { variant, bound };
      missed.push({ guard, bound });
    }
    const [{ bound, guard }] = missed;
    const symbols = shownSymbols(bound.symbols);
    const where = { where: this.name };
    if (compile) {
      const model = await compile(request(this.#variants[0], bound), signal);
      throwIfCancelled(signal, "is compiled");
      this.#variants.push(...(await this.#variantsOf(model)));
      this.compileCount += 1;
      const variant = this.#variants[this.#variants.length - 1];
      const again = variant.checker.bind(feeds);
      const failed = failedGuard(variant.program, again.symbols);
      if (!failed) return { variant, bound: again };
      throw failure("session.guard", { symbols, guard: failed.text }, where);
    }
    const { bindings } = this.#variants[0].program;
    const names = [guard.left, guard.right].flatMap(symbolsOf);
    const isValue = bindings.some(({ symbol }) => names.includes(symbol));
    if (missed.length === 1 && !(this.#isBundle && isValue)) {
      throw failure("session.guard", { symbols, guard: guard.text }, where);
    }
    const guards = missed.map((miss) => miss.guard.text).join(" or ");
    throw failure("session.variant", { symbols, guards }, where);
  }

  /**
   * @param {CompiledModel} model
   * @returns {Promise<Variant[]>}
   */
  #variantsOf(model) {
    const name = modelName(model);
    const weights = checkRanges(model.weights ?? { files: {}, constants: {} });
    const given = model.variants ?? [{ program: model.program, wasm: model.wasm }];
    return Promise.all(
      given.map(({ program, wasm }) =>
        this.#variant(program, name, wasm === undefined ? null : async () => wasm, weights),
      ),
    );
  }

  /**
   * @param {unknown} source
   * @param {string} name
   * @param {((signal?: AbortSignal) => Promise<Kernels>) | null} kernels
   * @param {WeightRanges} weights
   */
  #variant(source, name, kernels, weights) {
    const { verify, plans = PLANS, slice = SLICE, peer } = this.#options;
    return Variant.of(source, name, kernels, weights, {
      device: this.#trace.device,
      trace: this.#trace,
      plans,
      slice,
      peer,
      verify: verify === undefined ? canDigest() : Boolean(verify),
      verifyWeights: verify === "weights",
    });
  }
}

/** @param {Port} port */
function metadata({ name, dtype, shape, dimTexts }) {
  return {
    name,
    isTensor: /** @type {const} */ (true),
    type: TYPE_NAMES[dtype],
    shape: shape.map((dim, axis) => (typeof dim === "number" ? dim : dimTexts[axis])),
  };
}

/**
 * @param {Variant} variant
 * @param {BoundFeeds} bound
 * @returns {VariantRequest}
 */
function request({ program }, { tensors }) {
  /** @type {VariantRequest} */
  const found = { values: {}, shapes: {} };
  program.inputs.forEach(({ name, dtype, shape }, i) => {
    const { data, dims } = tensors[i];
    found.shapes[name] = [...dims];
    const isFixed = shape.every((dim) => typeof dim === "number");
    if (!/^(b?f)\d/.test(dtype) && isFixed && data.length <= VALUE_ELEMENTS) {
      found.values[name] = [...data].map((item) => integer(BigInt(item)));
    }
  });
  return found;
}

/**
 * @param {any} fetches
 * @param {RunOptions} [options]
 * @returns {[string[] | null, RunOptions]}
 */
function splitArguments(fetches, options) {
  if (fetches === undefined || fetches === null) return [null, options ?? {}];
  if (Array.isArray(fetches)) return [fetches, options ?? {}];
  if (typeof fetches !== "object") throw failure("output.names", { found: kindOf(fetches) });
  const isOptions = options === undefined && ("signal" in fetches || "onProgress" in fetches);
  return isOptions ? [null, fetches] : [Object.keys(fetches), options ?? {}];
}

/** @param {SessionOptions} options */
function checkOptions({ slice, plans, verify }) {
  for (const [name, value, least] of /** @type {const} */ ([
    ["slice", slice, 0],
    ["plans", plans, 1],
  ])) {
    if (value !== undefined && !(value >= least)) {
      throw failure("session.option", { name, found: String(value), allowed: `at least ${least}` });
    }
  }
  if (![undefined, true, false, "weights"].includes(verify)) {
    const allowed = 'true, false or "weights"';
    throw failure("session.option", { name: "verify", found: String(verify), allowed });
  }
}

/** @param {CompiledModel} model */
function modelName(model) {
  if (model instanceof ArrayBuffer || ArrayBuffer.isView(model)) throw notCompiled("bytes");
  if (typeof model !== "object" || model === null || !("program" in model || "variants" in model)) {
    const allowed = "the URL of a bundle, or {program, wasm, weights}";
    throw failure("session.model", { found: kindOf(model), allowed });
  }
  return model.name ?? "model";
}

/** @param {string} found */
function notCompiled(found) {
  const allowed = "the URL of a bundle, which `rlx compile MODEL -o bundle/` makes";
  return failure("session.model", { found, allowed });
}
