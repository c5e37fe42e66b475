/**
 * Links: what carries the edges of one run between this device and others.
 *
 * @typedef {import("./program.js").Program} Program
 * @typedef {import("./dims.js").Symbols} Symbols
 * @typedef {Uint8Array<ArrayBuffer>} Bytes
 * @typedef {object} RunLink the edges of one run
 * @property {(edge: number, bytes: Bytes) => Promise<void>} send resolves when the bytes have left;
 *   they may be kept
 * @property {(edge: number) => Promise<Bytes>} receive the bytes of an edge, once
 * @property {() => Promise<void>} end resolves when the other devices have ended the run too
 * @property {() => void} abort gives the run up; calling it after `end` does nothing
 * @typedef {object} Peer whoever runs the parts of other devices
 * @property {(program: Program, symbols: Symbols, signal?: AbortSignal) => Promise<RunLink>} begin
 *   begins one run of the other parts of `program`
 */

import { failure } from "./errors.js";

/** The edges that one run receives: bytes may come before they are asked for, or after. */
export class Mailbox {
  /** @type {Map<number, PromiseWithResolvers<Bytes>>} */
  #edges = new Map();
  /** @type {Set<number>} */
  #arrived = new Set();
  /** @type {unknown} */
  #error;

  /**
   * @param {number} edge
   * @returns {Promise<Bytes>}
   */
  receive(edge) {
    return this.#slot(edge).promise;
  }

  /**
   * `InputError` `edge.unknown` for an edge that has arrived before.
   *
   * @param {number} edge
   * @param {Bytes} bytes
   */
  arrive(edge, bytes) {
    if (this.#arrived.has(edge)) throw failure("edge.unknown", { edge, known: "each edge once" });
    this.#arrived.add(edge);
    this.#slot(edge).resolve(bytes);
  }

  /**
   * Whoever waits, now or later, gets the error; the first one counts.
   *
   * @param {unknown} error
   */
  fail(error) {
    this.#error ??= error;
    for (const { reject } of this.#edges.values()) reject(this.#error);
  }

  /** @param {number} edge */
  #slot(edge) {
    let slot = this.#edges.get(edge);
    if (!slot) {
      slot = resolvers();
      this.#edges.set(edge, slot);
      slot.promise.catch(() => {}); // told to whoever asks for the edge
      if (this.#error !== undefined) slot.reject(this.#error);
    }
    return slot;
  }
}

/**
 * A promise with its resolving functions.
 *
 * @template T
 * @returns {PromiseWithResolvers<T>}
 */
export function resolvers() {
  /** @type {any} */
  const found = {};
  found.promise = new Promise((resolve, reject) => Object.assign(found, { resolve, reject }));
  return found;
}

/**
 * @template T
 * @typedef {{promise: Promise<T>, resolve: (value: T | PromiseLike<T>) => void,
 *   reject: (reason?: unknown) => void}} PromiseWithResolvers
 */
