/**
 * The one error hierarchy, as in Python: `code` is stable and is what programs look at, the message
 * is one line for people. Texts come from the table that Python shares (`messages.js`).
 */

import { MESSAGES } from "./messages.js";

/**
 * A failure that the user can act on: what happened, what was found, what is allowed and where.
 */
export class RlxError extends Error {
  /**
   * @param {string} code names the rule, such as `input.shape`
   * @param {string} what one sentence
   * @param {{found?: string, allowed?: string, where?: string, hint?: string, cause?: unknown}}
   *   [details]
   */
  constructor(code, what, details = {}) {
    const { found, allowed, where, hint, cause } = details;
    let text = where ? `${where}: ${what}` : what;
    if (found) text += `; found ${found}`;
    if (allowed) text += `; allowed: ${allowed}`;
    if (hint) text += `; ${hint}`;
    super(text, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.what = what;
    this.found = found;
    this.allowed = allowed;
    this.where = where;
    this.hint = hint;
  }
}

/** A model, program or bundle that cannot be read. */
export class ModelError extends RlxError {}

/** A feed with the wrong name, shape, dtype or value. */
export class InputError extends RlxError {}

/** Sizes or values outside what a compiled program covers. */
export class GuardError extends RlxError {}

/** IR, kernels, plan or weights that do not belong together. */
export class DigestError extends RlxError {}

/** A device that failed or was closed. */
export class DeviceError extends RlxError {}

/** Memory, size or time beyond what is allowed. */
export class LimitError extends RlxError {}

/** What a peer sent or did breaks the protocol, or it is not allowed to ask. */
export class PeerError extends RlxError {}

/** @type {Record<string, typeof RlxError>} */
const KINDS = {
  RlxError,
  ModelError,
  InputError,
  GuardError,
  DigestError,
  DeviceError,
  LimitError,
  PeerError,
};

/**
 * The error of `MESSAGES[key]` with its holes filled, to be thrown.
 *
 * @param {string} key the code, with `:` and a word where one code has several texts
 * @param {Record<string, unknown>} [values] what stands in the holes; lists are joined
 * @param {{where?: string, cause?: unknown}} [details]
 * @returns {RlxError}
 */
export function failure(key, values = {}, details = {}) {
  const [kind, what, found, allowed, hint] = MESSAGES[key];
  const fill = (/** @type {string | undefined} */ text) =>
    text?.replace(/\{(\w+)\}/g, (_, name) => shown(values[name]));
  return new KINDS[kind](key.split(":")[0], fill(what) ?? "", {
    found: fill(found),
    allowed: fill(allowed),
    hint: fill(hint),
    ...details,
  });
}

/**
 * The error that a peer told, of the class that its code has here.
 *
 * @param {string} code
 * @param {string} what
 * @param {{found?: string, allowed?: string, where?: string}} details
 * @returns {RlxError}
 */
export function toldError(code, what, details) {
  const key = Object.keys(MESSAGES).find((name) => name.split(":")[0] === code);
  const kind = key === undefined ? RlxError : KINDS[MESSAGES[key][0]];
  return new kind(code, what, details);
}

/**
 * A value as messages show it: the items of a list with commas between them.
 *
 * @param {unknown} value
 * @returns {string}
 */
function shown(value) {
  return Array.isArray(value) ? value.map(shown).join(", ") : String(value);
}

/** @typedef {"is fetched" | "is compiled" | "is loaded" | "runs"} Doing */

/**
 * The error of work that nobody wants any more. Its name is `AbortError`, as everywhere on the
 * web.
 *
 * @param {Doing} doing
 * @param {AbortSignal} signal
 */
export function cancelled(doing, signal) {
  const error = failure("session.cancelled", { doing }, { cause: signal.reason });
  error.name = "AbortError";
  return error;
}

/**
 * @param {AbortSignal | undefined} signal
 * @param {Doing} doing
 */
export function throwIfCancelled(signal, doing) {
  if (signal?.aborted) throw cancelled(doing, signal);
}

/**
 * What `promise` gives, or the error of a cancel that comes first; then its result is dropped.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @param {Doing} doing
 * @returns {Promise<T>}
 */
export function abortable(promise, signal, doing) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => reject(cancelled(doing, signal));
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
