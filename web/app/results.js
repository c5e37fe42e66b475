/**
 * Results: bars for classes, tensors with their digests, times.
 *
 * @typedef {import("./runner.js").PlainTensor} PlainTensor
 * @typedef {import("./runner.js").RunAnswer} RunAnswer
 */

import { bytesText, h, timeText } from "./dom.js";
import { contentDigest, writeNpy } from "./npy.js";

const SHOWN_VALUES = 6;

/**
 * Classes by probability, the likeliest first in words.
 *
 * @param {string[]} names
 * @param {ArrayLike<number>} values
 * @param {string} [lead] words before the likeliest
 */
export function bars(names, values, lead = "") {
  let best = 0;
  for (let i = 1; i < names.length; i += 1) if (values[i] > values[best]) best = i;
  return h(
    "div",
    { class: "bars" },
    h(
      "p",
      { class: "answer" },
      lead ? `${lead} ` : "",
      h("strong", { id: "answer", "data-class": best }, names[best]),
      h("span", { class: "hint" }, ` p = ${values[best].toFixed(3)}`),
    ),
    h(
      "ul",
      { "aria-label": "probability of every class" },
      names.map((name, i) =>
        h(
          "li",
          { class: i === best ? "best" : null },
          h("span", { class: "name" }, name),
          h("meter", { min: 0, max: 1, value: Math.max(0, Math.min(1, values[i])), "aria-label": name }),
          h("span", { class: "value" }, values[i].toFixed(3)),
        ),
      ),
    ),
  );
}

/**
 * The likeliest few of many classes.
 *
 * @param {PlainTensor} output
 * @param {number} [count]
 */
export function topClasses({ data, dims }, count = 5) {
  const order = Array.from(data.slice(0, dims[dims.length - 1]), (_, i) => i)
    .sort((a, b) => data[b] - data[a])
    .slice(0, count);
  return bars(
    order.map((i) => `class ${i}`),
    order.map((i) => data[i]),
  );
}

/**
 * A table of tensors, each to be saved as `.npy`.
 *
 * @param {string} title
 * @param {Record<string, PlainTensor>} tensors
 */
export function tensorTable(title, tensors) {
  const rows = Object.entries(tensors).map(([name, tensor]) => {
    const digest = h("td", { class: "digest" }, "…");
    contentDigest(tensor).then((text) => {
      digest.textContent = text ?? "not in this page (no secure context)";
      digest.dataset.ready = "";
    });
    const save = h("button", { type: "button", class: "save", "data-tensor": name }, "Save .npy");
    save.addEventListener("click", () => saveFile(`${fileName(name)}.npy`, writeNpy(tensor)));
    return h(
      "tr",
      { "data-name": name },
      h("th", { scope: "row" }, name),
      h("td", {}, `${tensor.type} [${tensor.dims.join(", ")}]`),
      h("td", { class: "numbers" }, firstValues(tensor)),
      digest,
      h("td", {}, save),
    );
  });
  const heads = ["name", "type", "first values", "SHA-256 of the content", ""];
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "tensors", "data-kind": title },
      h("caption", {}, title),
      h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows),
    ),
  );
}

/** @param {PlainTensor} tensor */
function firstValues({ type, data }) {
  const shown = Array.from(data.slice(0, SHOWN_VALUES), (value) =>
    /^float(32|64)$/.test(type) ? Number(value).toPrecision(5) : String(value),
  );
  return shown.join(", ") + (data.length > SHOWN_VALUES ? ", …" : "");
}

/**
 * Times, memory and counts of a run.
 *
 * @param {RunAnswer} answer
 */
export function timesList({ first, times, peak, counts }) {
  const rows = [
    ["first run", timeText(first)],
    ["median", times.length ? `${timeText(median(times))} of ${times.length}` : "one run only"],
    ["memory", `${bytesText(peak)} planned, ${bytesText(counts.memory)} held`],
    ["plans", String(counts.plans)],
  ];
  return h(
    "dl",
    { class: "times" },
    rows.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", { "data-figure": name }, text))),
  );
}

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Hand a file to the user.
 *
 * @param {string} name
 * @param {Blob} content
 */
export function saveFile(name, content) {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** @param {string} name */
function fileName(name) {
  return name.replace(/[^\w.-]+/g, "_") || "tensor";
}
