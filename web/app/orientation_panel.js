/**
 * Which way up a page lies: a picture of one's own or a sample, turned by quarters.
 *
 * @typedef {import("./panels.js").Panel} Panel
 * @typedef {import("./images.js").Picture} Picture
 */

import { fileButton, h } from "./dom.js";
import { checkedFetch } from "../compiler/fetching.js";
import {
  centreCrop,
  decodeImage,
  imageTensor,
  NORMALIZATIONS,
  pictureCanvas,
  resized,
  turned,
} from "./images.js";
import { Report } from "./reports.js";
import { bars } from "./results.js";

const SIDE = 224;
const SHORT_SIDE = 256;
const LEAST = 32;
const PREVIEW = 220;
const CLASSES = ["0°", "90°", "180°", "270°"];
const SAMPLES = [
  ["page-notes", "Notes"],
  ["page-invoice", "Invoice"],
];

/** @implements {Panel} */
export class OrientationPanel {
  /** @type {Picture | null} */
  #picture = null;
  #quarters = 0;

  /**
   * @param {() => void} run
   * @param {(error: unknown) => void} onError
   */
  constructor(run, onError) {
    this.run = run;
    this.onError = onError;
    this.preview = h("div", { class: "preview", "aria-live": "polite" }, h("p", { class: "hint" }, "no page yet"));
    this.element = h(
      "div",
      { class: "panel orientation" },
      h(
        "div",
        { class: "row" },
        fileButton("Choose a picture of a page", { id: "page-file", accept: "image/*" }, (file) =>
          this.#take(file, file.name),
        ),
        SAMPLES.map(([name, title]) =>
          h(
            "button",
            { type: "button", "data-sample": name, onclick: () => this.#takeSample(name) },
            `Sample: ${title}`,
          ),
        ),
        h("button", { type: "button", id: "turn", onclick: () => this.#turn() }, "Turn by 90°"),
      ),
      this.preview,
    );
  }

  async feeds() {
    if (!this.#picture) throw new Report("input.empty", "choose a page first");
    const page = turned(this.#picture, this.#quarters);
    const scale = SHORT_SIDE / Math.min(page.width, page.height);
    const [width, height] = [page.width, page.height].map((size) =>
      Math.max(SIDE, Math.round(size * scale)),
    );
    const seen = centreCrop(resized(page, width, height), SIDE, SIDE);
    return { x: imageTensor(seen, NORMALIZATIONS.ImageNet) };
  }

  /** @param {Record<string, import("./runner.js").PlainTensor>} outputs */
  show(outputs) {
    const [{ data }] = Object.values(outputs);
    return bars(CLASSES, data, "turned clockwise by");
  }

  /** @param {string} name */
  async #takeSample(name) {
    try {
      const response = await checkedFetch(new URL(`samples/${name}.png`, document.baseURI));
      await this.#take(await response.blob(), `${name}.png`);
    } catch (error) {
      this.onError(error);
    }
  }

  /**
   * @param {Blob} file
   * @param {string} name
   */
  async #take(file, name) {
    try {
      this.#picture = await decodeImage(file, name, LEAST);
      this.#quarters = 0;
      this.#show();
      this.run();
    } catch (error) {
      this.onError(error);
    }
  }

  #turn() {
    this.#quarters = (this.#quarters + 1) % 4;
    if (!this.#picture) return;
    this.#show();
    this.run();
  }

  #show() {
    if (!this.#picture) return;
    const { width, height } = this.#picture;
    const scale = Math.min(1, PREVIEW / Math.max(width, height));
    const small = resized(this.#picture, Math.round(width * scale), Math.round(height * scale));
    const canvas = pictureCanvas(turned(small, this.#quarters));
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `the page, turned by ${90 * this.#quarters}°`);
    this.preview.replaceChildren(canvas);
  }
}
