/**
 * Weights on their way into linear memory: ranges of files, copied piece by piece. There is never a
 * second copy of a file, only the piece at hand.
 *
 * @typedef {import("./files.js").ByteFile} ByteFile
 * @typedef {import("./program.js").Upload} Upload
 * @typedef {{file: string, offset: number, length: number}} Range a range of `files[file]`
 * @typedef {object} WeightRanges
 * @property {Record<string, ByteFile>} files by name
 * @property {Record<string, Range | Range[]>} constants by digest: one range, or several in order.
 *   An IR file's `F.weights.json` has this form.
 * @typedef {{start: number, end: number, address: number}} Item bytes of a file, and their place
 * @typedef {{file: ByteFile, items: Item[], start: number, end: number}} Stretch
 */

import { failure, throwIfCancelled } from "./errors.js";
import { fileName, readRange } from "./files.js";
import { kindOf } from "./tensor.js";

/** Bytes between two wanted ranges that are rather read and dropped than asked for apart. */
const GAP = 1 << 16;
const CONCURRENT = 2;

/**
 * `InputError` unless `value` names files and ranges in them.
 *
 * @param {unknown} value
 * @returns {WeightRanges}
 */
export function checkRanges(value) {
  const { files, constants } = /** @type {any} */ (value) ?? {};
  const allowed = "{files: {name: Blob | ArrayBuffer | URL}, constants: {digest: range}}";
  for (const part of [files, constants]) {
    if (typeof part !== "object" || part === null) {
      throw failure("weights.source", { found: kindOf(value), allowed });
    }
  }
  for (const [digest, ranges] of Object.entries(constants)) {
    for (const { file, offset, length } of [ranges].flat()) {
      const isRange = [offset, length].every((size) => Number.isSafeInteger(size) && size >= 0);
      if (!isRange || !Object.hasOwn(files, file)) {
        const found = `'${file}', offset ${offset}, length ${length} for ${digest}`;
        throw failure("weights.source", { found, allowed: Object.keys(files) });
      }
    }
  }
  return { files, constants };
}

/**
 * `DigestError` `program.constant` unless every constant of `uploads` is there in its length.
 *
 * @param {WeightRanges} weights
 * @param {Upload[]} uploads
 */
export function checkConstants(weights, uploads) {
  for (const { digest, nbytes } of uploads) {
    const ranges = rangesOf(weights, digest);
    const length = ranges.reduce((sum, range) => sum + range.length, 0);
    if (!ranges.length || length !== nbytes) {
      const found = ranges.length ? `${length} bytes` : "none";
      throw failure("program.constant", { found, digest, nbytes });
    }
  }
}

/**
 * Copy the constants of `uploads` to their addresses.
 *
 * `put(address, bytes)` is called for every piece, in no order that matters. `ModelError`
 * `weights.short` where a file ends too early, and what fetching raises.
 *
 * @param {WeightRanges} weights
 * @param {Upload[]} uploads
 * @param {(address: number, bytes: Uint8Array) => void} put
 * @param {AbortSignal} [signal]
 */
export async function copyWeights(weights, uploads, put, signal) {
  const queue = stretches(weights, uploads).values();
  const others = new AbortController();
  const stop = () => others.abort(signal?.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  try {
    await Promise.all(
      Array.from({ length: CONCURRENT }, async () => {
        for (const stretch of queue) await copyStretch(stretch, put, others.signal);
      }),
    );
  } finally {
    signal?.removeEventListener("abort", stop);
    others.abort();
  }
}

/**
 * @param {WeightRanges} weights
 * @param {string} digest
 * @returns {Range[]}
 */
export function rangesOf({ constants }, digest) {
  return Object.hasOwn(constants, digest) ? [constants[digest]].flat() : [];
}

/**
 * What to read, in the order of the files and of their bytes.
 *
 * @param {WeightRanges} weights
 * @param {Upload[]} uploads
 * @returns {Stretch[]}
 */
function stretches(weights, uploads) {
  /** @type {Map<string, Item[]>} */
  const wanted = new Map();
  for (const upload of uploads) {
    let { address } = upload;
    for (const { file, offset, length } of rangesOf(weights, upload.digest)) {
      if (length) {
        const items = wanted.get(file) ?? [];
        items.push({ start: offset, end: offset + length, address });
        wanted.set(file, items);
      }
      address += length;
    }
  }
  const found = [];
  for (const [name, items] of wanted) {
    items.sort((a, b) => a.start - b.start);
    /** @type {Stretch | undefined} */
    let last;
    for (const item of items) {
      if (!last || item.start > last.end + GAP) {
        last = { file: weights.files[name], items: [], start: item.start, end: item.end };
        found.push(last);
      }
      last.items.push(item);
      last.end = Math.max(last.end, item.end);
    }
  }
  return found;
}

/**
 * @param {Stretch} stretch
 * @param {(address: number, bytes: Uint8Array) => void} put
 * @param {AbortSignal} signal
 */
async function copyStretch({ file, items, start, end }, put, signal) {
  let position = start;
  let first = 0;
  for await (const piece of readRange(file, start, end, "the weights", signal)) {
    throwIfCancelled(signal, "is fetched");
    const next = position + piece.length;
    while (first < items.length && items[first].end <= position) first += 1;
    for (let i = first; i < items.length && items[i].start < next; i += 1) {
      const from = Math.max(items[i].start, position);
      const to = Math.min(items[i].end, next);
      if (from < to) {
        put(
          items[i].address + from - items[i].start,
          piece.subarray(from - position, to - position),
        );
      }
    }
    position = next;
  }
  if (position < end) {
    throw failure("weights.short", { found: position, expected: end }, { where: fileName(file) });
  }
}
