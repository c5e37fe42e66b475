/**
 * The content of one input: zeros, ones, chance, typed numbers, a file or a picture.
 *
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 * @typedef {import("../compiler/worker.js").DeclaredInput} DeclaredInput
 */

import { checkedFetch } from "../compiler/fetching.js";
import { fileButton, h } from "./dom.js";
import { decodeImage, imageTensor, NORMALIZATIONS, resized } from "./images.js";
import { arrayFor, readNpy } from "./npy.js";
import { Report } from "./reports.js";

const LINES = [
  ["line-hello", "Hello…"],
  ["line-sum", "Total…"],
];
const DEFAULT_HEIGHT = 48;
const MAX_SIDE = 4096;

export class InputContent {
  /** @type {{blob: Blob, name: string} | null} */
  #file = null;

  /**
   * @param {DeclaredInput} input
   * @param {string} type
   * @param {boolean} isText whether the model reads text from pictures
   * @param {string} [chosen] `kind` or `values: 16000`
   */
  constructor(input, type, isText, chosen) {
    this.input = input;
    this.type = type;
    const isFloat = /^b?float/.test(type);
    const isImage = type === "float32" && input.shape.length === 4 && [1, 3].includes(Number(input.shape[1]));
    const kinds = [
      ...(isImage ? ["picture"] : []),
      ...(isFloat ? ["random"] : []),
      ...(isFloat ? [] : ["values"]),
      "zeros",
      "ones",
      ...(isFloat ? ["values"] : ["random"]),
      "file",
    ];
    const [first, values] = (chosen ?? (isText && isImage ? "picture" : kinds.find((kind) => kind !== "picture")) ?? "zeros").split(": ");
    this.kind = h(
      "select",
      { "aria-label": `content of ${input.name}`, "data-content": input.name, onchange: () => this.#show() },
      kinds.map((kind) => h("option", { value: kind, selected: kind === first }, kind)),
    );
    this.values = h("input", { type: "text", value: values ?? "0", "aria-label": `values of ${input.name}`, "data-values": input.name });
    this.seed = h("input", { type: "number", value: 1, min: 0, step: 1, "aria-label": `seed of ${input.name}` });
    this.file = fileButton("Choose a file", { "data-file": input.name }, (blob) =>
      this.#take(blob, blob.name),
    );
    this.fileName = h("span", { class: "hint", "data-chosen": "" }, "no file yet");
    const select = (/** @type {string} */ label, /** @type {string[]} */ options, /** @type {string} */ value) =>
      h(
        "select",
        { "aria-label": label },
        options.map((option) => h("option", { value: option, selected: option === value }, option)),
      );
    this.range = select("range of values", Object.keys(NORMALIZATIONS), isText ? "−1 to 1" : "0 to 1");
    this.order = select("order of channels", ["RGB", "BGR"], isText ? "BGR" : "RGB");
    this.fit = select("size of the picture", ["scale", "exact"], "scale");
    this.lines = isText
      ? LINES.map(([name, title]) =>
          h("button", { type: "button", "data-sample": name, onclick: () => this.#takeSample(name) }, `Sample: ${title}`),
        )
      : [];
    /** @type {Record<string, Node[]>} */
    this.parts = {
      values: [this.values],
      random: [h("label", {}, "seed ", this.seed)],
      file: [this.file, this.fileName],
      picture: [...this.lines, this.file, this.fileName, this.range, this.order, this.fit],
    };
    this.details = h("span", { class: "details" });
    this.element = h("div", { class: "row content" }, h("label", {}, "content ", this.kind), this.details);
    this.#show();
  }

  /**
   * @param {number[]} dims
   * @returns {Promise<PlainTensor>}
   */
  async tensor(dims) {
    const kind = this.kind.value;
    if (kind === "picture") return this.#picture(dims);
    if (kind === "file") return this.#fromFile(dims);
    const array = arrayFor(this.type);
    const count = dims.reduce((a, b) => a * b, 1);
    const isBig = /64$/.test(this.type) && this.type !== "float64";
    const fillWith = (/** @type {number} */ value) =>
      new array(count).fill(isBig ? BigInt(value) : this.type === "float16" && value ? 0x3c00 : value);
    if (kind === "zeros") return { type: this.type, data: fillWith(0), dims };
    if (kind === "ones") return { type: this.type, data: fillWith(1), dims };
    if (kind === "values") return { type: this.type, data: this.#typed(array, count, isBig), dims };
    return { type: this.type, data: this.#random(array, count, isBig), dims };
  }

  #show() {
    this.details.replaceChildren(...(this.parts[this.kind.value] ?? []));
  }

  /**
   * @param {Blob} blob
   * @param {string} name
   */
  #take(blob, name) {
    this.#file = { blob, name };
    this.fileName.textContent = name;
    this.fileName.dataset.chosen = name;
  }

  /** @param {string} name */
  async #takeSample(name) {
    this.fileName.textContent = "…";
    const response = await checkedFetch(new URL(`samples/${name}.png`, document.baseURI));
    this.#take(await response.blob(), `${name}.png`);
  }

  #chosen() {
    if (this.#file) return this.#file;
    throw new Report("input.empty", `${this.input.name}: choose a file first`);
  }

  /**
   * @param {any} array
   * @param {number} count
   * @param {boolean} isBig
   */
  #typed(array, count, isBig) {
    const words = this.values.value.split(/[\s,]+/).filter(Boolean);
    const numbers = words.map((word) => {
      const isInteger = /^[+-]?\d+$/.test(word);
      const isFloat = /^b?float/.test(this.type);
      if (isInteger || (isFloat && word !== "" && !Number.isNaN(Number(word)))) {
        return isBig ? BigInt(word) : Number(word);
      }
      throw new Report("input.values", `${this.input.name}: not a number; found ${word}`);
    });
    if (numbers.length !== count && numbers.length !== 1) {
      throw new Report(
        "input.values",
        `${this.input.name}: the shape has ${count} elements; found ${numbers.length} values; allowed: 1 or ${count}`,
      );
    }
    return numbers.length === 1 ? new array(count).fill(numbers[0]) : array.from(numbers);
  }

  /**
   * The same numbers for the same seed: mulberry32, floats in −1 to 1, integers 0 to 9.
   *
   * @param {any} array
   * @param {number} count
   * @param {boolean} isBig
   */
  #random(array, count, isBig) {
    let state = Number(this.seed.value) >>> 0;
    const next = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
    const data = new array(count);
    const isHalf = this.type.endsWith("float16");
    for (let i = 0; i < count; i += 1) {
      const value = next();
      if (/^float(32|64)$/.test(this.type)) data[i] = 2 * value - 1;
      else if (isHalf) data[i] = Math.floor(value * 0x3800); // bits of a number below 0.5
      else if (this.type === "bool") data[i] = value < 0.5 ? 0 : 1;
      else data[i] = isBig ? BigInt(Math.floor(value * 10)) : Math.floor(value * 10);
    }
    return data;
  }

  /** @param {number[]} dims */
  async #fromFile(dims) {
    const { blob, name } = this.#chosen();
    const array = arrayFor(this.type);
    const buffer = await blob.arrayBuffer();
    if (name.endsWith(".npy")) {
      const tensor = readNpy(buffer, name);
      if (tensor.type !== this.type) {
        throw new Report("input.dtype", `${name}: another element type; found ${tensor.type}; allowed: ${this.type}`);
      }
      return tensor;
    }
    const expected = dims.reduce((a, b) => a * b, 1) * array.BYTES_PER_ELEMENT;
    if (buffer.byteLength !== expected) {
      throw new Report(
        "input.bytes",
        `${name}: not the bytes of ${this.type} [${dims.join(", ")}]; found ${buffer.byteLength}; allowed: ${expected}`,
      );
    }
    return { type: this.type, data: new array(buffer), dims };
  }

  /** @param {number[]} dims */
  async #picture(dims) {
    const { blob, name } = this.#chosen();
    const picture = await decodeImage(blob, name);
    const { shape } = this.input;
    const isFree = shape.map((dim) => typeof dim !== "number");
    const height = dims[2] || DEFAULT_HEIGHT;
    // An open width follows the picture's form, so that letters keep theirs.
    const width = isFree[3]
      ? Math.min(MAX_SIDE, Math.max(1, Math.round((picture.width * height) / picture.height)))
      : dims[3];
    if (this.fit.value === "exact" && (picture.width !== dims[3] || picture.height !== dims[2])) {
      throw new Report(
        "image.size",
        `${name}: the picture has the wrong size; found ${picture.width}×${picture.height}; allowed: ${dims[3]}×${dims[2]}`,
      );
    }
    const sized = this.fit.value === "exact" ? picture : resized(picture, width, height);
    const order = this.order.value === "BGR" ? "BGR" : "RGB";
    const one = imageTensor(sized, { ...NORMALIZATIONS[this.range.value], order }, dims[1]);
    const batch = dims[0];
    if (batch === 1) return one;
    const data = new Float32Array(batch * one.data.length);
    for (let item = 0; item < batch; item += 1) data.set(one.data, item * one.data.length);
    return { ...one, data, dims: [batch, ...one.dims.slice(1)] };
  }
}
