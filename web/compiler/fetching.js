/** Fetching the site's own files, with counted bytes and pages in place of files refused. */

/** A failure that the page shows as it is. */
export class ReportedError extends Error {
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

/**
 * `fetch` that fails for anything but a file: `site.fetch` where it cannot be had, `site.html` where
 * a page comes in its place, `site.wheel` and `site.snapshot` where bytes are others than
 * `options.integrity` says.
 *
 * @param {RequestInfo | URL} resource
 * @param {RequestInit} [options]
 * @param {(nbytes: number) => void} [onBytes] is told of every piece that arrives
 * @returns {Promise<Response>}
 */
export async function checkedFetch(resource, options, onBytes) {
  const url = resource instanceof Request ? resource.url : String(resource);
  const name = new URL(url, import.meta.url).pathname;
  let response;
  try {
    response = await PLAIN_FETCH(resource, options);
  } catch (cause) {
    if (options?.signal?.aborted) throw cause;
    if (options?.integrity) {
      // The browser does not say which of the two it was.
      const what = "cannot be fetched, or is not the file of this build";
      const code = name.endsWith(".whl") ? "site.wheel" : "site.snapshot";
      throw new ReportedError(code, `${name}: ${what}; \`make web\` builds the site again`);
    }
    throw new ReportedError("site.fetch", `${name}: cannot be fetched (${reason(cause)})`);
  }
  if (!response.ok) {
    throw new ReportedError("site.fetch", `${name}: cannot be fetched (HTTP ${response.status})`);
  }
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("text/html")) {
    throw new ReportedError("site.html", `${name}: a page came in place of the file (${type})`);
  }
  if (!onBytes || !response.body) return response;
  const counted = response.body.pipeThrough(
    new TransformStream({
      transform(piece, controller) {
        onBytes(piece.length);
        controller.enqueue(piece);
      },
    }),
  );
  const { status, headers } = response;
  return new Response(counted, { status, headers });
}

/**
 * The bytes of a file whose length is known, without a copy of them all.
 *
 * @param {string} url
 * @param {RequestInit} options
 * @param {number} length
 * @param {(nbytes: number) => void} onBytes
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchBytes(url, options, length, onBytes) {
  const response = await checkedFetch(url, options);
  const bytes = new Uint8Array(length);
  let done = 0;
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  for (;;) {
    const { value } = await reader.read();
    if (!value) break;
    if (done + value.length <= length) bytes.set(value, done);
    done += value.length;
    onBytes(value.length);
  }
  if (done !== length) {
    throw new ReportedError("site.fetch", `${url}: ${done} bytes came instead of ${length}`);
  }
  return bytes;
}

const PLAIN_FETCH = globalThis.fetch.bind(globalThis);

/** @param {unknown} cause */
function reason(cause) {
  return cause instanceof Error ? cause.message : String(cause);
}
