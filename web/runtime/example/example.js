/** Runs the bundle beside this file on inputs that are made up here. */

import { InferenceSession, Tensor } from "./runtime/index.js";

const element = (/** @type {string} */ id) =>
  /** @type {HTMLElement} */ (document.getElementById(id));
const form = /** @type {HTMLFormElement} */ (element("feeds"));
const runButton = /** @type {HTMLButtonElement} */ (element("run"));
const cancelButton = /** @type {HTMLButtonElement} */ (element("cancel"));
const bar = /** @type {HTMLProgressElement} */ (element("progress"));
const status = element("status");

/** @type {AbortController | null} */
let controller = null;

/**
 * Show what `work` says at its end, or why it failed.
 *
 * @param {(options: {signal: AbortSignal, onProgress: Function}) => Promise<string>} work
 */
async function attempt(work) {
  controller = new AbortController();
  cancelButton.disabled = false;
  runButton.disabled = true;
  delete status.dataset.failed;
  try {
    status.textContent = await work({ signal: controller.signal, onProgress: show });
    bar.value = bar.max;
  } catch (error) {
    status.dataset.failed = "";
    status.textContent = /** @type {Error} */ (error).message;
  }
  cancelButton.disabled = true;
  runButton.disabled = !session;
}

/** @param {{step: string, done: number, total: number}} progress */
function show({ step, done, total }) {
  status.textContent = `${step} …`;
  bar.max = total || 1;
  bar.value = done;
}

/** @param {import("./runtime/session.js").ValueMetadata} metadata */
function addInput({ name, type, shape }) {
  const group = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.textContent = `${name}: ${type}`;
  group.append(legend);
  /** @type {(text: string, key: string, value: any) => void} */
  const field = (text, key, value) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { name: `${name}.${key}`, value });
    label.append(`${text} `, input);
    group.append(label);
  };
  shape.forEach((size, axis) => {
    if (typeof size === "string") field(size, String(axis), axis ? 64 : 1);
  });
  field("value, or “random”", "fill", type.startsWith("float") ? "random" : 0);
  element("inputs").append(group);
}

/** @param {import("./runtime/session.js").ValueMetadata} metadata */
function readInput({ name, type, shape }) {
  const values = new FormData(form);
  const dims = shape.map((size, axis) =>
    typeof size === "string" ? Number(values.get(`${name}.${axis}`)) : size,
  );
  const fill = String(values.get(`${name}.fill`));
  const count = dims.reduce((a, b) => a * b, 1);
  const value = () => (fill === "random" ? Math.random() : Number(fill));
  const isBig = type.endsWith("int64");
  const data = Array.from({ length: count }, () => (isBig ? BigInt(Math.round(value())) : value()));
  return new Tensor(/** @type {any} */ (type), /** @type {any} */ (data), dims);
}

/** @param {Record<string, Tensor>} outputs */
function showOutputs(outputs) {
  const rows = Object.entries(outputs).map(([name, { type, dims, data }]) => {
    const row = document.createElement("tr");
    const first = Array.from(/** @type {any} */ (data.slice(0, 8)), (item) =>
      typeof item === "number" ? Number(item.toPrecision(6)) : item,
    );
    for (const text of [name, type, dims.join(" × ") || "scalar", first.join(", ")]) {
      row.append(Object.assign(document.createElement("td"), { textContent: text }));
    }
    return row;
  });
  element("outputs").replaceChildren(...rows);
}

/** @type {InferenceSession | undefined} */
let session;

cancelButton.addEventListener("click", () => controller?.abort());
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const opened = /** @type {InferenceSession} */ (session);
  attempt(async (options) => {
    const feeds = Object.fromEntries(
      opened.inputMetadata.map((metadata) => [metadata.name, readInput(metadata)]),
    );
    const start = performance.now();
    showOutputs(await opened.run(feeds, null, /** @type {any} */ (options)));
    const time = (performance.now() - start).toFixed(1);
    return `${time} ms; ${(opened.memorySize / 1e6).toFixed(1)} MB of memory`;
  });
});

await attempt(async (options) => {
  const start = performance.now();
  session = await InferenceSession.create("./", /** @type {any} */ (options));
  element("model").textContent = session.name;
  document.title = session.name;
  session.inputMetadata.forEach(addInput);
  return `loaded in ${(performance.now() - start).toFixed(0)} ms`;
});
