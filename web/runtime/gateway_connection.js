/**
 * One connection to a gateway, from its opening to its end: a WebSocket for control and small
 * tensors, HTTP for large ones. What is said when is decided by `gateway_session.js`.
 *
 * @typedef {import("./gateway_client.js").GatewayOptions} GatewayOptions
 * @typedef {import("./gateway_client.js").KnownPart} KnownPart
 * @typedef {import("./gateway_client.js").RemotePart} RemotePart
 * @typedef {import("./gateway_client.js").RemoteRun} RemoteRun
 * @typedef {import("./gateway_session.js").GatewayEvent} GatewayEvent
 * @typedef {import("./gateway_session.js").Welcomed} Welcomed
 * @typedef {import("./links.js").RunLink} RunLink
 * @typedef {import("./trace.js").TraceEvent} TraceEvent
 * @typedef {Uint8Array<ArrayBuffer>} Bytes
 *
 * @typedef {{number: number, ready: import("./links.js").PromiseWithResolvers<number>,
 *   known: KnownPart}} Shard
 * @typedef {{mailbox: Mailbox, done: import("./links.js").PromiseWithResolvers<void>,
 *   known: KnownPart, onDone: (run: RemoteRun) => void}} Run
 */

import { failure, RlxError, toldError } from "./errors.js";
import { readRange } from "./files.js";
import { GatewaySession } from "./gateway_session.js";
import { Mailbox, resolvers } from "./links.js";
import { MAX_PAYLOAD, pieceRanges, SUBPROTOCOL, tokenSubprotocol } from "./protocol.js";
import { protocolFor } from "./task_graph.js";
import { Trace } from "./trace.js";
import { rangesOf } from "./weights.js";

const SHARDS = 4;
/** Readings of the gateway's clock: how many at first, and of how many the best counts. */
const FIRST_PINGS = 4;
const CLOCK_READINGS = 16;
/** Bytes that may wait in a socket. */
const WAITING = 1 << 20;
const PAUSE = 2;
const WATCH = 1000;

/** See the module. */
export class Connection {
  /** @type {GatewaySession} */
  #session;
  #opened = /** @type {import("./links.js").PromiseWithResolvers<void>} */ (resolvers());
  /** @type {Map<string, Shard>} */
  #shards = new Map();
  #shardCount = 0;
  /** @type {Map<number, Run>} */
  #runs = new Map();
  /** @type {{offset: number, uncertainty: number}[]} */
  #clocks = [];
  /** @type {RlxError | null} */
  #lost = null;
  #watched = performance.now();
  /** Aborts what is asked over HTTP when the connection has ended. */
  #ended = new AbortController();
  /** @type {Welcomed | null} */
  #welcome = null;
  /** @type {any} */
  #socket;
  /** @type {any} */
  #timer;

  /**
   * @param {URL} url
   * @param {GatewayOptions} options
   * @param {(error: RlxError) => void} onLost
   */
  constructor(url, options, onLost) {
    this.url = url;
    this.onLost = onLost;
    const address = new URL("offload", url);
    address.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    address.hash = address.search = "";
    this.#session = new GatewaySession(options.client ?? "page", Trace.now);
    const Socket = options.WebSocket ?? globalThis.WebSocket;
    const token = typeof options.token === "function" ? options.token() : options.token;
    const offered = token ? [SUBPROTOCOL, tokenSubprotocol(token)] : [SUBPROTOCOL];
    const socket = new Socket(address.href, offered);
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#flush();
    socket.onmessage = (/** @type {{data: ArrayBuffer}} */ { data }) => this.#receive(data);
    socket.onerror = () => {}; // its close comes next and says what is known
    socket.onclose = (/** @type {{code: number, reason: string}} */ { code, reason }) =>
      this.#closedBy(code, reason);
    this.#timer = setInterval(() => this.#watch(), WATCH);
    this.#timer.unref?.();
  }

  /**
   * A connection that has been welcomed and knows the gateway's clock.
   *
   * @param {URL} url
   * @param {GatewayOptions} options
   * @param {(error: RlxError) => void} onLost told once, also where it never opens
   */
  static async open(url, options, onLost) {
    const connection = new Connection(url, options, onLost);
    await connection.#opened.promise;
    return connection;
  }

  get welcome() {
    return /** @type {Welcomed} */ (this.#welcome);
  }

  // ---- what a client asks for -----------------------------------------------------------------

  /**
   * The number of the loaded shard of this part.
   *
   * @param {KnownPart} known
   * @returns {Promise<number>}
   */
  shard(known) {
    if (this.#lost) throw this.#lost;
    const { graph, part } = known;
    let shard = this.#shards.get(graph.digest);
    if (shard) {
      this.#shards.delete(graph.digest); // the last one used is the last one released
      this.#shards.set(graph.digest, shard);
      return shard.ready.promise;
    }
    this.#makeRoom();
    this.#shardCount += 1;
    shard = { number: this.#shardCount, ready: resolvers(), known };
    this.#shards.set(graph.digest, shard);
    const { device, model, values } = part;
    const asked = { device, ir: part.irDigest, graph: graph.digest, model, values };
    this.#session.askShard(shard.number, asked);
    this.#flush();
    return shard.ready.promise;
  }

  /**
   * Begin a run of a loaded shard.
   *
   * @param {number} shard
   * @param {KnownPart} known
   * @param {Record<string, number>} symbols
   * @param {(run: RemoteRun) => void} onDone
   * @returns {RunLink}
   */
  run(shard, known, symbols, onDone) {
    if (this.#lost) throw this.#lost;
    this.#session.ping(); // clocks drift
    const number = this.#session.run(shard, symbols);
    /** @type {Run} */
    const run = { mailbox: new Mailbox(), done: resolvers(), known, onDone };
    run.done.promise.catch(() => {}); // told to whoever waits for the end
    this.#runs.set(number, run);
    this.#flush();
    return {
      send: (edge, bytes) => this.#sendTensor(number, run, edge, bytes),
      receive: (edge) => run.mailbox.receive(edge),
      end: () => run.done.promise,
      abort: () => {
        if (!this.#runs.delete(number)) return;
        this.#session.cancel(number);
        this.#flush();
        const error = failure("run.cancelled");
        run.mailbox.fail(error);
        run.done.reject(error);
      },
    };
  }

  /** @param {RlxError} reason */
  close(reason) {
    this.#session.bye();
    this.#flush();
    this.#end(reason);
  }

  // ---- tensors --------------------------------------------------------------------------------

  /**
   * @param {number} number
   * @param {Run} run
   * @param {number} edge
   * @param {Bytes} bytes
   */
  async #sendTensor(number, run, edge, bytes) {
    const { edges } = run.known.graph;
    const carried = edges.find((item) => item.edge === edge);
    if (!carried) throw failure("edge.unknown", { edge, known: edges.map((item) => item.edge) });
    if (protocolFor(carried, bytes.length) !== "http") {
      this.#session.sendTensor(number, edge, bytes);
      await this.#flushSlowly();
      return;
    }
    const id = `t${number}-${edge}`;
    await this.#body(() => this.#fetch(id, { method: "PUT", body: bytes }));
    if (this.#lost) throw this.#lost;
    // Of a run that has ended meanwhile the gateway drops what it stored.
    this.#session.sendTensorAt(number, edge, id, bytes.length);
    this.#flush();
  }

  /**
   * @param {Run} run
   * @param {number} edge
   * @param {string} id
   * @param {number} nbytes
   */
  async #takeTensor(run, edge, id, nbytes) {
    try {
      run.mailbox.arrive(edge, await this.#body(() => this.#fetchBytes(id, nbytes)));
    } catch (error) {
      run.mailbox.fail(asPeerError(error));
    }
  }

  /**
   * The gateway keeps what it offers until it is asked for.
   *
   * @param {string} id
   */
  async #dropTensor(id) {
    try {
      await (await this.#fetch(id, { method: "GET" })).body?.cancel();
    } catch {
      // the connection is gone, and the tensor with it
    }
  }

  /**
   * A body of HTTP under way is a sign of life, as are its pieces.
   *
   * @template T
   * @param {() => Promise<T>} work
   */
  async #body(work) {
    this.#session.bodyBegins();
    try {
      return await work();
    } finally {
      this.#session.bodyEnds();
    }
  }

  /**
   * @param {string} id
   * @param {number} nbytes
   * @returns {Promise<Bytes>}
   */
  async #fetchBytes(id, nbytes) {
    const { body } = await this.#fetch(id, { method: "GET" });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (body).getReader();
    const bytes = new Uint8Array(nbytes);
    let done = 0;
    try {
      for (;;) {
        const { value } = await reader.read();
        if (value) this.#session.heard();
        else if (done === nbytes) return bytes;
        if (!value || done + value.length > nbytes) {
          throw failure("peer.lost", { reason: `a tensor of ${nbytes} bytes ended after ${done}` });
        }
        bytes.set(value, done);
        done += value.length;
      }
    } finally {
      reader.cancel().catch(() => {}); // of what is left, if anything
    }
  }

  /**
   * @param {string} id
   * @param {RequestInit} request
   */
  async #fetch(id, request) {
    const headers = { authorization: `Bearer ${this.welcome.ticket}` };
    const address = new URL(`tensors/${id}`, this.url);
    address.hash = address.search = "";
    let response;
    try {
      const { signal } = this.#ended;
      response = await fetch(address, { ...request, headers, signal, cache: "no-store" });
    } catch (error) {
      throw asPeerError(error);
    }
    if (response.ok) return response;
    const { code, message } = await response.json().catch(() => ({}));
    throw toldError(code ?? "peer.lost", message ?? `HTTP ${response.status}`, { where: "gateway" });
  }

  // ---- shards ---------------------------------------------------------------------------------

  #makeRoom() {
    const most = Math.max(1, Math.min(SHARDS, this.welcome.limits.shards ?? SHARDS));
    const busy = new Set([...this.#runs.values()].map(({ known }) => known.graph.digest));
    for (const [digest, shard] of this.#shards) {
      if (this.#shards.size < most) return;
      if (busy.has(digest)) continue;
      this.#shards.delete(digest);
      this.#session.release(shard.number);
      shard.ready.reject(failure("peer.id", { what: "shard", found: "released for another" }));
    }
  }

  /**
   * @param {Shard} shard
   * @param {string[]} digests
   */
  async #upload(shard, digests) {
    try {
      for (const digest of digests) await this.#uploadOne(shard.known.part, digest);
    } catch (error) {
      if (this.#lost) return;
      this.#dropShard(shard, error);
      this.#session.release(shard.number);
      this.#flush();
    }
  }

  /**
   * @param {RemotePart} part
   * @param {string} digest
   */
  async #uploadOne({ ir, irDigest, weights }, digest) {
    const put = async (/** @type {number} */ offset, /** @type {number} */ total, /** @type {Bytes} */ piece) => {
      this.#session.uploadPiece(digest, offset, total, piece);
      await this.#flushSlowly();
    };
    if (digest === irDigest) {
      const bytes = new TextEncoder().encode(ir);
      for (const [begin, end] of pieceRanges(bytes.length)) {
        await put(begin, bytes.length, bytes.subarray(begin, end));
      }
      return;
    }
    const ranges = rangesOf(weights, digest);
    if (!ranges.length) throw failure("program.constant", { found: "none", digest, nbytes: "some" });
    const total = ranges.reduce((sum, { length }) => sum + length, 0);
    let done = 0;
    for (const { file, offset, length } of ranges) {
      for await (const piece of readRange(weights.files[file], offset, offset + length, "the weights")) {
        for (let begin = 0; begin < piece.length; begin += MAX_PAYLOAD) {
          const part = piece.subarray(begin, begin + MAX_PAYLOAD);
          await put(done, total, part);
          done += part.length;
        }
      }
    }
    if (!total) await put(0, 0, new Uint8Array(0));
    else if (done < total) throw failure("weights.short", { found: done, expected: total });
  }

  /**
   * @param {Shard} shard
   * @param {unknown} error
   */
  #dropShard(shard, error) {
    this.#shards.delete(shard.known.graph.digest);
    shard.ready.reject(error);
  }

  // ---- frames ---------------------------------------------------------------------------------

  /** @param {ArrayBuffer} data */
  #receive(data) {
    try {
      for (const event of this.#session.received(new Uint8Array(data))) this.#handle(event);
      this.#flush();
    } catch (error) {
      this.#end(asPeerError(error));
    }
  }

  /** @param {GatewayEvent} event */
  #handle(event) {
    switch (event.kind) {
      case "welcomed":
        this.#welcome = event;
        for (let i = 0; i < FIRST_PINGS; i += 1) this.#session.ping();
        break;
      case "clock":
        this.#clocks.push(event);
        if (this.#clocks.length === FIRST_PINGS) this.#opened.resolve();
        if (this.#clocks.length > CLOCK_READINGS) this.#clocks.shift();
        break;
      case "needed": {
        const shard = this.#shardOf(event.shard);
        if (shard) this.#upload(shard, event.digests);
        break;
      }
      case "ready":
        this.#shardOf(event.shard)?.ready.resolve(event.shard);
        break;
      case "arrived":
        this.#runs.get(event.run)?.mailbox.arrive(event.edge, event.data);
        break;
      case "offered": {
        const run = this.#runs.get(event.run);
        if (run) this.#takeTensor(run, event.edge, event.id, event.nbytes);
        else this.#dropTensor(event.id);
        break;
      }
      case "done":
        this.#done(event);
        break;
      case "cancelled":
        this.#failRun(event.run, failure("run.cancelled"));
        break;
      case "refused":
        this.#refused(event);
        break;
      case "ended":
        this.#end(failure("peer.lost", { reason: event.reason }));
    }
  }

  /** @param {import("./gateway_session.js").Done} event */
  #done({ run: number, device, events }) {
    const run = this.#runs.get(number);
    if (!run) return;
    this.#runs.delete(number);
    const { offset, uncertainty } = this.#clocks.reduce((a, b) =>
      b.uncertainty < a.uncertainty ? b : a,
    );
    const rows = events.map((row) => remoteEvent(row, offset));
    run.onDone({ device, events: rows, offset, uncertainty, graph: run.known.graph });
    run.done.resolve();
  }

  /** @param {import("./gateway_session.js").Refused} event */
  #refused({ error, run, shard, fatal }) {
    if (fatal) {
      this.#end(error);
      return;
    }
    if (run >= 0) this.#failRun(run, error);
    const found = shard >= 0 ? this.#shardOf(shard) : undefined;
    if (found) this.#dropShard(found, error);
  }

  /**
   * @param {number} number
   * @param {RlxError} error
   */
  #failRun(number, error) {
    const run = this.#runs.get(number);
    if (!run) return;
    this.#runs.delete(number);
    run.mailbox.fail(error);
    run.done.reject(error);
  }

  /** @param {number} number */
  #shardOf(number) {
    return [...this.#shards.values()].find((shard) => shard.number === number);
  }

  #flush() {
    if (this.#lost || this.#socket.readyState !== 1) return;
    for (const bytes of this.#session.take()) this.#socket.send(bytes);
  }

  /** As `#flush`, at the pace at which the socket takes bytes. */
  async #flushSlowly() {
    for (const bytes of this.#session.take()) {
      while (!this.#lost && this.#socket.bufferedAmount > WAITING) {
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
      if (this.#lost) throw this.#lost;
      this.#socket.send(bytes);
    }
  }

  // ---- the end --------------------------------------------------------------------------------

  /** Silence; time in which this thread itself was held up counts against nobody. */
  #watch() {
    const now = performance.now();
    const late = Math.max(0, now - this.#watched - 2 * WATCH);
    this.#watched = now;
    try {
      this.#session.tick(late * 1e6);
    } catch (error) {
      this.#end(asPeerError(error));
    }
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  async #closedBy(code, reason) {
    if (this.#lost) return;
    if (this.#welcome) {
      this.#end(failure("peer.lost", { reason: reason || `code ${code}` }));
      return;
    }
    // Browsers hide why a handshake failed.
    const answers = await fetch(new URL("healthz", this.url)).then(
      ({ ok }) => ok,
      () => false,
    );
    const why = answers
      ? "the gateway is there but refuses: no offloading, a wrong token, a foreign origin, or too many clients"
      : "no gateway answers, or it does not know this page's origin";
    this.#end(failure("peer.lost", { reason: why }));
  }

  /** @param {RlxError} error */
  #end(error) {
    if (this.#lost) return;
    this.#lost = error;
    this.#ended.abort(error);
    clearInterval(this.#timer);
    this.#opened.reject(error);
    for (const shard of this.#shards.values()) {
      shard.ready.promise.catch(() => {}); // there may be nobody who waits
      shard.ready.reject(error);
    }
    for (const number of [...this.#runs.keys()]) this.#failRun(number, error);
    this.#socket.close();
    this.onLost(error);
  }
}

/**
 * A row of the gateway's trace, on this side's clock.
 *
 * @param {(string | number)[]} row the fields of `TraceEvent`, in order
 * @param {number} offset
 * @returns {TraceEvent}
 */
function remoteEvent(row, offset) {
  const [kind, device, phase, start, duration, name, begin, end, edge, nbytes] = /** @type {any} */ (row);
  return { kind, device, phase, start: start - offset, duration, name, begin, end, edge, nbytes };
}

/** @param {unknown} error */
function asPeerError(error) {
  if (error instanceof RlxError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return failure("peer.lost", { reason }, { cause: error });
}
