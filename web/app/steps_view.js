/**
 * The steps from a file to a result: how far each is, how long it took, and the cancel button.
 *
 * @typedef {import("./open_model.js").StepName} StepName
 * @typedef {import("./open_model.js").StepReport} StepReport
 */

import { bytesText, h, timeText } from "./dom.js";

/** @type {[StepName, string][]} */
const STEPS = [
  ["download", "Model"],
  ["python", "Python"],
  ["compile", "Compile"],
  ["weights", "Load"],
  ["run", "Run"],
];
/** Steps whose progress counts bytes. */
const BYTES = ["download", "python", "weights"];

export class StepsView {
  /** @type {Map<StepName, {row: HTMLElement, bar: HTMLProgressElement, note: HTMLElement, start: number}>} */
  #rows = new Map();

  /** @param {() => void} cancel */
  constructor(cancel) {
    this.button = h("button", { type: "button", id: "cancel", disabled: true, onclick: cancel }, "Cancel");
    this.element = h(
      "section",
      { class: "steps", "aria-label": "Progress" },
      h(
        "ol",
        {},
        STEPS.map(([step, title]) => {
          const bar = h("progress", { max: 1, value: 0, "aria-label": title });
          const note = h("span", { class: "note" });
          const row = h("li", { "data-step": step, "data-state": "waiting" }, h("span", { class: "title" }, title), bar, note);
          this.#rows.set(step, { row, bar, note, start: 0 });
          return row;
        }),
      ),
      this.button,
    );
  }

  reset() {
    for (const { row, bar, note } of this.#rows.values()) {
      row.dataset.state = "waiting";
      bar.value = 0;
      note.textContent = "";
    }
  }

  /** @param {boolean} isBusy */
  setBusy(isBusy) {
    this.button.disabled = !isBusy;
    this.element.setAttribute("aria-busy", String(isBusy));
  }

  /** @param {StepReport} report */
  update({ step, done, total, detail, ended }) {
    const found = this.#rows.get(step);
    if (!found) return;
    const { row, bar, note } = found;
    if (row.dataset.state !== "active") {
      if (ended && row.dataset.state === "done" && detail === undefined) return;
      if (!ended) {
        found.start = performance.now();
        row.dataset.state = "active";
        bar.removeAttribute("value");
      }
    }
    if (done !== undefined && total) bar.value = Math.min(1, done / total);
    const shownBytes = BYTES.includes(step) && total && total > 1;
    if (detail || shownBytes) {
      const bytes = shownBytes ? `${bytesText(Number(done))} of ${bytesText(total)}` : "";
      note.textContent = [detail, bytes].filter(Boolean).join(" ");
    }
    if (ended) {
      const isNew = row.dataset.state === "active";
      row.dataset.state = "done";
      bar.value = 1;
      const spent = isNew ? timeText(performance.now() - found.start) : "not needed";
      note.textContent = detail && !/ ms$/.test(detail) ? detail : spent;
    }
  }

  /** @param {"failed" | "cancelled"} state */
  stop(state) {
    for (const { row, bar, note } of this.#rows.values()) {
      if (row.dataset.state === "active") {
        row.dataset.state = state;
        bar.value = 0;
        note.textContent = state;
      }
    }
  }
}
