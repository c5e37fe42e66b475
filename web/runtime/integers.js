/**
 * Whole numbers without a limit: a `number` while it is exact (up to 2^53 - 1), a `bigint` beyond.
 * Every result is in that one form, so equal integers are equal under `===`.
 *
 * A sum or product of two exact numbers rounds to something beyond 2^53 - 1 whenever its true value
 * is beyond, so looking at the result suffices to know that it is exact.
 *
 * @typedef {number | bigint} Integer
 */

const LIMIT = Number.MAX_SAFE_INTEGER;

/** Thrown by `floordiv` and `mod`; whoever knows the sizes turns it into an `RlxError`. */
export class DivisionByZero extends Error {}

/** @param {number} value */
const isExact = (value) => value <= LIMIT && value >= -LIMIT;

/**
 * The canonical form of a big integer.
 *
 * @param {bigint} value
 * @returns {Integer}
 */
export function integer(value) {
  const number = Number(value);
  return isExact(number) ? number : value;
}

/** @type {(a: Integer, b: Integer) => Integer} */
export function add(a, b) {
  if (typeof a === "number" && typeof b === "number") {
    const sum = a + b;
    if (isExact(sum)) return sum;
  }
  return integer(BigInt(a) + BigInt(b));
}

/** @type {(a: Integer, b: Integer) => Integer} */
export function sub(a, b) {
  if (typeof a === "number" && typeof b === "number") {
    const difference = a - b;
    if (isExact(difference)) return difference;
  }
  return integer(BigInt(a) - BigInt(b));
}

/** @type {(a: Integer, b: Integer) => Integer} */
export function mul(a, b) {
  if (typeof a === "number" && typeof b === "number") {
    const product = a * b;
    if (isExact(product)) return product + 0; // -0 becomes 0
  }
  return integer(BigInt(a) * BigInt(b));
}

/**
 * The remainder with the divisor's sign.
 *
 * @type {(a: Integer, b: Integer) => Integer}
 */
export function mod(a, b) {
  if (b == 0) throw new DivisionByZero();
  if (typeof a === "number" && typeof b === "number") {
    const rest = a % b; // exact for any two doubles
    return (rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest) + 0;
  }
  const divisor = BigInt(b);
  const rest = BigInt(a) % divisor;
  return integer(rest !== 0n && rest < 0n !== divisor < 0n ? rest + divisor : rest);
}

/**
 * The quotient, rounded towards minus infinity.
 *
 * @type {(a: Integer, b: Integer) => Integer}
 */
export function floordiv(a, b) {
  const multiple = sub(a, mod(a, b));
  if (typeof multiple === "number" && typeof b === "number") return multiple / b + 0;
  return integer(BigInt(multiple) / BigInt(b));
}

/** @type {(a: Integer, b: Integer) => Integer} */
export const max = (a, b) => (a > b ? a : b);

/** @type {(a: Integer, b: Integer) => Integer} */
export const min = (a, b) => (a < b ? a : b);

/** @type {Record<string, (a: Integer, b: Integer) => boolean>} */
export const RELATIONS = {
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
};
