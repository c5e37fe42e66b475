/**
 * What happened, when, on which device: the record of `rlx_edge/runtime/trace.py`, field by field,
 * so that profiles and timelines read one stream.
 *
 * @typedef {"compile" | "load" | "allocate" | "upload" | "plan" | "input" | "run" | "send" |
 *   "receive" | "wait" | "free" | "output"} Kind
 * @typedef {"compile" | "dispatch" | "execute" | "sync"} Phase
 * @typedef {object} TraceEvent
 * @property {Kind} kind
 * @property {string} device
 * @property {Phase} phase
 * @property {number} start nanoseconds of the device's monotonic clock
 * @property {number} duration nanoseconds
 * @property {string} name for people: the operator, the constant or the input
 * @property {number} begin first launch of a `run`, 0 otherwise
 * @property {number} end launch after the last one, 0 otherwise
 * @property {number} edge -1 where there is none
 * @property {number} nbytes
 */

const CAPACITY = 1 << 16;

/** Collects events of one device, the last `capacity` of them. */
export class Trace {
  /** @type {TraceEvent[]} */
  #events = [];

  /**
   * @param {string} device
   * @param {number} [capacity]
   */
  constructor(device, capacity = CAPACITY) {
    this.device = device;
    this.capacity = capacity;
    /** Events that were given up for newer ones. */
    this.dropped = 0;
  }

  get length() {
    return this.#events.length;
  }

  /** Nanoseconds of the monotonic clock that `start` counts in. */
  static now() {
    return Math.round(performance.now() * 1e6);
  }

  /**
   * The clock's step in nanoseconds: browsers coarsen it to between 5 µs and 1 ms.
   *
   * @returns {number}
   */
  static resolution() {
    let step = Infinity;
    for (let sample = 0; sample < 5; sample += 1) {
      const start = performance.now();
      let now = start;
      while (now === start) now = performance.now();
      step = Math.min(step, now - start);
    }
    return Math.round(step * 1e6);
  }

  /**
   * Add an event that began at `start` and ends now.
   *
   * @param {Kind} kind
   * @param {Phase} phase
   * @param {number} start
   * @param {{name?: string, begin?: number, end?: number, edge?: number, nbytes?: number}} [fields]
   */
  record(kind, phase, start, { name = "", begin = 0, end = 0, edge = -1, nbytes = 0 } = {}) {
    if (this.#events.length >= this.capacity) {
      const given = this.capacity - (this.capacity >> 1);
      this.#events.splice(0, given);
      this.dropped += given;
    }
    const { device } = this;
    const duration = Trace.now() - start;
    this.#events.push({ kind, device, phase, start, duration, name, begin, end, edge, nbytes });
  }

  /** The events so far, oldest first; the trace is empty afterwards. */
  take() {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}
