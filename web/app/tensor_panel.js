/**
 * Typed inputs for any model: sizes for open dims, content from numbers, chance, a file or a picture.
 *
 * @typedef {import("./panels.js").Panel} Panel
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 * @typedef {import("../compiler/worker.js").Description} Description
 * @typedef {import("../compiler/worker.js").DeclaredInput} DeclaredInput
 * @typedef {{sizes?: Record<string, number>, fills?: Record<string, string>}} Defaults
 *   by input and axis (`input.1`), and the content as `values: 16000`
 */

import { TYPE_NAMES } from "../runtime/tensor.js";
import { alphabetOf, decodeText } from "./ctc.js";
import { h } from "./dom.js";
import { InputContent } from "./input_content.js";
import { Report } from "./reports.js";
import { topClasses } from "./results.js";

const MAX_ELEMENTS = 1 << 28;
const MAX_CLASSES = 2000;
const OPEN_SIZE = 64;

/** @implements {Panel} */
export class TensorPanel {
  /** @type {InputFields[]} */
  #fields = [];
  /** @type {string[] | null} */
  #alphabet = null;

  /**
   * @param {() => void} run
   * @param {Defaults} [defaults]
   */
  constructor(run, defaults = {}) {
    this.defaults = defaults;
    this.form = h("div", { class: "inputs" }, h("p", { class: "hint" }, "the model's inputs come here"));
    this.element = h(
      "div",
      { class: "panel tensors" },
      this.form,
      h("div", { class: "row" }, h("button", { type: "button", class: "primary", id: "run", onclick: run }, "Run")),
    );
  }

  /** @param {Description} description */
  describe({ inputs, metadata }) {
    this.#alphabet = alphabetOf(metadata);
    const isText = this.#alphabet !== null;
    this.#fields = inputs.map((input) => new InputFields(input, this.defaults, isText));
    linkSizes(this.#fields);
    this.form.replaceChildren(...this.#fields.map(({ element }) => element));
  }

  async feeds() {
    if (!this.#fields.length) throw new Report("input.none", "the model has not been read yet");
    const entries = [];
    for (const field of this.#fields) {
      entries.push([field.input.name, await field.tensor()]);
    }
    return Object.fromEntries(entries);
  }

  /** @param {Record<string, PlainTensor>} outputs */
  show(outputs) {
    const [first, ...rest] = Object.values(outputs);
    const lines = this.#alphabet && decodeText(first, this.#alphabet);
    if (lines) {
      return h(
        "div",
        { class: "texts" },
        lines.map(({ text, confidence }) =>
          h(
            "p",
            { class: "answer" },
            "reads ",
            h("strong", { class: "text", id: "answer" }, text || "(nothing)"),
            h("span", { class: "hint" }, ` mean p = ${confidence.toFixed(3)}`),
          ),
        ),
      );
    }
    const { type, dims } = first;
    const classes = dims[dims.length - 1];
    const isClasses = dims.length === 2 && classes > 1 && classes <= MAX_CLASSES;
    return type === "float32" && !rest.length && isClasses ? topClasses(first) : null;
  }
}

/** The fields of one input. */
class InputFields {
  /**
   * @param {DeclaredInput} input
   * @param {Defaults} defaults
   * @param {boolean} isText whether the model reads text
   */
  constructor(input, defaults, isText) {
    this.input = input;
    const { name, dtype, shape } = input;
    this.type = TYPE_NAMES[dtype];
    this.sizes = shape.map((dim, axis) => {
      if (typeof dim === "number") return null;
      const chosen = defaults.sizes?.[`${name}.${axis}`] ?? openSize(shape, axis, isText);
      return h("input", {
        type: "number",
        min: 1,
        step: 1,
        value: chosen,
        "data-input": name,
        "data-axis": axis,
        "aria-label": `${name}: size of axis ${axis} (${dim})`,
      });
    });
    this.content = new InputContent(input, this.type, isText, defaults.fills?.[name]);
    this.element = h(
      "fieldset",
      { class: "input", "data-input": name },
      h("legend", {}, h("code", {}, name), ` ${this.type ?? dtype}`),
      h(
        "div",
        { class: "row sizes" },
        shape.length ? "shape" : "a single value",
        shape.map((dim, axis) =>
          typeof dim === "number"
            ? h("span", { class: "size" }, dim)
            : h("label", { class: "size" }, h("span", { class: "hint" }, dim), this.sizes[axis]),
        ),
      ),
      this.content.element,
    );
  }

  /** @returns {Promise<PlainTensor>} */
  async tensor() {
    const { name, shape } = this.input;
    const dims = shape.map((dim, axis) => {
      if (typeof dim === "number") return dim;
      const size = Number(this.sizes[axis]?.value);
      if (!Number.isInteger(size) || size < 1) {
        throw new Report(
          "input.size",
          `${name}: axis ${axis} has no usable size; found ${this.sizes[axis]?.value || "nothing"}; allowed: integers from 1`,
        );
      }
      return size;
    });
    const count = dims.reduce((a, b) => a * b, 1);
    if (count > MAX_ELEMENTS) {
      throw new Report("input.size", `${name}: too many elements; found ${count}; allowed: at most ${MAX_ELEMENTS}`);
    }
    const tensor = await this.content.tensor(dims);
    tensor.dims.forEach((size, axis) => {
      const field = this.sizes[axis];
      if (field) field.value = String(size); // a file or a picture has sizes of its own
    });
    return tensor;
  }
}

/**
 * Sizes of one name are one size: the first is the default of all, and a change goes to all.
 *
 * @param {InputFields[]} fields
 */
function linkSizes(fields) {
  /** @type {Map<string, HTMLInputElement[]>} */
  const named = new Map();
  for (const { input, sizes } of fields) {
    sizes.forEach((field, axis) => {
      if (field) named.set(String(input.shape[axis]), [...(named.get(String(input.shape[axis])) ?? []), field]);
    });
  }
  for (const linked of named.values()) {
    const spread = (/** @type {string} */ value) => linked.forEach((field) => (field.value = value));
    spread(linked[0].value);
    for (const field of linked) field.addEventListener("input", () => spread(field.value));
  }
}

/**
 * A first guess: batches of one, lines of text 48 high and 320 wide.
 *
 * @param {(number | string)[]} shape
 * @param {number} axis
 * @param {boolean} isText
 */
function openSize(shape, axis, isText) {
  if (axis === 0) return 1;
  if (shape.length === 4 && axis >= 2) {
    if (isText) return axis === 2 ? 48 : 320;
    return 224;
  }
  return OPEN_SIZE;
}
