/**
 * Feeds: the tensors a user hands in, checked against the declared inputs. See
 * `rlx_edge/runtime/feeds.py`, whose rules and errors these are.
 *
 * Shapes bind size symbols (the first input that has a symbol decides, the others must agree) and
 * elements of integer inputs bind value symbols. Data are never copied here.
 *
 * @typedef {import("./dims.js").Symbols} Symbols
 * @typedef {import("./dims.js").Dim} Dim
 * @typedef {import("./program.js").Port} Port
 * @typedef {import("./program.js").Binding} Binding
 * @typedef {import("./tensor.js").TensorData} TensorData
 * @typedef {{type: string, data: TensorData, dims: readonly number[]}} TensorLike
 *   a `Tensor`, or onnxruntime-web's
 * @typedef {{tensors: TensorLike[], symbols: Symbols}} BoundFeeds
 */

import { evaluateDim, symbolsOf } from "./dims.js";
import { failure } from "./errors.js";
import { integer } from "./integers.js";
import { kindOf, Tensor, TYPE_NAMES } from "./tensor.js";

/** @type {Record<string, string>} */
const ONNX_NAMES = { float32: "float", float64: "double" };

/** Checks feeds for one list of inputs; built once, used for every run. */
export class FeedChecker {
  /**
   * @param {Port[]} inputs
   * @param {Binding[]} [bindings]
   */
  constructor(inputs, bindings = []) {
    this.inputs = inputs;
    this.bindings = bindings;
    this.names = inputs.map((port) => port.name);
    this.isOpen = inputs.some((port) => port.shape.some((dim) => typeof dim === "object"));
  }

  /**
   * The tensors, in the order of the inputs, and symbols of `feeds`.
   *
   * `InputError`: `input.feeds` if it is no object, `input.name` for an unknown or a missing name,
   * `input.array`, `input.dtype`, `input.rank`, `input.shape` and `input.value` for a tensor that
   * does not fit.
   *
   * @param {Record<string, unknown>} feeds
   * @returns {BoundFeeds}
   */
  bind(feeds) {
    this.checkNames(feeds);
    const tensors = this.inputs.map((port) => asTensor(port, feeds[port.name]));
    /** @type {Symbols} */
    const symbols = Object.create(null);
    this.inputs.forEach((port, i) => {
      const { dims } = tensors[i];
      if (dims.length !== port.shape.length) throw rankError(port, dims);
      port.shape.forEach((expected, axis) => {
        const size = dims[axis];
        if (size < 1) throw shapeError("empty", port, dims, axis);
        if (typeof expected === "string") {
          symbols[expected] ??= size;
          if (symbols[expected] !== size) throw this.#disagreement(tensors, i, axis, expected);
        } else if (typeof expected !== "object" && expected !== size) {
          throw shapeError("axis", port, dims, axis, expected);
        }
      });
    });
    for (const binding of this.bindings) {
      const tensor = tensors[this.names.indexOf(binding.parameter)];
      symbols[binding.symbol] = element(tensor, binding);
    }
    if (this.isOpen) this.#checkOpen(tensors, symbols);
    return { tensors, symbols };
  }

  /**
   * `InputError` unless `feeds` has exactly the inputs' names.
   *
   * @param {Record<string, unknown>} feeds
   */
  checkNames(feeds) {
    if (typeof feeds !== "object" || feeds === null || Array.isArray(feeds)) {
      throw failure("input.feeds", { found: kindOf(feeds) });
    }
    const given = Object.keys(feeds);
    for (const name of given) {
      if (!this.names.includes(name)) {
        throw failure("input.name", { name, names: this.names.length ? this.names : "none" });
      }
    }
    const missing = this.names.find((name) => !given.includes(name));
    if (missing === undefined) return;
    throw failure("input.name:missing", {
      name: missing,
      found: given.length ? given.sort() : "no feeds",
      names: this.names,
    });
  }

  /**
   * Axes that are sums or products of sizes, once those are known.
   *
   * @param {TensorLike[]} tensors
   * @param {Symbols} symbols
   */
  #checkOpen(tensors, symbols) {
    this.inputs.forEach((port, i) => {
      port.shape.forEach((dim, axis) => {
        if (typeof dim !== "object") return;
        if (symbolsOf(dim).some((name) => !(name in symbols))) {
          throw failure("input.symbol:axis", { axis, name: port.name, dim: port.dimTexts[axis] });
        }
        const expected = evaluateDim(dim, symbols);
        const { dims } = tensors[i];
        if (dims[axis] !== expected) throw shapeError("axis", port, dims, axis, expected);
      });
    });
  }

  /**
   * The error for a size that an input before it has fixed otherwise.
   *
   * @param {TensorLike[]} tensors
   * @param {number} input
   * @param {number} axis
   * @param {string} symbol
   */
  #disagreement(tensors, input, axis, symbol) {
    const other = this.inputs.findIndex((port) => port.shape.includes(symbol));
    const place = this.inputs[other].shape.indexOf(symbol);
    return failure("input.shape:same", {
      axis,
      name: this.names[input],
      other_axis: place,
      other: this.names[other],
      symbol,
      size: tensors[input].dims[axis],
      other_size: tensors[other].dims[place],
    });
  }
}

/**
 * @param {Port} port
 * @param {unknown} value
 * @returns {TensorLike}
 */
function asTensor(port, value) {
  const type = TYPE_NAMES[port.dtype];
  if (!isTensorLike(value)) {
    throw failure("input.array", {
      name: port.name,
      holder: "Tensor",
      found: kindOf(value),
      call: `new Tensor("${type}", data, dims)`,
    });
  }
  if (value.type !== type) {
    throw failure("input.dtype", {
      name: port.name,
      found: value.type,
      expected: type,
      type: `tensor(${ONNX_NAMES[type] ?? type})`,
    });
  }
  return value instanceof Tensor ? value : new Tensor(type, value.data, value.dims);
}

/**
 * @param {any} value
 * @returns {value is TensorLike}
 */
function isTensorLike(value) {
  return Boolean(value) && typeof value.type === "string" && Array.isArray(value.dims) &&
    ArrayBuffer.isView(value.data);
}

/**
 * @param {TensorLike} tensor
 * @param {Binding} binding
 */
function element({ data }, { parameter, position }) {
  if (position >= data.length) {
    throw failure("input.value", { position, name: parameter, count: data.length });
  }
  const value = data[position];
  return typeof value === "bigint" ? integer(value) : value;
}

/**
 * @param {Port} port
 * @param {readonly number[]} dims
 */
function rankError(port, dims) {
  return failure("input.rank", {
    name: port.name,
    rank: dims.length,
    shape: dims,
    expected: port.shape.length,
    type: port.type,
  });
}

/**
 * @param {string} rule
 * @param {Port} port
 * @param {readonly number[]} shape
 * @param {number} axis
 * @param {unknown} [expected]
 */
function shapeError(rule, port, shape, axis, expected) {
  return failure(`input.shape:${rule}`, {
    name: port.name,
    axis,
    expected,
    shape,
    type: port.type,
  });
}
