/**
 * One compiled variant of a model: its program now, its kernels and weights when first needed.
 *
 * @typedef {import("./program.js").Program} Program
 * @typedef {import("./runner.js").CallOptions} CallOptions
 * @typedef {import("./runner.js").RunnerOptions} RunnerOptions
 * @typedef {import("./weights.js").WeightRanges} WeightRanges
 * @typedef {ArrayBuffer | ArrayBufferView | WebAssembly.Module} Kernels
 * @typedef {RunnerOptions & {verify: boolean}} VariantOptions
 */

import { sha256 } from "./digests.js";
import { abortable, failure } from "./errors.js";
import { FeedChecker } from "./feeds.js";
import { checkDigest, readProgram } from "./program.js";
import { ProgramRunner } from "./runner.js";
import { Trace } from "./trace.js";
import { reasonOf } from "./unit.js";

/** How the names of targets begin whose programs run here. */
const TARGETS = "wasm32-";

/** A program with what it needs to run. */
export class Variant {
  /** @type {((signal?: AbortSignal) => Promise<Kernels>) | null} */
  #kernels;
  /** @type {WeightRanges} */
  #weights;
  /** @type {VariantOptions} */
  #options;
  /** @type {ProgramRunner | null} */
  runner = null;

  /**
   * @param {Program} program
   * @param {(signal?: AbortSignal) => Promise<Kernels>} kernels
   * @param {WeightRanges} weights
   * @param {VariantOptions} options
   */
  constructor(program, kernels, weights, options) {
    this.program = program;
    this.checker = new FeedChecker(program.inputs, program.bindings);
    this.#kernels = kernels;
    this.#weights = weights;
    this.#options = options;
  }

  /**
   * The variant of a program document; `DigestError` where its content is not what was written.
   *
   * @param {unknown} source a JSON text or what it holds
   * @param {string} name
   * @param {((signal?: AbortSignal) => Promise<Kernels>) | null} kernels `null` where the document
   *   has them
   * @param {WeightRanges} weights
   * @param {VariantOptions} options
   */
  static async of(source, name, kernels, weights, options) {
    const program = readProgram(source, name);
    if (!program.target.startsWith(TARGETS)) {
      const { target } = program;
      throw failure("program.target", { target, allowed: `${TARGETS}…` }, { where: name });
    }
    if (options.verify) await checkDigest(source, name);
    const { wasm } = program;
    program.wasm = null; // bytes of code are kept by nobody once they are compiled
    const found = kernels ?? (wasm && (async () => wasm));
    if (!found) throw failure("session.model", { found: "a program", allowed: "wasm beside it" });
    return new Variant(program, found, weights, options);
  }

  /**
   * The runner, with kernels compiled and weights in place.
   *
   * @param {CallOptions} call
   */
  async ready(call) {
    this.runner ??= await this.#compile(call);
    await this.runner.load(call);
    return this.runner;
  }

  /** Drop instance, memory and code until they are needed again. */
  unload() {
    this.runner?.close();
    this.runner = null;
  }

  /** Drop everything for good. */
  close() {
    this.unload();
    this.#kernels = null;
    this.#weights = { files: {}, constants: {} };
  }

  /** @param {CallOptions} call */
  async #compile({ signal, onProgress }) {
    const { trace, device, verify } = this.#options;
    const { program } = this;
    if (!this.#kernels) throw failure("unit.closed", {}, { where: device });
    onProgress?.({ step: "fetch", done: 0, total: 1 });
    const kernels = await this.#kernels(signal);
    onProgress?.({ step: "fetch", done: 1, total: 1 });
    const start = Trace.now();
    let module = kernels;
    let nbytes = 0;
    if (!(module instanceof WebAssembly.Module)) {
      const bytes = bytesOf(module);
      nbytes = bytes.length;
      if (verify) {
        const what = "the program and its kernels";
        const [found, expected] = [await sha256(bytes), program.kernelsDigest];
        if (found !== expected) {
          throw failure("digest.mismatch", { what, found, expected }, { where: program.name });
        }
      }
      module = await abortable(compileKernels(bytes, program.name), signal, "is compiled");
    }
    trace.record("load", "dispatch", start, { nbytes });
    return new ProgramRunner(program, module, this.#weights, this.#options);
  }
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {string} where
 */
async function compileKernels(bytes, where) {
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    throw failure("wasm.invalid", { reason: reasonOf(cause) }, { where, cause });
  }
}

/**
 * @param {ArrayBuffer | ArrayBufferView} data
 * @returns {Uint8Array<ArrayBuffer>}
 */
function bytesOf(data) {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  const { buffer, byteOffset, byteLength } = data;
  return new Uint8Array(/** @type {ArrayBuffer} */ (buffer), byteOffset, byteLength);
}
