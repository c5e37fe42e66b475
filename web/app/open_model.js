/**
 * A model from its file to its results: download, description, compilation, weights, runs.
 *
 * @typedef {import("./compiler_client.js").CompilerClient} CompilerClient
 * @typedef {import("../compiler/worker.js").Description} Description
 * @typedef {import("../compiler/worker.js").CompiledAnswer} CompiledAnswer
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 * @typedef {import("./runner.js").RunAnswer} RunAnswer
 * @typedef {"download" | "python" | "compile" | "weights" | "run"} StepName
 * @typedef {object} StepReport
 * @property {StepName} step
 * @property {number} [done]
 * @property {number} [total]
 * @property {string} [detail]
 * @property {boolean} [ended]
 * @typedef {{signal: AbortSignal, onStep: (report: StepReport) => void}} Call
 * @typedef {{name: string, load: (call: Call) => Promise<Blob>, digest?: string}} Origin `digest`
 *   of a file that the gateway has too
 * @typedef {import("./compiler_client.js").Placement} Placement
 * @typedef {import("../runtime/gateway_client.js").GatewayState} GatewayState
 */

import { Report, throwIfCancelled } from "./reports.js";
import { WorkerClient } from "./worker_client.js";

/** Elements of an integer input that may decide which way a model branches. */
const VALUE_ELEMENTS = 64;

export class OpenModel {
  /** @type {Blob | null} */
  #file = null;
  #created = false;
  /** Whether the model branches on values that only a run has. */
  #decides = false;
  /** @type {((report: StepReport) => void)} */
  #onStep = () => {};
  #runner = new WorkerClient(new URL("./runner.js", import.meta.url), {
    what: "the worker that runs the model",
    interruptible: true,
    onAsk: (ask) => this.#missingVariant(ask),
    onNotice: ({ gateway }) => this.onGateway(gateway),
  });

  /**
   * @param {Origin} origin
   * @param {CompilerClient} compiler
   * @param {{token: () => string, onGateway: (state: GatewayState) => void}} gateway
   */
  constructor(origin, compiler, { token, onGateway }) {
    this.origin = origin;
    this.compiler = compiler;
    this.token = token;
    this.onGateway = onGateway;
    /** @type {Placement} */
    this.placement = { device: "local", after: "", worker: "" };
    /** @type {Description | null} */
    this.description = null;
    /**
     * What was compiled, in the order of the session's programs.
     *
     * @type {(CompiledAnswer & {cached: boolean})[]}
     */
    this.variants = [];
  }

  /** How many times the compiler was asked. */
  get compilations() {
    return this.variants.length;
  }

  /**
   * Download, description and, where no input's value decides, compilation and weights.
   *
   * @param {Call} call
   */
  async open(call) {
    call.onStep({ step: "download" });
    this.#file = await this.origin.load(call);
    throwIfCancelled(call.signal);
    call.onStep({ step: "download", ended: true });
    this.description = await this.compiler.describe(this.#file, this.origin.name, this.#told(call));
    call.onStep({ step: "python", ended: true });
    await this.prepare(call);
  }

  /**
   * Where it runs from now on; it has to be prepared again.
   *
   * @param {Placement} placement
   */
  place(placement) {
    this.placement = placement;
    this.#created = false;
  }

  /**
   * Compilation and weights, where no input's value decides.
   *
   * @param {Call} call
   */
  async prepare(call) {
    const detail = "with the first run, whose values decide";
    try {
      if (!this.#decides) await this.#create({}, call);
    } catch (error) {
      if (/** @type {any} */ (error).code !== "import.value_needed") throw error;
      this.#decides = true;
    }
    if (this.#decides) call.onStep({ step: "compile", detail, done: 0, total: 1 });
  }

  /**
   * @param {Record<string, PlainTensor>} feeds
   * @param {{repeat: number, profile: boolean}} options
   * @param {Call} call
   * @returns {Promise<RunAnswer>}
   */
  async run(feeds, options, call) {
    if (!this.#file) throw new Report("page.model", "the model has not been loaded");
    this.#onStep = call.onStep;
    if (!this.#created) await this.#create(this.#decides ? decisions(feeds) : {}, call);
    call.onStep({ step: "run" });
    const { signal } = call;
    const onProgress = (/** @type {any} */ progress) => {
      const step = progress.step === "run" ? "run" : "weights";
      const { done, total } = progress;
      call.onStep({ step, done, total, detail: progress.step });
    };
    const asked = { kind: "run", feeds, ...options, gateway: this.#gateway({}) };
    const found = await this.#runner.request(asked, { signal, onProgress });
    call.onStep({ step: "weights", ended: true });
    call.onStep({ step: "run", ended: true });
    return found;
  }

  /** Free memory and code. */
  close() {
    this.#runner.terminate();
    this.#created = false;
  }

  /**
   * @param {import("./compiler_client.js").Decisions} decided
   * @param {Call} call
   */
  async #create(decided, call) {
    const file = /** @type {Blob} */ (this.#file);
    const { name } = this.origin;
    call.onStep({ step: "compile" });
    const model = await this.compiler.compile(file, name, decided, this.placement, this.#told(call));
    const { cached, milliseconds } = model;
    const detail = cached ? "kept from an earlier visit" : `${Math.round(milliseconds)} ms`;
    call.onStep({ step: "compile", detail, ended: true });
    call.onStep({ step: "weights" });
    const onProgress = (/** @type {any} */ progress) =>
      call.onStep({ step: "weights", done: progress.done, total: progress.total, detail: progress.step });
    const { signal } = call;
    const gateway = this.#gateway(decided);
    await this.#runner.request({ kind: "create", name, model, file, gateway }, { signal, onProgress });
    this.variants = [model];
    this.#created = true;
    call.onStep({ step: "weights", ended: true });
  }

  /**
   * The compiler's answer to a run that no variant covers.
   *
   * @param {any} request
   */
  async #missingVariant({ values, shapes }) {
    this.#onStep({ step: "compile" });
    const file = /** @type {Blob} */ (this.#file);
    const onStep = this.#onStep;
    const model = await this.compiler.compile(
      file,
      this.origin.name,
      { values, shapes },
      this.placement,
      this.#told({ onStep, signal: new AbortController().signal }),
    );
    this.variants.push(model);
    this.#onStep({ step: "compile", ended: true });
    return { ...model, gateway: this.#gateway({ values }) };
  }

  /**
   * What the runner needs to use a gateway.
   *
   * @param {import("./compiler_client.js").Decisions} decided
   */
  #gateway({ values = {} }) {
    return { url: document.baseURI, token: this.token(), model: this.origin.digest ?? "", values };
  }

  /**
   * @param {Call} call
   * @returns {import("./worker_client.js").RequestOptions}
   */
  #told({ signal, onStep }) {
    return {
      signal,
      onProgress: ({ step, done, total }) => {
        if (step === "python") onStep({ step: "python", done, total });
        else if (step === "compiler") onStep({ step: "python", detail: "importing the compiler" });
        else onStep({ step: "compile", detail: step });
      },
    };
  }
}

/**
 * Content of small integer inputs, which may decide how a model branches.
 *
 * @param {Record<string, PlainTensor>} feeds
 * @returns {import("./compiler_client.js").Decisions}
 */
function decisions(feeds) {
  const values = Object.entries(feeds)
    .filter(([, { type, data }]) => /^u?int/.test(type) && data.length <= VALUE_ELEMENTS)
    .map(([name, { data }]) => [name, Array.from(data, Number)]);
  return { values: Object.fromEntries(values) };
}
