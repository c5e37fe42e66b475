/**
 * Bytes from wherever they are: a URL, a `Blob`, memory; in node also `file:` URLs.
 *
 * @typedef {ArrayBuffer | ArrayBufferView | Blob | URL | string} ByteFile
 */

import { cancelled, failure, throwIfCancelled } from "./errors.js";

const READ_SIZE = 1 << 20;

/**
 * A URL of text, relative to the page; in node relative to the working directory.
 *
 * @param {string | URL} text
 * @param {string | URL} [base]
 */
export function resolveUrl(text, base = documentUrl()) {
  return new URL(text, base);
}

function documentUrl() {
  const here = globalThis.document?.baseURI ?? globalThis.location?.href;
  return here ?? `file://${globalThis.process.cwd()}/`;
}

/**
 * A whole file.
 *
 * `ModelError` `bundle.fetch` where it cannot be had, `bundle.html` where a page comes instead.
 *
 * @param {URL} url
 * @param {string} what for messages: `the kernels`
 * @param {AbortSignal} [signal]
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchBytes(url, what, signal) {
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return read(async () => new Uint8Array(await readFile(url, { signal })), url, signal);
  }
  const response = await request(url, what, signal);
  return read(async () => new Uint8Array(await response.arrayBuffer()), url, signal);
}

/**
 * The bytes `start` to `end` of a file, piece by piece; fewer if it is shorter.
 *
 * A server that has no ranges sends the whole file, of which the rest is skipped.
 *
 * @param {ByteFile} file
 * @param {number} start
 * @param {number} end
 * @param {string} what for messages
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<Uint8Array<ArrayBuffer>>}
 */
export async function* readRange(file, start, end, what, signal) {
  if (file instanceof Blob) {
    yield* pieces(file.slice(start, end).stream(), 0, end - start, file, signal);
  } else if (file instanceof ArrayBuffer) {
    yield new Uint8Array(file).subarray(start, end);
  } else if (ArrayBuffer.isView(file)) {
    const { buffer, byteOffset, byteLength } = file;
    yield new Uint8Array(/** @type {ArrayBuffer} */ (buffer), byteOffset, byteLength).subarray(
      start,
      end,
    );
  } else {
    yield* readUrlRange(resolveUrl(file), start, end, what, signal);
  }
}

/**
 * @param {URL} url
 * @param {number} start
 * @param {number} end
 * @param {string} what
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<Uint8Array<ArrayBuffer>>}
 */
async function* readUrlRange(url, start, end, what, signal) {
  if (url.protocol === "file:") {
    const [{ createReadStream }, { Readable }] = await Promise.all([
      import("node:fs"),
      import("node:stream"),
    ]);
    const source = createReadStream(url, { start, end: end - 1, highWaterMark: READ_SIZE });
    const stream = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (Readable.toWeb(source));
    yield* pieces(stream, 0, end - start, url, signal);
    return;
  }
  const range = start > 0 ? { Range: `bytes=${start}-${end - 1}` } : undefined;
  const response = await request(url, what, signal, range);
  if (!response.body) throw failure("bundle.fetch", { reason: "no content" }, { where: url.href });
  const skip = response.status === 206 ? 0 : start;
  yield* pieces(response.body, skip, skip + end - start, url, signal);
}

/**
 * The bytes `start` to `end` of a stream.
 *
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} stream
 * @param {number} start
 * @param {number} end
 * @param {ByteFile} file for messages
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<Uint8Array<ArrayBuffer>>}
 */
async function* pieces(stream, start, end, file, signal) {
  const reader = stream.getReader();
  let position = 0;
  try {
    while (position < end) {
      throwIfCancelled(signal, "is fetched");
      const { done, value } = await read(() => reader.read(), file, signal);
      if (done) return;
      const from = Math.max(0, start - position);
      if (from < value.length) yield value.subarray(from, end - position);
      position += value.length;
    }
  } finally {
    reader.cancel().catch(() => {}); // an end that was not reached: nobody wants the rest
  }
}

/**
 * @param {URL} url
 * @param {string} what
 * @param {AbortSignal} [signal]
 * @param {Record<string, string>} [headers]
 */
async function request(url, what, signal, headers) {
  const response = await read(() => fetch(url, { signal, headers }), url, signal);
  if (!response.ok) {
    throw failure("bundle.fetch", { reason: `HTTP ${response.status}` }, { where: url.href });
  }
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("text/html")) {
    response.body?.cancel().catch(() => {});
    throw failure("bundle.html", { what, found: type }, { where: url.href });
  }
  return response;
}

/**
 * What `work` gives; a cancel and a failure to read are errors of ours.
 *
 * @template T
 * @param {() => Promise<T>} work
 * @param {ByteFile} file
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function read(work, file, signal) {
  try {
    return await work();
  } catch (cause) {
    if (signal?.aborted) throw cancelled("is fetched", signal);
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw failure("bundle.fetch", { reason }, { where: fileName(file), cause });
  }
}

/**
 * The name of a file in messages.
 *
 * @param {ByteFile} file
 */
export function fileName(file) {
  if (file instanceof URL || typeof file === "string") return String(file);
  return file instanceof Blob && "name" in file ? String(file.name) : "the weights in memory";
}

/**
 * Whether bytes look like a page that came in place of something else.
 *
 * @param {Uint8Array} bytes
 */
export function looksLikeHtml(bytes) {
  return /^\s*<(!doctype|html|head|body|\?xml)/i.test(
    new TextDecoder().decode(bytes.subarray(0, 256)),
  );
}
