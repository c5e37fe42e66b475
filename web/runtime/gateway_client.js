/**
 * A gateway as a peer: it runs the parts of a program that stand on its devices.
 *
 *     const gateway = new GatewayClient(location.href, { token });
 *     gateway.add({ device, ir, irDigest, taskGraph, weights });
 *     const session = await InferenceSession.create({ program, wasm, weights }, { peer: gateway });
 *
 * A connection (`gateway_connection.js`) that is lost fails the runs that are under way; the next run
 * opens another and has its shard loaded again.
 *
 * @typedef {import("./gateway_session.js").Welcomed} Welcomed
 * @typedef {import("./links.js").RunLink} RunLink
 * @typedef {import("./task_graph.js").TaskGraph} TaskGraph
 * @typedef {import("./trace.js").TraceEvent} TraceEvent
 * @typedef {import("./weights.js").WeightRanges} WeightRanges
 *
 * @typedef {object} RemotePart what the gateway is told of a program
 * @property {string} device of the gateway
 * @property {string} ir the placed IR, all of it
 * @property {string} irDigest
 * @property {string} taskGraph its document
 * @property {WeightRanges} weights where the bytes are that the gateway may ask for
 * @property {string} [model] digest of the model file, if the gateway may have it
 * @property {Record<string, number[]>} [values] what the model was imported with
 *
 * @typedef {object} RemoteRun what a gateway did in a run
 * @property {string} device
 * @property {TraceEvent[]} events on this side's clock
 * @property {number} offset nanoseconds that were taken off: the gateway's clock minus ours
 * @property {number} uncertainty nanoseconds, in either direction
 * @property {TaskGraph} graph
 *
 * @typedef {{state: "connecting" | "open" | "lost" | "closed", reason: string}} GatewayState
 * @typedef {object} GatewayOptions
 * @property {string | (() => string)} [token] asked for at every connection
 * @property {string} [client] a name for the gateway's log
 * @property {(state: GatewayState) => void} [onState]
 * @property {any} [WebSocket] where the platform has none
 *
 * @typedef {{part: RemotePart, graph: TaskGraph}} KnownPart
 */

import { abortable, failure, throwIfCancelled } from "./errors.js";
import { Connection } from "./gateway_connection.js";
import { readTaskGraph } from "./task_graph.js";

/** The peer; see the module. */
export class GatewayClient {
  /** @type {Map<string, KnownPart>} */
  #parts = new Map();
  /** @type {Promise<Connection> | null} */
  #connection = null;
  /** @type {import("./errors.js").RlxError | null} */
  #closed = null;

  /**
   * @param {string | URL} url of the gateway's site
   * @param {GatewayOptions} [options]
   */
  constructor(url, options = {}) {
    this.url = new URL(url);
    this.options = options;
    /**
     * What the gateway did in the last run that ended well.
     *
     * @type {RemoteRun | null}
     */
    this.lastRun = null;
  }

  /**
   * Make a program's other part known, before it runs. What `readTaskGraph` throws.
   *
   * @param {RemotePart} part
   * @returns {Promise<TaskGraph>}
   */
  async add(part) {
    const graph = await readTaskGraph(part.taskGraph);
    checkSame("the task graph and its IR", graph.irDigest, part.irDigest);
    this.#parts.set(graph.digest, { part, graph });
    return graph;
  }

  /**
   * Connect, where that has not been done; what the gateway says of itself.
   *
   * @param {AbortSignal} [signal]
   * @returns {Promise<Welcomed>}
   */
  async connect(signal) {
    return (await this.#connect(signal)).welcome;
  }

  /**
   * Begin a run of the other part of `program`: connected, loaded there, and told the sizes.
   *
   * `PeerError` `peer.lost` where no gateway answers, and what it refuses with.
   *
   * @param {import("./program.js").Program} program
   * @param {import("./dims.js").Symbols} symbols
   * @param {AbortSignal} [signal]
   * @returns {Promise<RunLink>}
   */
  async begin(program, symbols, signal) {
    const known = this.#parts.get(program.graphDigest);
    if (!known) throw failure("peer.id", { what: "part", found: program.graphDigest || "none" });
    checkSame("the program and its task graph", program.irDigest, known.graph.irDigest);
    const connection = await this.#connect(signal);
    const shard = await abortable(connection.shard(known), signal, "runs");
    throwIfCancelled(signal, "runs");
    const sizes = Object.entries(symbols).map(([name, value]) => [name, Number(value)]);
    return connection.run(shard, known, Object.fromEntries(sizes), (run) => {
      this.lastRun = run;
    });
  }

  /** Say goodbye; runs under way fail. */
  async close() {
    this.#closed = failure("peer.lost", { reason: "the connection was closed here" });
    const pending = this.#connection;
    this.#connection = null;
    const connection = await pending?.catch(() => null);
    connection?.close(this.#closed);
    this.#tell("closed", "");
  }

  /**
   * @param {AbortSignal} [signal]
   * @returns {Promise<Connection>}
   */
  #connect(signal) {
    if (this.#closed) throw this.#closed;
    if (!this.#connection) {
      this.#tell("connecting", "");
      const lose = (/** @type {Error} */ error) => {
        if (this.#connection !== opening) return;
        this.#connection = null;
        this.#tell("lost", error.message);
      };
      /** @type {Promise<Connection>} */
      const opening = Connection.open(this.url, this.options, lose);
      this.#connection = opening;
      opening.then(({ welcome }) => this.#tell("open", welcome.session), lose);
    }
    return abortable(this.#connection, signal, "runs");
  }

  /**
   * @param {GatewayState["state"]} state
   * @param {string} reason
   */
  #tell(state, reason) {
    this.options.onState?.({ state, reason });
  }
}

/**
 * @param {string} what
 * @param {string} found
 * @param {string} expected
 */
function checkSame(what, found, expected) {
  if (found !== expected) throw failure("digest.mismatch", { what, found, expected });
}
