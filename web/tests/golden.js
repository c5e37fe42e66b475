/** Golden files that Python writes and both languages read; the program that was made by hand. */

import { readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";

import { integer } from "../runtime/integers.js";

export const GOLDEN = new URL("../../tests/golden/", import.meta.url);

/** @param {string} name */
export const readText = (name) => readFileSync(new URL(name, GOLDEN), "utf8");

/**
 * @param {string} name
 * @returns {any}
 */
export const readJson = (name) => JSON.parse(readText(name));

/** @param {string} folder */
export const listFolder = (folder) => readdir(new URL(folder, GOLDEN));

/**
 * Integers beyond 2^53 - 1 are texts in the files.
 *
 * @param {any} value
 * @returns {any}
 */
export function integers(value) {
  if (typeof value === "string" && /^-?\d+$/.test(value)) return integer(BigInt(value));
  if (Array.isArray(value)) return value.map(integers);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, integers(item)]));
}

/**
 * What `work` gives, in the form of the files.
 *
 * @param {() => unknown} work
 */
export function answer(work) {
  try {
    return { result: work() };
  } catch (error) {
    const { code, message } = /** @type {any} */ (error);
    if (code === undefined) throw error;
    return { error: code, message };
  }
}

/** `y = x * (2 * w) + k` for `x: f32[n, 4]`, `w: f32[4]` and an integer input `k` below 100. */
export function handMade() {
  const { digest, values } = readJson("shared/hand_made.weights.json");
  const bytes = new Uint8Array(new Float32Array(values).buffer);
  const text = readText("shared/hand_made.program");
  return {
    text,
    digest,
    bytes,
    values: Float32Array.from(values),
    weights: {
      files: { all: bytes },
      constants: { [digest]: { file: "all", offset: 0, length: bytes.length } },
    },
  };
}

/**
 * What the program made by hand computes.
 *
 * @param {Float32Array} x
 * @param {number} k
 */
export function expected(x, k) {
  const { values } = handMade();
  return x.map((item, i) => Math.fround(Math.fround(item * (2 * values[i % 4])) + k));
}
