/**
 * The interpreter of command lists, without I/O: events go in, actions come out. It is the machine
 * of `rlx_edge/runtime/executor.py`; golden logs that both read pin it.
 *
 *             started             every command done, nothing in flight
 *     idle ───────────▶ active ─────────────────────────────────────▶ finished
 *                         │ cancelled, failed
 *                         ▼
 *                      stopping ──▶ stopped       (a running segment ends first)
 *
 * Commands are rows of a program: `["run", begin, end]`, `["send", edge]`, `["receive", edge]`,
 * `["wait", edge]`, `["free", buffer]`. An action is a command for the driver to carry out, in
 * order, or one of the ends `["finished"]` and `["stopped", reason]`. Whoever drives the machine
 * launches kernels, opens sockets and reads clocks; no policy lives here.
 *
 * @typedef {["run", number, number] | ["send" | "receive" | "wait" | "free", number]} Command
 * @typedef {Command | ["finished"] | ["stopped", string]} Action
 * @typedef {["started"] | ["segment_done"] | ["send_done" | "arrived", number] | ["cancelled"] |
 *   ["failed", string]} Event
 */

import { failure } from "./errors.js";

export const CANCELLED = "cancelled";

/**
 * `RlxError` `commands.run`, `.edge`, `.wait` or `.free` for a list that cannot work: launch ranges
 * are forward and not empty, an edge is sent or received once, a wait names an edge that was begun
 * before, and a buffer is freed once.
 *
 * @param {Command[]} commands
 */
export function checkCommands(commands) {
  const begun = new Set();
  const freed = new Set();
  commands.forEach((command, position) => {
    const where = { where: `command ${position}` };
    const [kind, operand] = command;
    if (kind === "run") {
      const [, begin, end] = command;
      if (!(0 <= begin && begin < end)) throw failure("commands.run", { begin, end }, where);
    } else if (kind === "wait") {
      if (!begun.has(operand)) {
        const known = [...begun].sort((a, b) => a - b);
        throw failure(
          "commands.wait",
          { edge: operand, begun: known.length ? known : "none" },
          where,
        );
      }
    } else if (kind === "free") {
      if (freed.has(operand)) throw failure("commands.free", { buffer: operand }, where);
      freed.add(operand);
    } else {
      if (begun.has(operand)) throw failure("commands.edge", { edge: operand }, where);
      begun.add(operand);
    }
  });
}

/** One pass over commands that `checkCommands` accepts. */
export class Executor {
  #next = 0;
  #running = false;
  #blocked = false;
  #reason = "";
  /** @type {Command[]} */
  #commands;
  /** @type {Set<number>} */
  #sending = new Set();
  /** @type {Set<number>} */
  #awaited;

  /** @param {Command[]} commands */
  constructor(commands) {
    this.#commands = commands;
    this.#awaited = new Set(
      commands.filter(([kind]) => kind === "receive").map(([, edge]) => edge),
    );
    /** @type {"idle" | "active" | "stopping" | "finished" | "stopped"} */
    this.state = "idle";
  }

  /**
   * The actions that follow from `event`, in order.
   *
   * `RlxError` `executor.event` for an event that cannot happen now. After a cancel or a failure,
   * events of transfers that are still under way are taken and ignored.
   *
   * @param {Event} event
   * @returns {Action[]}
   */
  handle(event) {
    switch (event[0]) {
      case "started":
        this.#expect(event, "idle");
        this.state = "active";
        break;
      case "segment_done":
        this.#expect(event, "active", "stopping");
        if (!this.#running) throw unexpected(event, "no segment is running");
        this.#running = false;
        break;
      case "send_done":
      case "arrived":
        if (this.state === "stopping" || this.state === "stopped") return [];
        this.#expect(event, "active");
        this.#endTransfer(event);
        break;
      case "cancelled":
        return this.#stop(CANCELLED);
      case "failed":
        this.#running = false;
        return this.#stop(event[1]);
    }
    return this.#advance();
  }

  /** @param {["send_done" | "arrived", number]} event */
  #endTransfer(event) {
    const [kind, edge] = event;
    const pending = kind === "send_done" ? this.#sending : this.#awaited;
    if (!pending.delete(edge)) {
      const why = kind === "send_done" ? "is not being sent" : "is not awaited";
      throw unexpected(event, `this edge ${why}`);
    }
  }

  /** @returns {Action[]} */
  #advance() {
    if (this.state === "stopping") return this.#stop(this.#reason);
    /** @type {Action[]} */
    const actions = [];
    while (!this.#running && this.#next < this.#commands.length) {
      const command = this.#commands[this.#next];
      const [kind, operand] = command;
      if (kind === "wait" && (this.#sending.has(operand) || this.#awaited.has(operand))) {
        if (!this.#blocked) actions.push(command);
        this.#blocked = true;
        return actions;
      }
      this.#blocked = false;
      this.#next += 1;
      if (kind === "run") this.#running = true;
      else if (kind === "send") this.#sending.add(operand);
      if (kind !== "wait") actions.push(command);
    }
    if (!this.#running && !this.#sending.size && !this.#awaited.size) {
      this.state = "finished";
      actions.push(["finished"]);
    }
    return actions;
  }

  /**
   * @param {string} reason
   * @returns {Action[]}
   */
  #stop(reason) {
    if (this.state === "finished" || this.state === "stopped") return [];
    this.#reason ||= reason;
    if (this.#running) {
      this.state = "stopping";
      return [];
    }
    this.state = "stopped";
    return [["stopped", this.#reason]];
  }

  /**
   * @param {Event} event
   * @param {...string} allowed
   */
  #expect(event, ...allowed) {
    if (!allowed.includes(this.state)) throw unexpected(event, `the executor is ${this.state}`);
  }
}

/**
 * @param {Event} event
 * @param {string} why
 */
function unexpected(event, why) {
  return failure("executor.event", { why, event: event.join(" ") });
}
