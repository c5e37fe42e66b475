/**
 * Carries out the `run` commands of a list: launches, clock readings and turns of the event loop.
 *
 * A segment is cut into slices by the clock, launch by launch, because how long launches take is
 * only known where they run: a call into the module costs some 20 ns.
 *
 * @typedef {import("./executor.js").Command} Command
 * @typedef {import("./program.js").Program} Program
 * @typedef {import("./runner.js").CallOptions} CallOptions
 * @typedef {import("./unit.js").WasmUnit} WasmUnit
 * @typedef {{slice: number, profile: boolean, trace: Trace}} SegmentOptions
 */

import { failure, RlxError } from "./errors.js";
import { Trace } from "./trace.js";
import { nextTask } from "./turns.js";

/** The segments of one pass over a command list. */
export class Segments {
  #lastTurn = Trace.now();
  #first;
  #total;

  /**
   * @param {WasmUnit} unit
   * @param {Program} program
   * @param {Command[]} commands
   * @param {"compile" | "execute"} phase
   * @param {CallOptions} call
   * @param {SegmentOptions} options
   */
  constructor(unit, program, commands, phase, call, options) {
    this.unit = unit;
    this.program = program;
    this.phase = phase;
    this.call = call;
    this.options = options;
    const runs = commands.filter(([kind]) => kind === "run");
    this.#first = Math.min(...runs.map(([, begin]) => begin));
    this.#total = Math.max(...runs.map(([, , end]) => Number(end))) - this.#first;
  }

  /**
   * Launches `begin` to `end` (exclusive); `false` if they were cancelled in between.
   *
   * @param {number} begin
   * @param {number} end
   * @returns {Promise<boolean>}
   */
  async run(begin, end) {
    const { trace, profile } = this.options;
    const slice = this.options.slice * 1e6;
    for (let next = begin; next < end; ) {
      if (this.call.signal?.aborted) return false;
      const first = next;
      const start = Trace.now();
      let now;
      do {
        this.#launch(next);
        next += 1;
        now = Trace.now();
      } while (next < end && !profile && now - this.#lastTurn < slice);
      const name = next - first === 1 ? this.program.launches[first].op : "";
      trace.record("run", this.phase, start, { name, begin: first, end: next });
      if (now - this.#lastTurn >= slice) await this.#turn(next);
    }
    return !this.call.signal?.aborted;
  }

  /** @param {number} next the launch that comes then */
  async #turn(next) {
    const step = this.phase === "execute" ? "run" : "prepare";
    this.call.onProgress?.({ step, done: next - this.#first, total: this.#total });
    await nextTask();
    this.#lastTurn = Trace.now();
  }

  /** @param {number} launch */
  #launch(launch) {
    try {
      this.unit.launch(this.program.plan.blockAddress, launch, launch + 1);
    } catch (cause) {
      if (!(cause instanceof RlxError) || cause.code !== "wasm.trap") throw cause;
      const { op, value } = this.program.launches[launch];
      const where = `${this.unit.device}: launch ${launch} (%${value} ${op})`;
      throw failure("wasm.trap", { reason: cause.found }, { where, cause });
    }
  }
}
