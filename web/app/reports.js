/** What went wrong, as the page shows it. */

/** A failure with a stable code, one sentence and, from the compiler, source lines. */
export class Report extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {string} [excerpt]
   */
  constructor(code, message, excerpt = "") {
    super(message);
    this.code = code;
    this.excerpt = excerpt;
  }
}

/** That somebody pressed cancel; no failure. */
export class Cancelled extends Report {
  constructor() {
    super("page.cancelled", "cancelled");
    this.name = "AbortError";
  }
}

/**
 * Any error as a report.
 *
 * @param {unknown} error
 * @returns {Report}
 */
export function asReport(error) {
  if (error instanceof Report) return error;
  const { name, code, message, excerpt } = /** @type {any} */ (error ?? {});
  if (name === "AbortError") return new Cancelled();
  return new Report(typeof code === "string" ? code : "page.failed", message ?? String(error), excerpt);
}

/** @param {AbortSignal} [signal] */
export function throwIfCancelled(signal) {
  if (signal?.aborted) throw new Cancelled();
}
