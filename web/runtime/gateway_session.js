/**
 * The client's side of the protocol as a state machine without I/O; the machine of
 * `rlx_edge/gateway/client.py`.
 *
 *            welcome              bye, fatal error
 *     new ───────────────▶ open ───────────────────▶ closed
 *
 * Calls and frames go in, events come out; `take` gives the frames to send. A run's tensors are
 * named by edges; which protocol carries one is the task graph's word.
 *
 * @typedef {import("./protocol.js").Frame} Frame
 * @typedef {import("./protocol.js").KindName} KindName
 * @typedef {{kind: "welcomed", session: string, ticket: string, devices: string[],
 *   models: string[], limits: Record<string, number>, heartbeatMs: number}} Welcomed
 * @typedef {{kind: "needed", shard: number, digests: string[]}} Needed
 * @typedef {{kind: "ready", shard: number, kernels: string, resident: number}} Ready
 * @typedef {{kind: "arrived", run: number, edge: number, data: Uint8Array<ArrayBuffer>}} Arrived
 * @typedef {{kind: "offered", run: number, edge: number, id: string, nbytes: number}} Offered
 * @typedef {{kind: "done", run: number, device: string, events: (string | number)[][]}} Done
 * @typedef {{kind: "cancelled", run: number}} Cancelled
 * @typedef {{kind: "refused", error: import("./errors.js").RlxError, run: number, shard: number,
 *   fatal: boolean}} Refused
 * @typedef {{kind: "clock", offset: number, uncertainty: number}} ClockRead the gateway's clock
 *   minus ours in nanoseconds, give or take `uncertainty`
 * @typedef {{kind: "ended", reason: string}} Ended
 * @typedef {Welcomed | Needed | Ready | Arrived | Offered | Done | Cancelled | Refused | ClockRead
 *   | Ended} GatewayEvent
 */

import { failure, toldError } from "./errors.js";
import { Liveness } from "./liveness.js";
import { decode, encode, frame, pieceRanges, Pieces, VERSION } from "./protocol.js";

const MAX_TENSOR = 2 ** 32;
const CAPABILITIES = ["websocket", "http"];
const SECOND = 1e9;
const WELCOME_WITHIN = 10 * SECOND;
/** How many heartbeats may be missed. */
const MISSED = 10;
/** How long the gateway may say nothing while a body of HTTP is under way. */
const SILENT_IN_BODY = 60 * SECOND;

/** One connection's state; `clock` gives nanoseconds of the clock that traces count in. */
export class GatewaySession {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  #out = [];
  /** @type {Map<number, {ir: string, graph: string}>} */
  #shards = new Map();
  /** @type {Map<number, Map<number, Pieces>>} */
  #runs = new Map();
  #lastRun = -1;
  #clock;
  #liveness;

  /**
   * @param {string} client
   * @param {() => number} clock
   */
  constructor(client, clock) {
    this.#clock = clock;
    this.#liveness = new Liveness(clock(), WELCOME_WITHIN, SILENT_IN_BODY);
    /** @type {"new" | "open" | "closed"} */
    this.state = "new";
    this.#send("HELLO", { versions: [VERSION], client, capabilities: CAPABILITIES });
  }

  /** Frames to send, in order. */
  take() {
    const out = this.#out;
    this.#out = [];
    return out;
  }

  // ---- calls ----------------------------------------------------------------------------------

  /**
   * Ask for a shard. `model` is the digest of a model file and `values` what it was imported with,
   * where the gateway may have it.
   *
   * @param {number} shard
   * @param {{device: string, ir: string, graph: string, model?: string,
   *   values?: Record<string, number[]>}} asked digests of the IR and of the task graph
   */
  askShard(shard, { device, ir, graph, model = "", values = {} }) {
    this.#checkOpen();
    this.#shards.set(shard, { ir, graph });
    this.#send("SHARD", { shard, device, ir, graph, model, values });
  }

  /**
   * One piece of bytes that the gateway asked for; pieces follow each other.
   *
   * @param {string} digest
   * @param {number} offset
   * @param {number} total
   * @param {Uint8Array<ArrayBuffer>} piece
   */
  uploadPiece(digest, offset, total, piece) {
    this.#checkOpen();
    this.#send("BLOB", { digest, offset, total }, piece);
  }

  /**
   * Begin a run.
   *
   * @param {number} shard
   * @param {Record<string, number>} symbols
   * @returns {number} its number
   */
  run(shard, symbols) {
    this.#checkOpen();
    this.#lastRun += 1;
    const run = this.#lastRun;
    this.#runs.set(run, new Map());
    const graph = this.#shards.get(shard)?.graph ?? "";
    this.#send("RUN", { run, shard, graph, symbols });
    return run;
  }

  /**
   * The bytes of an edge, in pieces.
   *
   * @param {number} run
   * @param {number} edge
   * @param {Uint8Array<ArrayBuffer>} data
   */
  sendTensor(run, edge, data) {
    this.#checkOpen();
    const total = data.length;
    for (const [offset, end] of pieceRanges(total)) {
      this.#send("TENSOR", { run, edge, offset, total }, data.subarray(offset, end));
    }
  }

  /**
   * The bytes of an edge were stored over HTTP under `id`.
   *
   * @param {number} run
   * @param {number} edge
   * @param {string} id
   * @param {number} total
   */
  sendTensorAt(run, edge, id, total) {
    this.#checkOpen();
    this.#send("TENSOR_AT", { run, edge, id, total });
  }

  /**
   * Stop a run; answered by `cancelled`, or by what came before.
   *
   * @param {number} run
   */
  cancel(run) {
    if (this.state === "open" && this.#runs.has(run)) this.#send("CANCEL", { run });
  }

  /**
   * Free a shard.
   *
   * @param {number} shard
   */
  release(shard) {
    this.#checkOpen();
    this.#shards.delete(shard);
    this.#send("RELEASE", { shard });
  }

  /** Ask for the gateway's clock; answered by `clock`. */
  ping() {
    this.#checkOpen();
    this.#send("PING", { sent: this.#clock() });
  }

  /** Say goodbye; the gateway closes. */
  bye() {
    if (this.state !== "open") return;
    this.#send("BYE", { reason: "done" });
    this.state = "closed";
  }

  // ---- whether the gateway is there -----------------------------------------------------------

  /** The gateway gave or took a piece of a body. */
  heard() {
    this.#liveness.heard(this.#clock());
  }

  /** A body of HTTP is under way, in either direction. */
  bodyBegins() {
    this.#liveness.bodyBegins(this.#clock());
  }

  /** That body is through, or given up. */
  bodyEnds() {
    this.#liveness.bodyEnds(this.#clock());
  }

  /**
   * Time has passed, `late` nanoseconds of it without this side doing anything. `PeerError`
   * `peer.silent` where nothing was heard for too long.
   *
   * @param {number} [late]
   */
  tick(late = 0) {
    this.#liveness.excuse(late);
    const silent = this.#liveness.silence(this.#clock());
    if (silent === null || this.state === "closed") return;
    const seconds = (silent / SECOND).toFixed(1);
    throw failure("peer.silent", { seconds, allowed: this.#liveness.limit() / SECOND });
  }

  // ---- frames ---------------------------------------------------------------------------------

  /**
   * The events of one message; `PeerError` where the gateway breaks the protocol.
   *
   * @param {Uint8Array<ArrayBuffer>} bytes
   * @returns {GatewayEvent[]}
   */
  received(bytes) {
    this.#liveness.heard(this.#clock());
    const message = decode(bytes);
    const { kind, control } = message;
    const isFirst = kind === "WELCOME" || kind === "ERROR";
    const handle = HANDLERS[kind];
    if (!handle || (this.state === "new" && !isFirst)) {
      throw failure("peer.state", { found: kind, allowed: "what a gateway sends" });
    }
    const event = handle(this, control, message.payload);
    return event ? [event] : [];
  }

  /** @param {Record<string, any>} control */
  welcome({ version, session, ticket, devices, models, limits, heartbeat_ms: heartbeatMs }) {
    if (version !== VERSION) throw failure("peer.version", { found: version, allowed: VERSION });
    this.state = "open";
    this.#liveness.allowed = (MISSED * heartbeatMs * SECOND) / 1000;
    const kind = /** @type {const} */ ("welcomed");
    return { kind, session, ticket, devices, models, limits, heartbeatMs };
  }

  /**
   * @param {Record<string, any>} control
   * @returns {Ready}
   */
  ready({ shard, ir, graph, kernels, resident }) {
    const asked = this.#shards.get(shard) ?? { ir: "", graph: "" };
    for (const [what, found, expected] of [
      ["the gateway's shard and its IR", ir, asked.ir],
      ["the gateway's shard and its task graph", graph, asked.graph],
    ]) {
      if (found !== expected) throw failure("digest.mismatch", { what, found, expected });
    }
    return { kind: "ready", shard, kernels, resident };
  }

  /**
   * @param {Record<string, any>} control
   * @param {Uint8Array<ArrayBuffer>} payload
   * @returns {Arrived | null}
   */
  tensor({ run, edge, offset, total }, payload) {
    const incoming = this.#runs.get(run);
    if (!incoming) return null;
    const pieces = incoming.get(edge) ?? new Pieces(`edge ${edge}`, total, MAX_TENSOR);
    incoming.set(edge, pieces);
    const data = pieces.add(offset, total, payload);
    return data && { kind: "arrived", run, edge, data };
  }

  /**
   * @param {Record<string, any>} control
   * @returns {Offered | null}
   */
  tensorAt({ run, edge, id, total: nbytes }) {
    return this.#runs.has(run) ? { kind: "offered", run, edge, id, nbytes } : null;
  }

  /** @param {number} run */
  endRun(run) {
    this.#runs.delete(run);
  }

  /**
   * @param {Record<string, any>} control
   * @returns {Refused}
   */
  refused({ code, what, found, allowed, where, run, shard, fatal }) {
    this.endRun(run);
    if (fatal) this.state = "closed";
    const error = toldError(code, what, {
      found: found || undefined,
      allowed: allowed || undefined,
      where: where || "gateway",
    });
    return { kind: "refused", error, run, shard, fatal: Boolean(fatal) };
  }

  /** @param {number} sent */
  pong(sent) {
    const received = this.#clock();
    this.#send("PONG", { sent, received, replied: this.#clock() });
  }

  /**
   * @param {Record<string, any>} control
   * @returns {ClockRead}
   */
  clock({ sent, received, replied }) {
    const now = this.#clock();
    const trip = now - sent - (replied - received);
    return {
      kind: "clock",
      offset: Math.floor((received - sent + (replied - now)) / 2),
      uncertainty: Math.floor(Math.max(0, trip) / 2),
    };
  }

  /**
   * @param {KindName} kind
   * @param {Record<string, unknown>} fields
   * @param {Uint8Array<ArrayBuffer>} [payload]
   */
  #send(kind, fields, payload) {
    this.#out.push(encode(frame(kind, fields, payload)));
  }

  #checkOpen() {
    if (this.state === "open") return;
    throw failure("peer.state", { found: `a call while ${this.state}`, allowed: "once welcomed" });
  }
}

/**
 * @type {Partial<Record<KindName, (session: GatewaySession, control: Record<string, any>,
 *   payload: Uint8Array<ArrayBuffer>) => GatewayEvent | null | void>>}
 */
const HANDLERS = {
  WELCOME: (session, control) => session.welcome(control),
  NEED: (_, { shard, digests }) => ({ kind: "needed", shard, digests }),
  READY: (session, control) => session.ready(control),
  TENSOR: (session, control, payload) => session.tensor(control, payload),
  TENSOR_AT: (session, control) => session.tensorAt(control),
  DONE: (session, { run, device, events }) => {
    session.endRun(run);
    return { kind: "done", run, device, events };
  },
  CANCELLED: (session, { run }) => {
    session.endRun(run);
    return { kind: "cancelled", run };
  },
  ERROR: (session, control) => session.refused(control),
  PING: (session, { sent }) => session.pong(sent),
  PONG: (session, control) => session.clock(control),
  BYE: (session, { reason }) => {
    session.state = "closed";
    return { kind: "ended", reason };
  },
};
