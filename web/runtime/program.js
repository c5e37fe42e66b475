/**
 * Compiled programs: the JSON document of `rlx_edge/ir/program_text.py`, checked number by number.
 *
 * @typedef {import("./dims.js").Dim} Dim
 * @typedef {import("./executor.js").Command} Command
 * @typedef {object} Port a graph input or output
 * @property {string} name
 * @property {string} type as the IR writes it: `f32[batch, 10]`
 * @property {string} dtype
 * @property {Dim[]} shape
 * @property {string[]} dimTexts each dim as the IR writes it
 * @typedef {Port & {edge: number, isSend: boolean}} EdgePort this device's end of a transfer
 * @typedef {{symbol: string, parameter: string, position: number}} Binding
 * @typedef {{left: Dim, relation: string, right: Dim, text: string}} Guard
 * @typedef {{digest: string, address: number, nbytes: number}} Upload
 * @typedef {{op: string, value: string, kernel: number, phase: string}} LaunchInfo
 * @typedef {object} PlanProgram
 * @property {string[]} symbols
 * @property {[string, number, number][]} instructions opcode and operands
 * @property {[number, string, number, string][]} guards SSA value, relation, SSA value, text
 * @property {number[]} words the parameter block at first
 * @property {[number, number][]} writes word and SSA value
 * @property {number} blockAddress
 * @property {number} peak SSA value
 * @property {[number, number[]][]} inputs SSA values: address and sizes
 * @property {[number, number[]][]} outputs
 * @property {[number, number[]][]} transfers in the order of the program's
 * @typedef {object} Program
 * @property {string} name for messages
 * @property {string} irDigest
 * @property {string} sourceDigest
 * @property {string} target
 * @property {string} kernelsDigest
 * @property {Port[]} inputs
 * @property {Port[]} outputs
 * @property {Binding[]} bindings
 * @property {Guard[]} guards
 * @property {Upload[]} uploads
 * @property {number} resident bytes at the bottom of memory that survive between runs
 * @property {Command[]} prepare
 * @property {Command[]} execute
 * @property {LaunchInfo[]} launches
 * @property {PlanProgram} plan
 * @property {string} device the role whose part this is; "" where it is the whole program
 * @property {string} graphDigest of the task graph that a part belongs to
 * @property {EdgePort[]} transfers what a part exchanges with others
 * @property {Uint8Array | null} wasm `null` where the document has none
 */

import { DimSyntax, parseDim, parseType } from "./dims.js";
import { jsonDigest } from "./digests.js";
import { failure } from "./errors.js";
import { RELATIONS } from "./integers.js";
import { ITEM_BYTES, kindOf } from "./tensor.js";

const HEADER = "rlx.program";
const VERSION = "1.0";
const OPCODES = ["const", "symbol", "add", "sub", "mul", "floordiv", "mod", "max", "min"];
const PHASES = ["compile", "execute"];

/** @type {Record<string, number>} */
const COMMANDS = { run: 2, send: 1, receive: 1, wait: 1, free: 1 };

/**
 * The program of its document, a JSON text or what `JSON.parse` made of it.
 *
 * `ModelError` `program.syntax` for another document, `program.value` for a field that cannot be.
 * Digests are checked apart (`checkDigest`).
 *
 * @param {unknown} source
 * @param {string} [name] for messages
 * @returns {Program}
 */
export function readProgram(source, name = "program") {
  const reader = new Reader(name);
  const document = reader.document(source);
  const program = reader.program(document);
  reader.check(program);
  return program;
}

/**
 * `DigestError` unless the document's digest is that of its content.
 *
 * @param {unknown} source as for `readProgram`
 * @param {string} [name]
 */
export async function checkDigest(source, name = "program") {
  const { [HEADER]: _, digest, wasm: __, ...body } = new Reader(name).document(source);
  const found = await jsonDigest(body);
  if (found === digest) return;
  const what = "the program's digest and its content";
  throw failure("digest.mismatch", { what, found, expected: digest }, { where: name });
}

class Reader {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }

  /**
   * @param {string} field
   * @param {unknown} found
   * @param {unknown} allowed
   * @param {string} [code]
   * @returns {never}
   */
  fail(field, found, allowed, code = "program.value") {
    const text = typeof found === "string" ? found : (JSON.stringify(found) ?? String(found));
    const short = text.length <= 120 ? text : `${text.slice(0, 120)}…`;
    throw failure(code, { field, found: short, allowed }, { where: this.name });
  }

  /**
   * @param {unknown} source
   * @returns {Record<string, any>}
   */
  document(source) {
    let content = /** @type {any} */ (source);
    if (typeof source === "string") {
      try {
        content = JSON.parse(source);
      } catch (error) {
        this.fail("the document", /** @type {Error} */ (error).message, "JSON", "program.syntax");
      }
    }
    if (content?.[HEADER] !== VERSION) {
      const found = content?.[HEADER] ?? kindOf(content);
      this.fail("the document", found, `"${HEADER}": "${VERSION}"`, "program.syntax");
    }
    return content;
  }

  /**
   * @param {Record<string, any>} document
   * @returns {Program}
   */
  program(document) {
    const get = (/** @type {string} */ key) => this.field("a program", document, key);
    const { part } = document;
    return {
      name: this.name,
      irDigest: this.text(get("ir_digest"), "ir_digest"),
      sourceDigest: this.text(get("source_digest"), "source_digest"),
      target: this.text(get("target"), "target"),
      kernelsDigest: this.text(get("kernels_digest"), "kernels_digest"),
      inputs: this.rows(get("inputs"), "inputs", 2, this.port),
      outputs: this.rows(get("outputs"), "outputs", 2, this.port),
      bindings: this.rows(get("bindings"), "bindings", 3, ([symbol, parameter, position]) => ({
        symbol: this.text(symbol, "a symbol"),
        parameter: this.text(parameter, "a parameter"),
        position: this.size(position, "a position"),
      })),
      guards: this.rows(get("guards"), "guards", 4, this.guard),
      uploads: this.rows(get("uploads"), "uploads", 3, ([digest, address, nbytes]) => ({
        digest: this.text(digest, "a digest"),
        address: this.size(address, "an address"),
        nbytes: this.size(nbytes, "a length"),
      })),
      resident: this.size(get("resident"), "resident"),
      prepare: this.list(get("prepare"), "prepare").map((item) => this.command(item)),
      execute: this.list(get("execute"), "execute").map((item) => this.command(item)),
      launches: this.rows(get("launches"), "launches", 4, ([op, value, kernel, phase]) => ({
        op: this.text(op, "an operator"),
        value: this.text(value, "a value"),
        kernel: this.size(kernel, "a kernel"),
        phase: this.choice(phase, PHASES),
      })),
      plan: this.plan(get("plan"), part?.places ?? []),
      ...this.part(part),
      wasm: document.wasm === undefined ? null : this.binary(document.wasm),
    };
  }

  /**
   * What concerns several fields.
   *
   * @param {Program} program
   */
  check(program) {
    const { inputs, outputs, plan, launches } = program;
    for (const [ports, places, what] of /** @type {const} */ ([
      [inputs, plan.inputs, "inputs"],
      [outputs, plan.outputs, "outputs"],
      [program.transfers, plan.transfers, "transfers"],
    ])) {
      const ranks = ports.map((port) => port.shape.length);
      const found = places.map(([, dims]) => dims.length);
      if (String(ranks) !== String(found) || ranks.length !== found.length) {
        this.fail(`plan.${what}`, found, ranks);
      }
    }
    for (const command of [...program.prepare, ...program.execute]) {
      if (command[0] === "run") {
        const [, begin, end] = command;
        if (!(begin <= end && end <= launches.length)) {
          this.fail("a run", command, `launches 0 to ${launches.length}`);
        }
      }
    }
    const parameters = inputs.map((port) => port.name);
    for (const { parameter } of program.bindings) {
      if (!parameters.includes(parameter)) this.fail("a binding", parameter, parameters);
    }
  }

  // ---- plan -----------------------------------------------------------------------------------

  /**
   * What a program has that is one device's part of the IR.
   *
   * @param {any} value
   * @returns {{device: string, graphDigest: string, transfers: EdgePort[]}}
   */
  part(value) {
    if (value === undefined) return { device: "", graphDigest: "", transfers: [] };
    const fields = ["device", "graph_digest", "places", "transfers"];
    const isPart = typeof value === "object" && value !== null;
    if (!isPart || String(Object.keys(value).sort()) !== String(fields)) {
      this.fail("part", value, fields);
    }
    return {
      device: this.text(value.device, "a device"),
      graphDigest: this.text(value.graph_digest, "a digest"),
      transfers: this.rows(value.transfers, "part.transfers", 4, ([edge, end, name, type]) => ({
        edge: this.size(edge, "an edge"),
        isSend: this.choice(end, ["send", "receive"]) === "send",
        ...this.port([name, type]),
      })),
    };
  }

  /**
   * @param {Record<string, any>} value
   * @param {unknown} places of the transfers
   * @returns {PlanProgram}
   */
  plan(value, places) {
    const get = (/** @type {string} */ key) => this.field("a plan", value, key);
    const symbols = this.list(get("symbols"), "plan.symbols").map((v) => this.text(v, "a symbol"));
    const instructions = this.rows(get("instructions"), "plan.instructions", 3, (item, position) =>
      this.instruction(item, position, symbols.length),
    );
    const ssa = (/** @type {unknown} */ v) => this.below(v, "a plan value", instructions.length);
    const words = this.list(get("words"), "plan.words").map((word) => {
      const number = this.integer(word, "a word");
      return number === (number | 0) ? number : this.fail("a word", word, "an i32");
    });
    /** @type {(row: any[]) => [number, number[]]} */
    const place = ([address, dims]) => [
      ssa(address),
      this.list(dims, "sizes of a place").map(ssa),
    ];
    return {
      symbols,
      instructions,
      guards: this.rows(get("guards"), "plan.guards", 4, ([left, relation, right, text]) => [
        ssa(left),
        this.choice(relation, Object.keys(RELATIONS)),
        ssa(right),
        this.text(text, "a text"),
      ]),
      words,
      writes: this.rows(get("writes"), "plan.writes", 2, ([word, source]) => [
        this.below(word, "a written word", words.length),
        ssa(source),
      ]),
      blockAddress: this.size(get("block_address"), "plan.block_address"),
      peak: ssa(get("peak")),
      inputs: this.rows(get("inputs"), "plan.inputs", 2, place),
      outputs: this.rows(get("outputs"), "plan.outputs", 2, place),
      transfers: this.rows(places, "part.places", 2, place),
    };
  }

  /**
   * @param {any[]} item
   * @param {number} position
   * @param {number} symbols
   * @returns {[string, number, number]}
   */
  instruction([opcode, a, b], position, symbols) {
    const name = this.choice(opcode, OPCODES);
    if (name === "const") return [name, this.integer(a, "a constant"), 0];
    if (name === "symbol") return [name, this.below(a, name, symbols), 0];
    return [name, this.below(a, name, position), this.below(b, name, position)];
  }

  // ---- rows -----------------------------------------------------------------------------------

  /**
   * @param {any[]} row
   * @returns {Port}
   */
  port([name, type]) {
    const text = this.text(type, "a type");
    const { dtype, shape } = this.placed(() => parseType(text));
    if (!Object.hasOwn(ITEM_BYTES, dtype)) this.fail("a type", dtype, Object.keys(ITEM_BYTES));
    const dimTexts = splitTopLevel(text.slice(text.indexOf("[") + 1, text.lastIndexOf("]")));
    return { name: this.text(name, "a port's name"), type: text, dtype, shape, dimTexts };
  }

  /**
   * @param {any[]} row
   * @returns {Guard}
   */
  guard([left, relation, right, reason]) {
    const [a, b] = [left, right].map((side) => this.text(side, "a dim"));
    const sign = this.choice(relation, Object.keys(RELATIONS));
    const why = this.text(reason, "a reason");
    return {
      left: this.placed(() => parseDim(a)),
      relation: sign,
      right: this.placed(() => parseDim(b)),
      text: `${a} ${sign} ${b}${why ? ` (${why})` : ""}`,
    };
  }

  /**
   * @param {unknown} item
   * @returns {Command}
   */
  command(item) {
    const [kind, ...operands] = this.list(item, "a command");
    const name = this.choice(kind, Object.keys(COMMANDS));
    if (operands.length !== COMMANDS[name]) {
      this.fail(`command ${name}`, item, `a list of ${COMMANDS[name] + 1}`);
    }
    return /** @type {any} */ ([name, ...operands.map((value) => this.size(value, name))]);
  }

  // ---- values ---------------------------------------------------------------------------------

  /**
   * @param {string} what
   * @param {any} record
   * @param {string} key
   * @returns {any}
   */
  field(what, record, key) {
    if (typeof record !== "object" || record === null) {
      this.fail(what, kindOf(record), "an object");
    }
    if (!Object.hasOwn(record, key)) {
      this.fail(`${what} without ${key}`, Object.keys(record), "all fields", "program.syntax");
    }
    return record[key];
  }

  /**
   * @template T
   * @param {() => T} read
   * @returns {T}
   */
  placed(read) {
    try {
      return read();
    } catch (error) {
      if (error instanceof DimSyntax) this.fail("a text", error.message, "a type or dim");
      throw error;
    }
  }

  /**
   * @param {unknown} value
   * @param {string} field
   * @returns {any[]}
   */
  list(value, field) {
    return Array.isArray(value) ? value : this.fail(field, value, "a list");
  }

  /**
   * @template T
   * @param {unknown} value
   * @param {string} field
   * @param {number} count
   * @param {(this: Reader, row: any[], position: number) => T} read
   * @returns {T[]}
   */
  rows(value, field, count, read) {
    return this.list(value, field).map((item, position) => {
      const row = this.list(item, field);
      if (row.length !== count) this.fail(field, row, `a list of ${count}`);
      return read.call(this, row, position);
    });
  }

  /**
   * @param {unknown} value
   * @param {string} field
   * @returns {string}
   */
  text(value, field) {
    return typeof value === "string" ? value : this.fail(field, value, "a text");
  }

  /**
   * @param {unknown} value
   * @param {string[]} choices
   * @returns {string}
   */
  choice(value, choices) {
    const found = choices.find((item) => item === value);
    return found === undefined ? this.fail("a word", value, choices) : found;
  }

  /**
   * @param {unknown} value
   * @param {string} field
   * @returns {number}
   */
  integer(value, field) {
    if (typeof value === "number" && Number.isSafeInteger(value)) return value;
    return this.fail(field, value, `an integer up to ${Number.MAX_SAFE_INTEGER}`);
  }

  /**
   * @param {unknown} value
   * @param {string} field
   */
  size(value, field) {
    const number = this.integer(value, field);
    return number >= 0 ? number : this.fail(field, value, "at least 0");
  }

  /**
   * @param {unknown} value
   * @param {string} field
   * @param {number} limit
   */
  below(value, field, limit) {
    const number = this.size(value, field);
    return number < limit ? number : this.fail(field, value, `below ${limit}`);
  }

  /**
   * @param {unknown} value
   * @returns {Uint8Array}
   */
  binary(value) {
    try {
      return Uint8Array.from(atob(this.text(value, "wasm")), (unit) => unit.charCodeAt(0));
    } catch (error) {
      return this.fail("wasm", /** @type {Error} */ (error).message, "base64");
    }
  }
}

/**
 * The parts of a list whose commas lie outside parentheses.
 *
 * @param {string} text
 */
function splitTopLevel(text) {
  const parts = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i <= text.length; i += 1) {
    if (text[i] === "(") depth += 1;
    else if (text[i] === ")") depth -= 1;
    else if ((text[i] === "," && depth === 0) || i === text.length) {
      if (text.slice(start, i).trim()) parts.push(text.slice(start, i).trim());
      start = i + 1;
    }
  }
  return parts;
}
