/**
 * Arrays as `.npy` files (NumPy enhancement proposal 1, version 1.0), and digests of their content.
 *
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 */

import { digestOf } from "./download.js";
import { Report } from "./reports.js";

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0];
const ALIGNMENT = 64;

/** @type {[string, string, any][]} */
const TYPES = [
  ["float32", "<f4", Float32Array],
  ["float64", "<f8", Float64Array],
  ["float16", "<f2", Uint16Array],
  ["int8", "|i1", Int8Array],
  ["int16", "<i2", Int16Array],
  ["int32", "<i4", Int32Array],
  ["int64", "<i8", BigInt64Array],
  ["uint8", "|u1", Uint8Array],
  ["uint16", "<u2", Uint16Array],
  ["uint32", "<u4", Uint32Array],
  ["uint64", "<u8", BigUint64Array],
  ["bool", "|b1", Uint8Array],
];

/**
 * The array for elements of a type.
 *
 * @param {string} type
 */
export function arrayFor(type) {
  const row = TYPES.find(([name]) => name === type);
  if (!row) throw new Report("input.type", `elements of type ${type} cannot be made here`);
  return row[2];
}

/**
 * @param {PlainTensor} tensor
 * @returns {Blob}
 */
export function writeNpy({ type, data, dims }) {
  const descr = TYPES.find(([name]) => name === type)?.[1] ?? "<u2"; // bfloat16: its bits
  const shape = dims.length === 1 ? `(${dims[0]},)` : `(${dims.join(", ")})`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }`;
  const length = Math.ceil((MAGIC.length + 2 + text.length + 1) / ALIGNMENT) * ALIGNMENT;
  const header = new Uint8Array(length).fill(0x20);
  header.set(MAGIC);
  new DataView(header.buffer).setUint16(MAGIC.length, length - MAGIC.length - 2, true);
  header.set(new TextEncoder().encode(text), MAGIC.length + 2);
  header[length - 1] = 0x0a;
  return new Blob([header, data], { type: "application/octet-stream" });
}

/**
 * The array in a file; `input.npy` for what is none.
 *
 * @param {ArrayBuffer} buffer
 * @param {string} name
 * @returns {PlainTensor}
 */
export function readNpy(buffer, name) {
  const bytes = new Uint8Array(buffer);
  const fail = (/** @type {string} */ found) =>
    new Report("input.npy", `${name}: not a .npy file that can be read; found ${found}`);
  if (!MAGIC.slice(0, 6).every((byte, i) => bytes[i] === byte)) throw fail("other bytes");
  const view = new DataView(buffer);
  const wide = bytes[6] > 1;
  if (buffer.byteLength < 12) throw fail(`${buffer.byteLength} bytes`);
  const size = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const start = (wide ? 12 : 10) + size;
  const text = new TextDecoder().decode(bytes.subarray(wide ? 12 : 10, start));
  const descr = /'descr':\s*'([^']+)'/.exec(text)?.[1];
  const shape = /'shape':\s*\(([\d,\s]*)\)/.exec(text)?.[1];
  const row = TYPES.find(([, code]) => code === descr?.replace("=", "<"));
  if (!row || shape === undefined) throw fail(`type ${descr ?? "none"}`);
  if (/'fortran_order':\s*True/.test(text)) throw fail("columns first (fortran_order)");
  const dims = shape.split(",").filter((part) => part.trim()).map(Number);
  const count = dims.reduce((a, b) => a * b, 1);
  const [type, , array] = row;
  const expected = start + count * array.BYTES_PER_ELEMENT;
  if (buffer.byteLength < expected) {
    throw fail(`${buffer.byteLength} bytes where the header needs ${expected}`);
  }
  return { type, data: new array(buffer.slice(start, expected)), dims };
}

/**
 * `sha256:…` over the elements as little-endian bytes, every NaN as the quiet one, so that equal
 * results have equal digests on every device.
 *
 * @param {PlainTensor} tensor
 */
export function contentDigest({ type, data }) {
  let canonical = data;
  if (type === "float32" || type === "float64") {
    canonical = data.slice();
    const isWide = type === "float64";
    const bits = new (isWide ? BigUint64Array : Uint32Array)(canonical.buffer);
    for (let i = 0; i < canonical.length; i += 1) {
      if (Number.isNaN(canonical[i])) bits[i] = isWide ? 0x7ff8000000000000n : 0x7fc00000;
    }
  }
  return digestOf(new Blob([canonical]));
}
