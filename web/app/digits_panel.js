/**
 * Drawing a digit. What is drawn is cut out, scaled to 32×32 and averaged over 4×4 blocks, as the
 * images were made that the network was trained on (UCI "Optical Recognition of Handwritten
 * Digits").
 *
 * @typedef {import("./panels.js").Panel} Panel
 */

import { bars } from "./results.js";
import { h } from "./dom.js";
import { fetchJson } from "./download.js";
import { Report } from "./reports.js";

const SIDE = 256;
const PEN = 26;
const GRID = 8;
const BITMAP = 32;
const BLOCK = BITMAP / GRID;
/** Ink below this share of black is paper. */
const PAPER = 0.06;

/** @implements {Panel} */
export class DigitsPanel {
  /** @param {() => void} run */
  constructor(run) {
    this.run = run;
    this.canvas = h("canvas", {
      width: SIDE,
      height: SIDE,
      class: "pad",
      id: "pad",
      tabindex: 0,
      role: "img",
      "aria-label": "Drawing area: draw a digit with mouse, finger or pen",
    });
    this.context = /** @type {CanvasRenderingContext2D} */ (
      this.canvas.getContext("2d", { willReadFrequently: true })
    );
    this.seen = h("canvas", { width: GRID, height: GRID, class: "seen", role: "img" });
    this.seen.setAttribute("aria-label", "What the network sees: 8 by 8 pixels");
    this.samples = h("div", { class: "strip", role: "group", "aria-label": "Held-out samples" });
    this.clear();
    this.#listen();
    this.element = h(
      "div",
      { class: "panel digits" },
      h("div", { class: "pad-row" }, this.canvas, h("figure", {}, this.seen, h("figcaption", {}, "what the network sees"))),
      h(
        "div",
        { class: "row" },
        h("button", { type: "button", id: "clear-pad", onclick: () => this.clear() }, "Clear"),
        h("span", { class: "hint" }, "Draw a digit, or take one that the network has never seen:"),
      ),
      this.samples,
    );
    this.#addSamples();
  }

  clear() {
    this.context.fillStyle = "#fff";
    this.context.fillRect(0, 0, SIDE, SIDE);
    this.seen.getContext("2d")?.clearRect(0, 0, GRID, GRID);
  }

  /** `input.empty` where nothing was drawn. */
  async feeds() {
    const ink = this.#ink();
    const data = blocks(ink);
    this.#show(data);
    return { image: { type: "float32", data, dims: [1, 1, GRID, GRID] } };
  }

  /** @param {Record<string, import("./runner.js").PlainTensor>} outputs */
  show(outputs) {
    const [{ data }] = Object.values(outputs);
    return bars([..."0123456789"], data);
  }

  #listen() {
    const { canvas, context } = this;
    let drawing = false;
    const place = (/** @type {PointerEvent} */ event) => {
      const { left, top, width, height } = canvas.getBoundingClientRect();
      return [((event.clientX - left) / width) * SIDE, ((event.clientY - top) / height) * SIDE];
    };
    canvas.addEventListener("pointerdown", (event) => {
      drawing = true;
      canvas.setPointerCapture(event.pointerId);
      context.strokeStyle = "#000";
      context.lineWidth = PEN;
      context.lineCap = context.lineJoin = "round";
      const [x, y] = place(event);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x, y + 0.1);
      context.stroke();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drawing) return;
      const [x, y] = place(event);
      context.lineTo(x, y);
      context.stroke();
    });
    canvas.addEventListener("pointerup", () => {
      if (drawing) this.run();
      drawing = false;
    });
    canvas.addEventListener("pointercancel", () => (drawing = false));
  }

  async #addSamples() {
    const rows = await fetchJson("samples/digits.json").catch(() => []);
    for (const { label, pixels } of rows) {
      const picture = h("canvas", { width: GRID, height: GRID });
      paint(picture, pixels.map((/** @type {number} */ value) => value / 16));
      const take = () => {
        this.#draw(picture);
        this.run();
      };
      this.samples.append(
        h(
          "button",
          { type: "button", class: "sample", "data-label": label, "aria-label": `sample of a ${label}`, onclick: take },
          picture,
        ),
      );
    }
  }

  /**
   * A sample as if it had been drawn.
   *
   * @param {HTMLCanvasElement} picture
   */
  #draw(picture) {
    this.clear();
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(picture, 0, 0, SIDE, SIDE);
  }

  /** Share of black of every pixel. */
  #ink() {
    const { data } = this.context.getImageData(0, 0, SIDE, SIDE);
    return Float32Array.from({ length: SIDE * SIDE }, (_, i) => 1 - data[4 * i] / 255);
  }

  /** @param {Float32Array} values */
  #show(values) {
    paint(this.seen, [...values]);
  }
}

/**
 * @param {HTMLCanvasElement} canvas of 8×8 pixels
 * @param {number[]} values share of black
 */
function paint(canvas, values) {
  const image = new ImageData(GRID, GRID);
  values.forEach((value, i) => {
    image.data.fill(255 * (1 - value), 4 * i, 4 * i + 3);
    image.data[4 * i + 3] = 255;
  });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}

/**
 * The drawing, cut out and averaged: f32 [8, 8] in steps of 1/16.
 *
 * @param {Float32Array} ink
 * @returns {Float32Array<ArrayBuffer>}
 */
function blocks(ink) {
  let [left, top, right, bottom] = [SIDE, SIDE, -1, -1];
  for (let y = 0; y < SIDE; y += 1) {
    for (let x = 0; x < SIDE; x += 1) {
      if (ink[y * SIDE + x] > PAPER) {
        left = Math.min(left, x);
        right = Math.max(right, x);
        top = Math.min(top, y);
        bottom = Math.max(bottom, y);
      }
    }
  }
  if (right < 0) throw new Report("input.empty", "nothing was drawn yet");
  // The longer side fills the bitmap, the other is centred.
  const side = Math.max(right - left, bottom - top) + 1;
  const x0 = (left + right + 1 - side) / 2;
  const y0 = (top + bottom + 1 - side) / 2;
  const cell = side / BITMAP;
  const data = new Float32Array(GRID * GRID);
  for (let row = 0; row < BITMAP; row += 1) {
    for (let column = 0; column < BITMAP; column += 1) {
      const value = mean(ink, x0 + column * cell, y0 + row * cell, cell);
      data[Math.floor(row / BLOCK) * GRID + Math.floor(column / BLOCK)] += value;
    }
  }
  return data.map((sum) => Math.round(sum) / (BLOCK * BLOCK));
}

/**
 * Mean ink of a square; what lies outside is paper.
 *
 * @param {Float32Array} ink
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
function mean(ink, x, y, size) {
  let sum = 0;
  let count = 0;
  for (let row = Math.floor(y); row < Math.max(y + size, Math.floor(y) + 1); row += 1) {
    for (let column = Math.floor(x); column < Math.max(x + size, Math.floor(x) + 1); column += 1) {
      count += 1;
      if (row >= 0 && row < SIDE && column >= 0 && column < SIDE) sum += ink[row * SIDE + column];
    }
  }
  return sum / count;
}
