/**
 * Carries out `send`, `receive` and `wait` of one run: between linear memory and a link.
 *
 * A received buffer belongs to its edge from the `receive` on, so bytes are copied in when they
 * come, also between two launches of other work.
 *
 * @typedef {import("./executor.js").Command} Command
 * @typedef {import("./executor.js").Event} Event
 * @typedef {import("./links.js").RunLink} RunLink
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./plan.js").Placement} Placement
 * @typedef {import("./program.js").EdgePort} EdgePort
 * @typedef {import("./program.js").Program} Program
 * @typedef {import("./unit.js").WasmUnit} WasmUnit
 */

import { failure } from "./errors.js";
import { Trace } from "./trace.js";

/** The transfers of one run. */
export class Transfers {
  /** @type {Map<number, {port: EdgePort, place: Placement}>} */
  #ports;
  /** @type {(Event | {error: unknown})[]} */
  #events = [];
  /** @type {(() => void) | null} */
  #wake = null;
  #closed = false;
  #waited = { edge: -1, start: 0 };

  /**
   * @param {WasmUnit} unit
   * @param {Program} program
   * @param {Plan} plan
   * @param {RunLink} link
   * @param {Trace} trace
   */
  constructor(unit, program, plan, link, trace) {
    this.unit = unit;
    this.link = link;
    this.trace = trace;
    this.#ports = new Map(
      program.transfers.map((port, i) => [port.edge, { port, place: plan.transfers[i] }]),
    );
  }

  /**
   * Begin what an action says.
   *
   * @param {Command} action
   */
  carryOut([kind, edge]) {
    if (kind === "send") this.#begin(() => this.#send(edge));
    else if (kind === "receive") this.#begin(() => this.#receive(edge));
    else if (kind === "wait") this.#waited = { edge, start: Trace.now() };
  }

  /**
   * The next event; rejects with what the link or a payload got wrong.
   *
   * @param {AbortSignal} [signal]
   * @returns {Promise<Event>}
   */
  async next(signal) {
    const stop = () => this.#push(["cancelled"]);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop);
    try {
      while (!this.#events.length) {
        await new Promise((resolve) => {
          this.#wake = () => resolve(undefined);
        });
      }
    } finally {
      signal?.removeEventListener("abort", stop);
    }
    const event = /** @type {Event | {error: unknown}} */ (this.#events.shift());
    if ("error" in event) throw event.error;
    this.#endWait();
    return event;
  }

  /**
   * Resolves when the other devices have ended the run as well.
   *
   * @param {AbortSignal} [signal]
   */
  async end(signal) {
    const stop = () => this.link.abort();
    signal?.addEventListener("abort", stop);
    try {
      await this.link.end();
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  /** Nothing is copied any more, and the link is given up if it has not ended. */
  close() {
    this.#closed = true;
    this.link.abort();
  }

  /** @param {() => Promise<Event>} work */
  async #begin(work) {
    try {
      this.#push(await work());
    } catch (error) {
      this.#push({ error });
    }
  }

  /**
   * @param {number} edge
   * @returns {Promise<Event>}
   */
  async #send(edge) {
    const { port, place } = this.#find(edge);
    const start = Trace.now();
    const { nbytes } = place;
    const bytes = new Uint8Array(this.unit.download(place.address, nbytes));
    await this.link.send(edge, bytes);
    if (!this.#closed) this.trace.record("send", "sync", start, { name: port.name, edge, nbytes });
    return ["send_done", edge];
  }

  /**
   * @param {number} edge
   * @returns {Promise<Event>}
   */
  async #receive(edge) {
    const { port, place } = this.#find(edge);
    const { name } = port;
    const { nbytes } = place;
    const bytes = await this.link.receive(edge);
    if (this.#closed) return ["arrived", edge];
    if (bytes.length !== nbytes) {
      throw failure("edge.bytes", { edge, name, found: bytes.length, expected: nbytes });
    }
    if (this.#waited.edge === edge) this.#endWait();
    const start = Trace.now();
    this.unit.upload(place.address, bytes);
    this.trace.record("receive", "sync", start, { name, edge, nbytes });
    return ["arrived", edge];
  }

  /** @param {number} edge */
  #find(edge) {
    const found = this.#ports.get(edge);
    if (found) return found;
    throw failure("edge.unknown", { edge, known: [...this.#ports.keys()] });
  }

  #endWait() {
    const { edge, start } = this.#waited;
    if (edge >= 0) this.trace.record("wait", "sync", start, { edge });
    this.#waited = { edge: -1, start: 0 };
  }

  /** @param {Event | {error: unknown}} event */
  #push(event) {
    this.#events.push(event);
    this.#wake?.();
  }
}

/**
 * `DeviceError` `program.transport` where commands and the transfers that a program describes do
 * not agree.
 *
 * @param {Program} program
 */
export function checkTransfers({ prepare, execute, transfers }) {
  const open = new Map(transfers.map(({ edge, isSend }) => [edge, isSend ? "send" : "receive"]));
  for (const [commands, isExecute] of /** @type {const} */ ([
    [prepare, false],
    [execute, true],
  ])) {
    for (const command of commands) {
      const [kind, edge] = command;
      if (kind !== "send" && kind !== "receive") continue;
      if (!isExecute || open.get(edge) !== kind) {
        throw failure("program.transport", { command: command.join(" ") });
      }
      open.delete(edge);
    }
  }
  for (const [edge, kind] of open) throw failure("program.transport", { command: `${kind} ${edge}` });
}
