/** SHA-256 as every file of ours writes it: `sha256:` and hex. */

import { failure } from "./errors.js";

/** Whether digests can be checked: browsers offer `crypto.subtle` to secure pages only. */
export function canDigest() {
  return Boolean(globalThis.crypto?.subtle);
}

/**
 * The digest of bytes. `DigestError` `digest.unavailable` where `canDigest` is false.
 *
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<string>}
 */
export async function sha256(bytes) {
  if (!canDigest()) throw failure("digest.unavailable");
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return `sha256:${Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * The digest of a JSON value as Python writes it in ASCII without spaces.
 *
 * @param {unknown} value
 */
export function jsonDigest(value) {
  const text = JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return sha256(new TextEncoder().encode(text));
}
