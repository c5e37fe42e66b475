/**
 * A program on this engine: one WebAssembly instance, its linear memory, and launches.
 *
 * The module exports its `memory` and `run(block, begin, end, thread)` and imports nothing. A
 * launch that fails leaves the unit unusable.
 */

import { failure } from "./errors.js";
import { MEMORY_LIMIT } from "./plan.js";

const PAGE = 1 << 16;
/** The number of the only thread. */
const THREAD = 0;

/** A loaded program; its memory is one range of byte addresses that only grows. */
export class WasmUnit {
  /** @type {WebAssembly.Memory | null} */
  #memory;
  /** @type {((block: number, begin: number, end: number, thread: number) => void) | null} */
  #run;
  /** @type {Uint8Array<ArrayBuffer>} */
  #bytes = new Uint8Array(0);
  #failed = false;

  /**
   * `DeviceError` `wasm.interface` where an export is missing.
   *
   * @param {WebAssembly.Instance} instance
   * @param {string} device
   */
  constructor({ exports }, device) {
    this.device = device;
    const { memory, run } = exports;
    if (!(memory instanceof WebAssembly.Memory)) throw noExport(exports, "memory", "memory");
    if (typeof run !== "function") throw noExport(exports, "func", "run");
    this.#memory = memory;
    this.#run = /** @type {any} */ (run);
    this.#takeView();
  }

  /**
   * An instance of `module`; `DeviceError` `wasm.instance` where there can be none.
   *
   * @param {WebAssembly.Module} module
   * @param {string} device
   */
  static async load(module, device) {
    let instance;
    try {
      instance = await WebAssembly.instantiate(module, {});
    } catch (cause) {
      throw failure("wasm.instance", { reason: reasonOf(cause) }, { where: device, cause });
    }
    return new WasmUnit(instance, device);
  }

  /** Bytes of memory now; 0 after `close`. */
  get size() {
    return this.#bytes.length;
  }

  /**
   * Have at least `nbytes` of memory.
   *
   * `LimitError` `memory.limit` beyond 4 GiB, `memory.grow` where the browser refuses.
   *
   * @param {number} nbytes
   */
  grow(nbytes) {
    const memory = this.#use();
    const pages = Math.ceil(nbytes / PAGE) - this.size / PAGE;
    if (pages <= 0) return;
    const where = this.device;
    if (nbytes > MEMORY_LIMIT) {
      throw failure("memory.limit", { nbytes, limit: MEMORY_LIMIT }, { where });
    }
    try {
      memory.grow(pages);
    } catch (cause) {
      throw failure("memory.grow", { nbytes }, { where, cause });
    }
    this.#takeView();
  }

  /**
   * Copy bytes to `address`.
   *
   * @param {number} address
   * @param {Uint8Array} bytes
   */
  upload(address, bytes) {
    this.view(address, bytes.length).set(bytes);
  }

  /**
   * A copy of `nbytes` bytes at `address`.
   *
   * @param {number} address
   * @param {number} nbytes
   */
  download(address, nbytes) {
    return this.view(address, nbytes).slice().buffer;
  }

  /**
   * The bytes themselves, valid until the memory grows; `DeviceError` `memory.range` outside.
   *
   * @param {number} address
   * @param {number} nbytes
   */
  view(address, nbytes) {
    this.#use();
    if (address < 0 || nbytes < 0 || address + nbytes > this.size) {
      throw failure("memory.range", { nbytes, address, size: this.size }, { where: this.device });
    }
    return this.#bytes.subarray(address, address + nbytes);
  }

  /**
   * Run launches `begin` to `end` (exclusive) of the parameter block at `block`.
   *
   * @param {number} block
   * @param {number} begin
   * @param {number} end
   */
  launch(block, begin, end) {
    this.#use();
    try {
      this.#run?.(block, begin, end, THREAD);
    } catch (cause) {
      this.#failed = true;
      throw failure("wasm.trap", { reason: reasonOf(cause) }, { where: this.device, cause });
    }
  }

  /** Drop instance and memory. */
  close() {
    this.#memory = this.#run = null;
    this.#bytes = new Uint8Array(0);
  }

  #use() {
    const where = this.device;
    if (!this.#memory) throw failure("unit.closed", {}, { where });
    if (this.#failed) throw failure("unit.failed", {}, { where });
    return this.#memory;
  }

  #takeView() {
    if (this.#memory) this.#bytes = new Uint8Array(this.#memory.buffer);
  }
}

/**
 * The message of anything that was thrown.
 *
 * @param {unknown} cause
 */
export function reasonOf(cause) {
  return cause instanceof Error ? cause.message : String(cause);
}

/**
 * @param {WebAssembly.Exports} exports
 * @param {string} kind
 * @param {string} name
 */
function noExport(exports, kind, name) {
  const names = Object.keys(exports);
  return failure("wasm.interface", { kind, name, exports: names.length ? names : "no exports" });
}
