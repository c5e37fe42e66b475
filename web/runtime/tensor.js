/**
 * Tensors as onnxruntime-web's users know them: `new Tensor("float32", data, [1, 3, 48, 320])`.
 *
 * @typedef {"float32" | "float64" | "float16" | "bfloat16" | "int8" | "int16" | "int32" | "int64" |
 *   "uint8" | "uint16" | "uint32" | "uint64" | "bool"} TensorType
 * @typedef {Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array |
 *   Uint8Array | Uint16Array | Uint32Array | BigUint64Array} TensorData
 */

import { failure } from "./errors.js";

/**
 * Element type of the IR, name in JavaScript, array that holds it. f16 and bf16 are held as bits.
 *
 * @type {[string, TensorType, any][]}
 */
const TYPES = [
  ["f32", "float32", Float32Array],
  ["f64", "float64", Float64Array],
  ["f16", "float16", Uint16Array],
  ["bf16", "bfloat16", Uint16Array],
  ["i8", "int8", Int8Array],
  ["i16", "int16", Int16Array],
  ["i32", "int32", Int32Array],
  ["i64", "int64", BigInt64Array],
  ["u8", "uint8", Uint8Array],
  ["u16", "uint16", Uint16Array],
  ["u32", "uint32", Uint32Array],
  ["u64", "uint64", BigUint64Array],
  ["bool", "bool", Uint8Array],
];

/**
 * Bytes of an element, by the IR's name.
 *
 * @type {Record<string, number>}
 */
export const ITEM_BYTES = Object.fromEntries(
  TYPES.map(([dtype, , array]) => [dtype, array.BYTES_PER_ELEMENT]),
);

/**
 * The IR's name to the name in JavaScript.
 *
 * @type {Record<string, TensorType>}
 */
export const TYPE_NAMES = Object.fromEntries(TYPES.map(([dtype, type]) => [dtype, type]));

/** @type {Record<string, any>} */
const ARRAYS = Object.fromEntries(TYPES.map(([, type, array]) => [type, array]));

/** A dense tensor: `data` holds the elements row-major, `dims` its sizes. */
export class Tensor {
  /** @type {TensorData | null} */
  #data;

  /**
   * `new Tensor(type, data, dims)`, or `new Tensor(data, dims)` where the array tells the type
   * (a `Uint8Array` is uint8, a list of booleans bool). Typed arrays are kept, lists are copied.
   * Without `dims` the tensor has one axis.
   *
   * @param {TensorType | TensorData | readonly boolean[]} type
   * @param {TensorData | readonly (number | bigint | boolean)[] | readonly number[]} [data]
   * @param {readonly number[]} [dims]
   */
  constructor(type, data, dims) {
    if (typeof type !== "string") {
      dims = /** @type {readonly number[] | undefined} */ (data);
      data = type;
      type = typeOf(type);
    }
    const array = Object.hasOwn(ARRAYS, type) ? ARRAYS[type] : null;
    if (!array) {
      throw failure("tensor.type", { found: `'${type}'`, allowed: Object.keys(ARRAYS) });
    }
    /** @type {TensorType} */
    this.type = type;
    const held = elements(type, array, data);
    /** @type {readonly number[]} */
    this.dims = Object.freeze(dims ? Array.from(dims) : [held.length]);
    if (!this.dims.every((size) => Number.isSafeInteger(size) && size >= 0)) {
      throw failure("tensor.dims", { found: [...this.dims] });
    }
    /** Number of elements. */
    this.size = this.dims.reduce((a, b) => a * b, 1);
    if (held.length !== this.size) {
      const shape = `[${this.dims.join(", ")}]`;
      throw failure("tensor.size", { dims: shape, found: held.length, expected: this.size });
    }
    this.#data = held;
  }

  /** The elements: int64 as `BigInt64Array`, bool as `Uint8Array` of 0 and 1. */
  get data() {
    if (!this.#data) throw failure("tensor.disposed");
    return this.#data;
  }

  /** Where the data are; there is no other place. */
  get location() {
    return this.#data ? "cpu" : "none";
  }

  /** The elements, for code that awaits them. */
  async getData() {
    return this.data;
  }

  /**
   * The same elements under other sizes.
   *
   * @param {readonly number[]} dims
   */
  reshape(dims) {
    return new Tensor(this.type, this.data, dims);
  }

  /** Let go of the data. */
  dispose() {
    this.#data = null;
  }
}

/**
 * A tensor over bytes of its own.
 *
 * @param {TensorType} type
 * @param {ArrayBuffer} buffer
 * @param {readonly number[]} dims
 */
export function tensorOf(type, buffer, dims) {
  return new Tensor(type, new ARRAYS[type](buffer), dims);
}

/**
 * @param {unknown} data
 * @returns {TensorType}
 */
function typeOf(data) {
  if (Array.isArray(data) && data.every((item) => typeof item === "boolean")) return "bool";
  const row = TYPES.find(([, type, array]) => !type.endsWith("float16") && data instanceof array);
  if (row) return row[1];
  throw failure("tensor.type", { found: kindOf(data), allowed: Object.keys(ARRAYS) });
}

/**
 * @param {TensorType} type
 * @param {any} array
 * @param {unknown} data
 * @returns {TensorData}
 */
function elements(type, array, data) {
  if (data instanceof array) return /** @type {TensorData} */ (data);
  const bits = /** @type {any} */ (globalThis).Float16Array;
  if (type === "float16" && bits && data instanceof bits) {
    const { buffer, byteOffset, length } = /** @type {Uint16Array} */ (data);
    return new Uint16Array(buffer, byteOffset, length);
  }
  if (Array.isArray(data)) {
    const isBig = array === BigInt64Array || array === BigUint64Array;
    return isBig ? array.from(data, BigInt) : array.from(data, Number);
  }
  throw failure("tensor.data", { type, found: kindOf(data), allowed: array.name });
}

/**
 * What a value is, for messages.
 *
 * @param {unknown} value
 */
export function kindOf(value) {
  if (value === null || value === undefined) return String(value);
  return typeof value === "object" ? (value.constructor?.name ?? "object") : typeof value;
}
