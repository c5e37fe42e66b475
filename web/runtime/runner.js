/**
 * Runs one program on one unit: weights once, prepare once, plan once a shape, execute once a call.
 *
 * Only this module knows the order. Kernels run on the thread that calls; between slices of a few
 * milliseconds the event loop gets its turn, so that a page stays alive and cancels arrive.
 *
 * @typedef {import("./executor.js").Command} Command
 * @typedef {import("./feeds.js").TensorLike} TensorLike
 * @typedef {import("./dims.js").Symbols} Symbols
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./plan.js").Placement} Placement
 * @typedef {import("./program.js").Program} Program
 * @typedef {import("./program.js").Port} Port
 * @typedef {import("./tensor.js").Tensor} Tensor
 * @typedef {import("./weights.js").WeightRanges} WeightRanges
 * @typedef {{step: "fetch" | "load" | "weights" | "prepare" | "run", done: number, total: number}}
 *   Progress bytes while weights come, launches while kernels run
 * @typedef {object} RunnerOptions
 * @property {string} device
 * @property {import("./trace.js").Trace} trace
 * @property {boolean} verifyWeights
 * @property {number} plans how many plans are remembered
 * @property {number} slice milliseconds of kernels between two turns of the event loop
 * @property {import("./links.js").Peer} [peer] who runs the parts of other devices
 * @typedef {{signal?: AbortSignal, onProgress?: (progress: Progress) => void}} CallOptions
 */

import { sha256 } from "./digests.js";
import { evaluateDim, symbolsOf } from "./dims.js";
import { cancelled, failure, throwIfCancelled } from "./errors.js";
import { checkCommands, Executor } from "./executor.js";
import { DivisionByZero, RELATIONS } from "./integers.js";
import { evaluate, MEMORY_LIMIT } from "./plan.js";
import { Segments } from "./segments.js";
import { tensorOf, TYPE_NAMES } from "./tensor.js";
import { Trace } from "./trace.js";
import { checkTransfers, Transfers } from "./transfers.js";
import { reasonOf, WasmUnit } from "./unit.js";
import { checkConstants, copyWeights } from "./weights.js";

/** A program, its unit and its plans. One call at a time. */
export class ProgramRunner {
  /** @type {WebAssembly.Module | null} */
  #module;
  /** @type {WasmUnit | null} */
  #unit = null;
  /** @type {Map<string, Plan>} */
  #plans = new Map();
  /** @type {Plan | null} */
  #written = null;
  /** @type {"none" | "raw" | "prepared"} */
  #weightsState = "none";
  /** @type {WeightRanges} */
  #weights;
  /** @type {RunnerOptions} */
  #options;

  /**
   * What cannot run here is refused before anything is loaded: `DigestError` `program.constant`,
   * `DeviceError` `program.launches` and `program.transport`, `LimitError` `memory.limit`, and what
   * `checkCommands` says.
   *
   * @param {Program} program
   * @param {WebAssembly.Module} module
   * @param {WeightRanges} weights
   * @param {RunnerOptions} options
   */
  constructor(program, module, weights, options) {
    checkProgram(program);
    checkConstants(weights, program.uploads);
    this.program = program;
    this.#module = module;
    this.#weights = weights;
    this.#options = options;
    /** Whether every launch is a segment of its own, so that the trace has its time. */
    this.profile = false;
    /** How many times the plan program was evaluated. */
    this.planCount = 0;
  }

  /** Bytes of device memory now. */
  get memorySize() {
    return this.#unit?.size ?? 0;
  }

  /**
   * Make an instance and bring the weights into its memory, where that has not been done.
   *
   * @param {CallOptions} [call]
   */
  async load({ signal, onProgress } = {}) {
    const { device, trace } = this.#options;
    if (!this.#unit) {
      if (!this.#module) throw failure("unit.closed", {}, { where: device });
      onProgress?.({ step: "load", done: 0, total: 1 });
      const start = Trace.now();
      const unit = await WasmUnit.load(this.#module, device);
      throwIfCancelled(signal, "is loaded");
      this.#unit = unit;
      trace.record("load", "dispatch", start);
      onProgress?.({ step: "load", done: 1, total: 1 });
    }
    if (this.#weightsState === "none") {
      this.#grow(residentNeed(this.program));
      await this.#upload(this.#unit, { signal, onProgress });
      throwIfCancelled(signal, "is loaded");
      this.#weightsState = "raw";
    }
  }

  /**
   * The plan for these symbols, evaluated or remembered.
   *
   * `GuardError` where the program does not cover them, `LimitError` where memory cannot.
   *
   * @param {Symbols} symbols
   * @returns {Plan}
   */
  plan(symbols) {
    const { trace, plans } = this.#options;
    const key = this.program.plan.symbols
      .map((symbol) => {
        if (symbol in symbols) return symbols[symbol];
        throw failure("input.symbol", { symbol });
      })
      .join();
    let plan = this.#plans.get(key);
    if (plan) {
      this.#plans.delete(key); // the last one used is the last one dropped
    } else {
      const start = Trace.now();
      this.planCount += 1;
      plan = evaluate(this.program, symbols);
      trace.record("plan", "dispatch", start, { nbytes: plan.words.byteLength });
      if (this.#plans.size >= plans) this.#plans.delete([...this.#plans.keys()][0]);
    }
    this.#plans.set(key, plan);
    return plan;
  }

  /**
   * The outputs, as fresh tensors, for input tensors in the order of the program.
   *
   * @param {TensorLike[]} tensors
   * @param {Symbols} symbols
   * @param {CallOptions} [call]
   * @returns {Promise<Tensor[]>}
   */
  async run(tensors, symbols, call = {}) {
    const { program } = this;
    const { trace } = this.#options;
    const plan = this.plan(symbols);
    try {
      await this.load(call);
      await this.#makeReady(plan, call);
      const unit = this.#use();
      const transfers = await this.#linked(unit, plan, symbols, call);
      program.inputs.forEach(({ name }, i) => {
        const start = Trace.now();
        const { buffer, byteOffset, byteLength } = tensors[i].data;
        unit.upload(plan.inputs[i].address, new Uint8Array(buffer, byteOffset, byteLength));
        trace.record("input", "execute", start, { name, nbytes: byteLength });
      });
      await this.#execute(program.execute, "execute", call, transfers);
      return program.outputs.map((port, i) => this.#download(unit, port, plan.outputs[i]));
    } catch (error) {
      // The memory of a unit that failed cannot be trusted: the next call makes another.
      if (/** @type {any} */ (error)?.code === "wasm.trap") this.#drop();
      throw error;
    }
  }

  /** Drop instance, memory, plans and code. */
  close() {
    this.#drop();
    this.#plans.clear();
    this.#module = null;
    this.#weights = { files: {}, constants: {} };
  }

  // ---- memory ---------------------------------------------------------------------------------

  #use() {
    if (!this.#unit) throw failure("unit.closed", {}, { where: this.#options.device });
    return this.#unit;
  }

  #drop() {
    this.#unit?.close();
    this.#unit = null;
    this.#written = null;
    this.#weightsState = "none";
  }

  /** @param {number} nbytes */
  #grow(nbytes) {
    const unit = this.#use();
    const before = unit.size;
    const start = Trace.now();
    unit.grow(nbytes);
    if (unit.size > before) {
      const grown = { nbytes: unit.size - before };
      this.#options.trace.record("allocate", "dispatch", start, grown);
    }
  }

  /**
   * Memory of this plan, its words in place, and the weights prepared.
   *
   * @param {Plan} plan
   * @param {CallOptions} call
   */
  async #makeReady(plan, call) {
    if (plan === this.#written) return;
    this.#written = null;
    this.#grow(plan.peak);
    const { words } = plan;
    const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
    this.#use().upload(this.program.plan.blockAddress, bytes);
    if (this.#weightsState === "raw") {
      this.#weightsState = "none"; // what prepare has begun to overwrite cannot be used again
      await this.#execute(this.program.prepare, "compile", call);
      this.#weightsState = "prepared";
    }
    this.#written = plan;
  }

  /**
   * @param {WasmUnit} unit
   * @param {CallOptions} call
   */
  async #upload(unit, { signal, onProgress }) {
    const { trace, verifyWeights } = this.#options;
    const { uploads } = this.program;
    const total = uploads.reduce((sum, upload) => sum + upload.nbytes, 0);
    let done = 0;
    const start = Trace.now();
    const put = (/** @type {number} */ address, /** @type {Uint8Array} */ bytes) => {
      unit.upload(address, bytes);
      done += bytes.length;
      onProgress?.({ step: "weights", done, total });
    };
    await copyWeights(this.#weights, uploads, put, signal);
    trace.record("upload", "compile", start, { name: "weights", nbytes: total });
    if (!verifyWeights) return;
    for (const { digest, address, nbytes } of uploads) {
      throwIfCancelled(signal, "is loaded");
      const found = await sha256(unit.view(address, nbytes));
      if (found === digest) continue;
      throw failure(
        "weights.digest",
        { found, expected: digest },
        { where: this.program.name },
      );
    }
  }

  /**
   * @param {WasmUnit} unit
   * @param {Port} port
   * @param {Placement} place
   */
  #download(unit, { name, dtype }, { address, shape, nbytes }) {
    const start = Trace.now();
    const tensor = tensorOf(TYPE_NAMES[dtype], unit.download(address, nbytes), shape);
    this.#options.trace.record("output", "execute", start, { name, nbytes });
    return tensor;
  }

  // ---- commands -------------------------------------------------------------------------------

  /**
   * What carries the edges of this run; none where nothing is exchanged.
   *
   * @param {WasmUnit} unit
   * @param {Plan} plan
   * @param {Symbols} symbols
   * @param {CallOptions} call
   */
  async #linked(unit, plan, symbols, { signal }) {
    const { program } = this;
    if (!program.transfers.length) return null;
    const { peer, trace } = this.#options;
    if (!peer) {
      const [{ edge, isSend }] = program.transfers;
      throw failure("program.transport", { command: `${isSend ? "send" : "receive"} ${edge}` });
    }
    const link = await peer.begin(program, symbols, signal);
    return new Transfers(unit, program, plan, link, trace);
  }

  /**
   * @param {Command[]} commands
   * @param {"compile" | "execute"} phase
   * @param {CallOptions} call
   * @param {Transfers | null} [transfers]
   */
  async #execute(commands, phase, call, transfers = null) {
    try {
      await this.#carryOut(commands, phase, call, transfers);
      await transfers?.end(call.signal);
    } finally {
      transfers?.close();
    }
  }

  /**
   * @param {Command[]} commands
   * @param {"compile" | "execute"} phase
   * @param {CallOptions} call
   * @param {Transfers | null} transfers
   */
  async #carryOut(commands, phase, call, transfers) {
    const executor = new Executor(commands);
    const actions = executor.handle(["started"]);
    const segments = new Segments(this.#use(), this.program, commands, phase, call, {
      ...this.#options,
      profile: this.profile,
    });
    /** @type {unknown} */
    let error;
    for (;;) {
      const action = actions.shift();
      if (!action) {
        if (executor.state !== "active" || !transfers) return;
        try {
          actions.push(...executor.handle(await transfers.next(call.signal)));
        } catch (cause) {
          error = cause;
          actions.push(...executor.handle(["failed", reasonOf(cause)]));
        }
      } else if (action[0] === "run") {
        try {
          const isWhole = await segments.run(action[1], action[2]);
          if (!isWhole) actions.push(...executor.handle(["cancelled"]));
          actions.push(...executor.handle(["segment_done"]));
        } catch (cause) {
          error = cause;
          actions.push(...executor.handle(["failed", reasonOf(cause)]));
        }
      } else if (action[0] === "stopped") {
        const signal = /** @type {AbortSignal} */ (call.signal);
        throw error ?? cancelled(phase === "execute" ? "runs" : "is loaded", signal);
      } else if (action[0] !== "finished") transfers?.carryOut(action);
    }
  }
}

/**
 * Bytes that the block, the weights and their upload need, whatever the sizes.
 *
 * @param {Program} program
 */
export function residentNeed({ plan, uploads, resident }) {
  const block = plan.blockAddress + 4 * plan.words.length;
  return Math.max(resident, block, ...uploads.map(({ address, nbytes }) => address + nbytes));
}

/**
 * The first guard that does not hold. Guards over other symbols than these are passed over.
 *
 * @param {Program} program
 * @param {Symbols} symbols
 */
export function failedGuard({ guards }, symbols) {
  return guards.find(({ left, relation, right }) => {
    const isKnown = [left, right].every((dim) => symbolsOf(dim).every((name) => name in symbols));
    if (!isKnown) return false;
    try {
      return !RELATIONS[relation](evaluateDim(left, symbols), evaluateDim(right, symbols));
    } catch (error) {
      if (error instanceof DivisionByZero) return true;
      throw error;
    }
  });
}

/** @param {Program} program */
function checkProgram(program) {
  const nbytes = residentNeed(program);
  if (nbytes > MEMORY_LIMIT) {
    throw failure("memory.limit:weights", { nbytes, limit: MEMORY_LIMIT });
  }
  for (const commands of [program.prepare, program.execute]) {
    checkCommands(commands);
    for (const command of commands) {
      const [kind, begin, end] = command;
      const count = program.launches.length;
      if (kind === "run" && Number(end) > count) {
        throw failure("program.launches", { begin, end, count });
      }
    }
  }
  checkTransfers(program);
}
