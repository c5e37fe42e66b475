/** An SVG that is moved by dragging and scaled by wheel, buttons and keys. */

import { h } from "./dom.js";

const STEP = 1.3;
const PAN = 60;
const LIMITS = [0.02, 40];

export class PanZoom {
  #left = 0;
  #top = 0;
  /** Pixels of the screen a unit of the picture takes. */
  #scale = 1;

  /**
   * @param {SVGSVGElement} picture
   * @param {{width: number, height: number, start?: number}} size of the picture in its own units,
   *   and where its beginning lies: the left edge for 0, else what comes to the middle
   * @param {string} label
   */
  constructor(picture, size, label) {
    this.picture = picture;
    this.size = size;
    picture.setAttribute("tabindex", "0");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", `${label}; arrow keys move, plus and minus scale, 0 fits`);
    picture.classList.add("pan-zoom");
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) =>
      h("button", { type: "button", title, "aria-label": title, onclick: act }, text);
    this.element = h(
      "div",
      { class: "picture" },
      h(
        "div",
        { class: "row tools" },
        button("+", "larger", () => this.#zoom(STEP)),
        button("−", "smaller", () => this.#zoom(1 / STEP)),
        button("fit", "whole picture", () => this.fit()),
        button("1:1", "readable size", () => this.readable()),
        h("button", { type: "button", class: "save-picture" }, "Save SVG"),
      ),
      picture,
    );
    this.#listen();
    new ResizeObserver(() => this.#apply()).observe(picture);
  }

  /** Show the whole picture. */
  fit() {
    const { clientWidth, clientHeight } = this.picture;
    if (!clientWidth) return;
    const { width, height } = this.size;
    this.#scale = Math.min(clientWidth / width, clientHeight / height);
    this.#left = (width - clientWidth / this.#scale) / 2;
    this.#top = (height - clientHeight / this.#scale) / 2;
    this.#apply();
  }

  /** Show the beginning in the size it was drawn for. */
  readable() {
    this.#scale = 1;
    const { width, start = width / 2 } = this.size;
    this.#left = start === 0 ? 0 : start - this.picture.clientWidth / 2;
    this.#top = 0;
    this.#apply();
  }

  /**
   * @param {number} factor
   * @param {number} [x] point of the screen that stays
   * @param {number} [y]
   */
  #zoom(factor, x = this.picture.clientWidth / 2, y = this.picture.clientHeight / 2) {
    const scale = Math.min(LIMITS[1], Math.max(LIMITS[0], this.#scale * factor));
    this.#left += x / this.#scale - x / scale;
    this.#top += y / this.#scale - y / scale;
    this.#scale = scale;
    this.#apply();
  }

  #listen() {
    const { picture } = this;
    picture.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const { left, top } = picture.getBoundingClientRect();
        this.#zoom(event.deltaY < 0 ? STEP : 1 / STEP, event.clientX - left, event.clientY - top);
      },
      { passive: false },
    );
    /** @type {[number, number] | null} */
    let last = null;
    picture.addEventListener("pointerdown", (event) => {
      last = [event.clientX, event.clientY];
      picture.setPointerCapture(event.pointerId);
    });
    picture.addEventListener("pointermove", (event) => {
      if (!last) return;
      this.#left -= (event.clientX - last[0]) / this.#scale;
      this.#top -= (event.clientY - last[1]) / this.#scale;
      last = [event.clientX, event.clientY];
      this.#apply();
    });
    for (const end of ["pointerup", "pointercancel"]) picture.addEventListener(end, () => (last = null));
    picture.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const pan = PAN / this.#scale;
    /** @type {Record<string, () => void>} */
    const keys = {
      "+": () => this.#zoom(STEP),
      "-": () => this.#zoom(1 / STEP),
      0: () => this.fit(),
      ArrowLeft: () => (this.#left -= pan),
      ArrowRight: () => (this.#left += pan),
      ArrowUp: () => (this.#top -= pan),
      ArrowDown: () => (this.#top += pan),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    this.#apply();
  }

  #apply() {
    const { clientWidth, clientHeight } = this.picture;
    if (!clientWidth) return;
    const box = [this.#left, this.#top, clientWidth / this.#scale, clientHeight / this.#scale];
    this.picture.setAttribute("viewBox", box.map((value) => value.toFixed(2)).join(" "));
  }
}
