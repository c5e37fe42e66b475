/**
 * Sizes as the IR writes them: integers, names, `+ - * // %`, `max(a, b)`, `min(a, b)`. `//` rounds
 * towards minus infinity and `%` has the divisor's sign.
 *
 * @typedef {import("./integers.js").Integer} Integer
 * @typedef {Record<string, Integer>} Symbols
 * @typedef {Integer | string | {apply: (a: Integer, b: Integer) => Integer, a: Dim, b: Dim}} Dim
 *   a constant, a symbol's name, or a function of two dims
 */

import { add, floordiv, max, min, mod, mul, sub } from "./integers.js";

const TOKEN = /\s*(?:(\d+)|([A-Za-z_]\w*)|(\/\/|[-+*%(),[\]]))/y;
const MAX_TEXT = 4096;
const MAX_DEPTH = 64;

/** @type {Record<string, (a: Integer, b: Integer) => Integer>} */
const OPERATORS = { "+": add, "-": sub, "*": mul, "//": floordiv, "%": mod, max, min };

/** A text that is no dim or type; whoever knows where it stands turns it into an `RlxError`. */
export class DimSyntax extends Error {}

/**
 * @param {string} text
 * @returns {Dim}
 */
export function parseDim(text) {
  const reader = new Reader(text);
  const dim = reader.chain(0, "+-");
  reader.end();
  return dim;
}

/**
 * `f32[batch, 3, (w - 1) // 2 + 1]`.
 *
 * @param {string} text
 * @returns {{dtype: string, shape: Dim[]}}
 */
export function parseType(text) {
  const reader = new Reader(text);
  const dtype = reader.take();
  const shape = [];
  reader.take("[");
  while (reader.token !== "]") {
    if (shape.length) reader.take(",");
    shape.push(reader.chain(0, "+-"));
  }
  reader.take("]");
  reader.end();
  return { dtype, shape };
}

/**
 * The size for concrete symbols. `DivisionByZero` where it divides by zero.
 *
 * @param {Dim} dim
 * @param {Symbols} symbols has every symbol of the dim
 * @returns {Integer}
 */
export function evaluateDim(dim, symbols) {
  if (typeof dim === "string") return symbols[dim];
  if (typeof dim !== "object") return dim;
  return dim.apply(evaluateDim(dim.a, symbols), evaluateDim(dim.b, symbols));
}

/**
 * Names of the symbols in a dim, as often as they occur.
 *
 * @param {Dim} dim
 * @returns {string[]}
 */
export function symbolsOf(dim) {
  if (typeof dim === "string") return [dim];
  return typeof dim === "object" ? [...symbolsOf(dim.a), ...symbolsOf(dim.b)] : [];
}

/** Recursive descent: sums of products of factors. */
class Reader {
  /** @param {string} text */
  constructor(text) {
    if (text.length > MAX_TEXT) throw new DimSyntax(`${text.length} characters`);
    this.text = text;
    this.position = 0;
    this.token = "";
    this.next();
  }

  next() {
    TOKEN.lastIndex = this.position;
    const match = TOKEN.exec(this.text);
    if (!match && this.text.slice(this.position).trim()) throw new DimSyntax(this.text);
    this.position = match ? TOKEN.lastIndex : this.text.length;
    this.token = match ? match[0].trim() : "";
  }

  /** @param {string} [expected] */
  take(expected) {
    const { token } = this;
    if (!token || (expected && token !== expected)) throw new DimSyntax(this.text);
    this.next();
    return token;
  }

  end() {
    if (this.token) throw new DimSyntax(this.text);
  }

  /**
   * @param {number} depth
   * @param {string} level the operators of a sum or of a product
   * @returns {Dim}
   */
  chain(depth, level) {
    const part = () => (level === "+-" ? this.chain(depth, "*//%") : this.factor(depth));
    let a = part();
    while (this.token && level.includes(this.token)) {
      const apply = OPERATORS[this.take()];
      a = join(apply, a, part());
    }
    return a;
  }

  /**
   * @param {number} depth
   * @returns {Dim}
   */
  factor(depth) {
    if (depth > MAX_DEPTH) throw new DimSyntax(this.text);
    const token = this.take();
    if (/^\d/.test(token)) return add(BigInt(token), 0);
    if (token === "-") return join(sub, 0, this.factor(depth + 1));
    if (token === "(") {
      const inner = this.chain(depth + 1, "+-");
      this.take(")");
      return inner;
    }
    if (token === "max" || token === "min") {
      this.take("(");
      const a = this.chain(depth + 1, "+-");
      this.take(",");
      const b = this.chain(depth + 1, "+-");
      this.take(")");
      return join(OPERATORS[token], a, b);
    }
    if (!/^[A-Za-z_]/.test(token)) throw new DimSyntax(this.text);
    return token;
  }
}

/**
 * @param {(a: Integer, b: Integer) => Integer} apply
 * @param {Dim} a
 * @param {Dim} b
 * @returns {Dim}
 */
function join(apply, a, b) {
  const isOpen = [a, b].some((dim) => typeof dim === "string" || typeof dim === "object");
  if (isOpen) return { apply, a, b };
  return apply(/** @type {Integer} */ (a), /** @type {Integer} */ (b));
}
