/**
 * Requests to a worker and their answers. Both sides number requests; an answer of kind `failed`
 * rejects, `progress` is passed on, `ask` is a question of the worker, anything else resolves.
 *
 * @typedef {object} RequestOptions
 * @property {AbortSignal} [signal]
 * @property {(progress: any) => void} [onProgress]
 * @property {Transferable[]} [transfer]
 * @typedef {{resolve: (answer: any) => void, reject: (error: unknown) => void,
 *   onProgress?: (progress: any) => void}} Pending
 */

import { Cancelled, Report, throwIfCancelled } from "./reports.js";

/** One worker, started when it is needed and again after it was ended. */
export class WorkerClient {
  /** @type {Worker | null} */
  #worker = null;
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #last = 0;

  /**
   * @param {URL} url
   * @param {{what: string, interruptible: boolean, onAsk?: (ask: any) => Promise<any>,
   *   onNotice?: (notice: any) => void}} options
   *   `what` for messages; an interruptible worker is told of a cancel, another is ended; a notice
   *   belongs to no request
   */
  constructor(url, options) {
    this.url = url;
    this.options = options;
  }

  /**
   * @param {Record<string, unknown>} message
   * @param {RequestOptions} [options]
   * @returns {Promise<any>}
   */
  request(message, { signal, onProgress, transfer = [] } = {}) {
    throwIfCancelled(signal);
    const worker = this.#start();
    this.#last += 1;
    const id = this.#last;
    const stop = () => {
      if (this.options.interruptible) worker.postMessage({ kind: "cancel", target: id });
      else this.terminate();
    };
    signal?.addEventListener("abort", stop, { once: true });
    const answered = new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, onProgress });
      worker.postMessage({ id, ...message }, transfer);
    });
    return answered.finally(() => signal?.removeEventListener("abort", stop));
  }

  /** End the worker; what is pending is cancelled. */
  terminate() {
    this.#worker?.terminate();
    this.#worker = null;
    this.#fail(new Cancelled());
  }

  /** @param {Report} error */
  #fail(error) {
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of pending) reject(error);
  }

  #start() {
    if (this.#worker) return this.#worker;
    const worker = new Worker(this.url, { type: "module" });
    worker.addEventListener("message", ({ data }) => this.#receive(worker, data));
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      if (worker !== this.#worker) return;
      worker.terminate();
      this.#worker = null;
      const reason = event.message ? `: ${event.message}` : ", its code could not be loaded";
      this.#fail(new Report("page.worker", `${this.options.what} has ended${reason}`));
    });
    this.#worker = worker;
    return worker;
  }

  /**
   * @param {Worker} worker
   * @param {any} data
   */
  #receive(worker, data) {
    if (worker !== this.#worker) return;
    const { id, kind, ...rest } = data;
    if (kind === "ask") {
      this.#answer(worker, id, rest);
      return;
    }
    if (kind === "notice") this.options.onNotice?.(rest);
    const pending = this.#pending.get(id);
    if (!pending) return;
    if (kind === "progress") {
      pending.onProgress?.(rest);
      return;
    }
    this.#pending.delete(id);
    if (kind === "failed") {
      const isCancel = rest.code === "session.cancelled" || rest.code === "page.cancelled";
      pending.reject(isCancel ? new Cancelled() : new Report(rest.code, rest.message, rest.excerpt));
    } else pending.resolve(rest);
  }

  /**
   * @param {Worker} worker
   * @param {number} id
   * @param {any} ask
   */
  async #answer(worker, id, ask) {
    try {
      if (!this.options.onAsk) throw new Report("page.worker", "nobody answers questions here");
      worker.postMessage({ kind: "answer", id, value: await this.options.onAsk(ask) });
    } catch (error) {
      const { code, message, excerpt } = /** @type {Report} */ (error);
      worker.postMessage({ kind: "answer", id, failed: { code, message, excerpt } });
    }
  }
}
