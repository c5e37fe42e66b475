/**
 * The compiler's worker as the page calls it. What was compiled is kept in the browser's cache
 * storage, under the digests of model and compiler, so that a second visit needs no Python.
 *
 * @typedef {import("../compiler/worker.js").Description} Description
 * @typedef {import("../compiler/worker.js").CompiledAnswer} CompiledAnswer
 * @typedef {import("./worker_client.js").RequestOptions} RequestOptions
 * @typedef {{values?: Record<string, number[]>, shapes?: Record<string, number[]>}} Decisions
 * @typedef {{device: "local" | "remote" | "split", after: string, worker: string}} Placement
 */

import { digestOf, fetchJson } from "./download.js";
import { WorkerClient } from "./worker_client.js";

const STORE = "rlx-compiled-2";
const KEPT = 24;
/** Larger models are not hashed, which would need them in memory at once. */
const HASHED = 256 << 20;

export class CompilerClient {
  #worker = new WorkerClient(new URL("../compiler/worker.js", import.meta.url), {
    what: "the compiler",
    interruptible: false,
  });

  /** End the worker; the next request starts another. */
  terminate() {
    this.#worker.terminate();
  }

  /**
   * The inputs that a model file declares.
   *
   * @param {Blob} file
   * @param {string} name
   * @param {RequestOptions} [options]
   * @returns {Promise<Description>}
   */
  async describe(file, name, options = {}) {
    const key = await keyOf(file, { describe: name }, options.signal);
    const kept = key && (await load(key));
    if (kept) return kept.head;
    const found = await this.#ask({ kind: "describe", file, name }, options);
    if (key) await save(key, found, []);
    return found;
  }

  /**
   * @param {Blob} file
   * @param {string} name
   * @param {Decisions} decisions
   * @param {Placement} placement
   * @param {RequestOptions} [options]
   * @returns {Promise<CompiledAnswer & {cached: boolean}>}
   */
  async compile(file, name, decisions, placement, options = {}) {
    const { values = {}, shapes = {} } = decisions;
    const asked = { values, shapes, ...placement };
    const key = await keyOf(file, { compile: name, ...asked }, options.signal);
    const kept = key && (await load(key));
    if (kept) {
      const [kernels, extra] = kept.parts;
      return { ...kept.head, kernels, extra, cached: true };
    }
    const found = await this.#ask({ kind: "compile", file, name, ...asked }, options);
    const { kernels, extra, ...head } = found;
    if (key) await save(key, head, [kernels, extra]);
    return { ...found, cached: false };
  }

  /**
   * A worker whose start failed cannot be used again.
   *
   * @param {Record<string, unknown>} request
   * @param {RequestOptions} options
   */
  async #ask(request, options) {
    try {
      return await this.#worker.request(request, options);
    } catch (error) {
      const code = String(/** @type {any} */ (error).code);
      if (code.startsWith("site.") || code === "compiler.failed") this.terminate();
      throw error;
    }
  }
}

/** @type {Promise<string> | undefined} */
let compiler;
/** @type {WeakMap<Blob, Promise<string | null>>} */
const digests = new WeakMap();

/**
 * The cache's key of a request; `null` where nothing is kept.
 *
 * @param {Blob} file
 * @param {Record<string, unknown>} request
 * @param {AbortSignal} [signal]
 */
async function keyOf(file, request, signal) {
  if (!globalThis.caches || file.size > HASHED) return null;
  compiler ??= fetchJson("site.json", signal).then((site) => String(site.compiler));
  compiler.catch(() => (compiler = undefined));
  if (!digests.has(file)) digests.set(file, digestOf(file));
  const digest = await digests.get(file);
  if (!digest) return null;
  const text = JSON.stringify([await compiler, digest, request]);
  return `compiled/${(await digestOf(new Blob([text])))?.slice("sha256:".length)}`;
}

/**
 * @param {string} key
 * @returns {Promise<{head: any, parts: Uint8Array<ArrayBuffer>[]} | null>}
 */
async function load(key) {
  try {
    const response = await (await caches.open(STORE)).match(key);
    if (!response) return null;
    const bytes = new Uint8Array(await response.arrayBuffer());
    const sizes = JSON.parse(response.headers.get("x-parts") ?? "[]");
    let start = 0;
    const [head, ...parts] = sizes.map((/** @type {number} */ size) => {
      start += size;
      return bytes.slice(start - size, start);
    });
    return { head: JSON.parse(new TextDecoder().decode(head)), parts };
  } catch {
    return null; // a cache that cannot be read is no cache
  }
}

/**
 * @param {string} key
 * @param {unknown} head
 * @param {Uint8Array<ArrayBuffer>[]} parts
 */
async function save(key, head, parts) {
  try {
    const store = await caches.open(STORE);
    const all = [new TextEncoder().encode(JSON.stringify(head)), ...parts];
    const headers = { "x-parts": JSON.stringify(all.map((part) => part.length)) };
    await store.put(key, new Response(new Blob(all), { headers }));
    const keys = await store.keys();
    for (const old of keys.slice(0, Math.max(0, keys.length - KEPT))) await store.delete(old);
  } catch {
    // full or forbidden storage: the next visit compiles again
  }
}
