/**
 * The interpreter of plan programs: from sizes to the words that kernels read. See
 * `rlx_edge/ir/plan.py`, whose results and errors it gives.
 *
 * @typedef {import("./integers.js").Integer} Integer
 * @typedef {import("./dims.js").Symbols} Symbols
 * @typedef {import("./program.js").PlanProgram} PlanProgram
 * @typedef {import("./program.js").Port} Port
 * @typedef {{address: number, shape: number[], nbytes: number}} Placement
 *   where one graph input or output lies
 * @typedef {{words: Int32Array, peak: number, inputs: Placement[], outputs: Placement[],
 *   transfers: Placement[]}} Plan
 *   a plan program evaluated for one set of sizes; `peak` is the bytes of memory it needs
 */

import { failure } from "./errors.js";
import { add, DivisionByZero, floordiv, max, min, mod, mul, RELATIONS, sub } from "./integers.js";
import { ITEM_BYTES } from "./tensor.js";

/** Bytes of a 32-bit WebAssembly memory. */
export const MEMORY_LIMIT = 2 ** 32;

/** @type {Record<string, (a: Integer, b: Integer) => Integer>} */
const OPERATIONS = { add, sub, mul, floordiv, mod, max, min };

/**
 * The plan for concrete symbols. `GuardError` names the guard that fails, `LimitError` the bytes
 * when the model would need more memory than there can be.
 *
 * @param {{plan: PlanProgram, inputs: Port[], outputs: Port[], transfers?: Port[]}} program
 * @param {Symbols} symbols has every symbol of the plan program
 * @returns {Plan}
 */
export function evaluate(program, symbols) {
  const { plan, transfers = [] } = program;
  const values = runInstructions(plan, symbols);
  for (const [left, relation, right, text] of plan.guards) {
    if (!RELATIONS[relation](values[left], values[right])) {
      throw failure("plan.guard", { text, left: values[left], right: values[right] });
    }
  }
  const peak = values[plan.peak];
  if (peak > MEMORY_LIMIT) {
    throw failure("plan.memory", { nbytes: peak, limit: MEMORY_LIMIT });
  }
  const words = Int32Array.from(plan.words);
  for (const [position, value] of plan.writes) {
    const number = values[value];
    if (typeof number !== "number" || number < -(2 ** 31) || number >= 2 ** 32) {
      throw failure("plan.range", { symbols: shownSymbols(symbols) });
    }
    words[position] = number; // beyond 2^31 it wraps to the same 32 bits
  }
  return {
    words,
    peak: Number(peak),
    inputs: plan.inputs.map((place, i) => placement(values, place, program.inputs[i], peak)),
    outputs: plan.outputs.map((place, i) => placement(values, place, program.outputs[i], peak)),
    transfers: transfers.map((port, i) => placement(values, plan.transfers[i], port, peak)),
  };
}

/**
 * Every SSA value in order.
 *
 * @param {PlanProgram} plan
 * @param {Symbols} symbols
 * @returns {Integer[]}
 */
export function runInstructions(plan, symbols) {
  /** @type {Integer[]} */
  const values = [];
  try {
    for (const [opcode, a, b] of plan.instructions) {
      if (opcode === "const") values.push(a);
      else if (opcode === "symbol") values.push(symbols[plan.symbols[a]]);
      else values.push(OPERATIONS[opcode](values[a], values[b]));
    }
  } catch (error) {
    if (!(error instanceof DivisionByZero)) throw error;
    throw failure("plan.division", { symbols: shownSymbols(symbols) });
  }
  return values;
}

/**
 * `batch = 1, width = 320`, by name.
 *
 * @param {Symbols} symbols
 */
export function shownSymbols(symbols) {
  return Object.keys(symbols)
    .sort()
    .map((name) => `${name} = ${symbols[name]}`)
    .join(", ");
}

/**
 * Places come from a plan program that may have been edited: they are never trusted.
 *
 * @param {Integer[]} values
 * @param {[number, number[]]} place
 * @param {Port} port
 * @param {Integer} peak
 * @returns {Placement}
 */
function placement(values, [at, dims], port, peak) {
  const { name } = port;
  const size = ITEM_BYTES[port.dtype];
  const address = values[at];
  const shape = dims.map((dim) => values[dim]);
  const nbytes = shape.reduce(mul, size);
  if (shape.some((length) => length < 1)) throw failure("plan.shape", { name, shape });
  if (address < 0 || add(address, nbytes) > peak) {
    throw failure("plan.place", { name, nbytes, address, peak });
  }
  if (mod(address, size) !== 0) throw failure("plan.align", { name, address, size });
  return { address: Number(address), shape: shape.map(Number), nbytes: Number(nbytes) };
}
