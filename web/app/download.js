/** Files from the gateway, with progress, refused where something else comes in their place. */

import { checkedFetch, ReportedError } from "../compiler/fetching.js";
import { Cancelled, Report } from "./reports.js";

/**
 * @param {string | URL} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function fetchJson(url, signal) {
  const response = await fetchReported(url, { signal });
  try {
    return await response.json();
  } catch {
    throw new Report("site.json", `${new URL(url, document.baseURI).pathname}: not JSON`);
  }
}

/**
 * A model of the gateway's list as a `Blob`. `download.short` where fewer bytes come than the list
 * says, `download.digest` where others come.
 *
 * @param {{name: string, url: string, bytes: number, digest: string}} model
 * @param {{signal?: AbortSignal, onProgress?: (done: number, total: number) => void}} [options]
 * @returns {Promise<Blob>}
 */
export async function fetchModel(model, { signal, onProgress } = {}) {
  let done = 0;
  const count = (/** @type {number} */ nbytes) => {
    done += nbytes;
    onProgress?.(done, model.bytes);
  };
  const url = new URL(model.url, document.baseURI);
  onProgress?.(0, model.bytes);
  const response = await fetchReported(url, { signal }, count);
  let blob;
  try {
    blob = await response.blob();
  } catch (cause) {
    if (signal?.aborted) throw new Cancelled();
    throw shortened(model, done);
  }
  if (blob.size !== model.bytes) throw shortened(model, blob.size);
  const found = await digestOf(blob);
  if (found !== null && found !== model.digest) {
    throw new Report(
      "download.digest",
      `${url.pathname}: other bytes than the list says; found ${found}; allowed: ${model.digest}`,
    );
  }
  return blob;
}

/**
 * @param {{url: string, bytes: number}} model
 * @param {number} found
 */
function shortened({ url, bytes }, found) {
  return new Report(
    "download.short",
    `${url}: the download was cut short; found ${found} bytes; allowed: ${bytes}`,
  );
}

/**
 * `sha256:…` of a blob; `null` where the page may not compute digests (no secure context).
 *
 * @param {Blob} blob
 */
export async function digestOf(blob) {
  if (!globalThis.crypto?.subtle) return null;
  const hash = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
  return `sha256:${Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * @param {string | URL} url
 * @param {RequestInit} options
 * @param {(nbytes: number) => void} [onBytes]
 */
async function fetchReported(url, options, onBytes) {
  try {
    return await checkedFetch(new URL(url, document.baseURI), options, onBytes);
  } catch (error) {
    if (options.signal?.aborted) throw new Cancelled();
    if (error instanceof ReportedError) throw new Report(error.code, error.message);
    throw error;
  }
}
