/**
 * The placed graph as a picture: a box an operation, coloured by device, its border by layout.
 *
 * @typedef {{name: string, type: {dtype: string, shape: (number | string)[]}}} GraphValue
 * @typedef {{operator: string, operands: string[], attributes: Record<string, any>,
 *   results: GraphValue[]}} GraphOperation
 * @typedef {{parameters: GraphValue[], operations: GraphOperation[],
 *   outputs: {name: string, value: string}[]}} Graph
 */

import { h, svg } from "./dom.js";
import { PanZoom } from "./pan_zoom.js";
import { saveFile } from "./results.js";
import { WorkerClient } from "./worker_client.js";

/** Device kind → fill colours by index, as `rlx ir dump --format dot` has them. */
const DEVICES = {
  wasm: ["#d8ead3", "#b5d6ac", "#8fbf82"],
  browser: ["#fff0c9", "#ffe29a", "#f6cf66"],
  cpu: ["#e6e0f2", "#cbbfe6", "#ad9bd6"],
  cuda: ["#f9d9cf", "#f2b6a2", "#e68f73"],
  vulkan: ["#d3e5f5", "#a9cdeb", "#7db2de"],
};
const UNPLACED = "#f4f4f4";
const LAYOUTS = { NCHW: "#555555", NHWC: "#8a5a00", NCHW4c: "#00518a" };
const HIDDEN = ["target_device_set", "memory_layout", "phase", "sync_mode", "digest"];
const LETTER = 6.6;
const LINE = 15;
const PADDING = 10;
const MAX_TEXT = 44;
/** Pixels that a pointer may move in a click. */
const CLICK = 4;

const layouter = new WorkerClient(new URL("./graph_layout.js", import.meta.url), {
  what: "the layout",
  interruptible: false,
});

/**
 * @typedef {object} CutChoice
 * @property {string[]} names of the values behind whose operations it can be cut
 * @property {string} after the chosen one, "" where there is none
 * @property {(after: string) => void} choose
 *
 * @param {string} text the module as JSON
 * @param {CutChoice} [cut]
 * @returns {Promise<HTMLElement>}
 */
export async function graphView(text, cut) {
  const graph = /** @type {Graph} */ (JSON.parse(text));
  const { nodes, edges } = boxes(graph);
  const placed = await layouter.request({ nodes, edges });
  const picture = svg(
    "svg",
    { class: "graph", xmlns: "http://www.w3.org/2000/svg", "data-nodes": nodes.length },
    placed.edges.map(edgePath),
    placed.nodes.map(nodeBox),
  );
  const { width, height } = placed;
  const size = { width, height, start: placed.nodes[0]?.x };
  const view = new PanZoom(picture, size, `graph of ${nodes.length} boxes`);
  view.element.prepend(legend(graph));
  if (cut) listenForCuts(picture, cut);
  view.element.querySelector(".save-picture")?.addEventListener("click", () => {
    const copy = /** @type {SVGSVGElement} */ (picture.cloneNode(true));
    copy.setAttribute("viewBox", `0 0 ${placed.width} ${placed.height}`);
    saveFile("graph.svg", new Blob([copy.outerHTML], { type: "image/svg+xml" }));
  });
  requestAnimationFrame(() => (nodes.length > 25 ? view.readable() : view.fit()));
  return view.element;
}

/**
 * Clicking an operation cuts behind it; dragging moves the picture.
 *
 * @param {SVGSVGElement} picture
 * @param {CutChoice} cut
 */
function listenForCuts(picture, { names, after, choose }) {
  const known = new Set(names);
  for (const node of picture.querySelectorAll("g.node[data-value]")) {
    const value = String(node.getAttribute("data-value"));
    if (known.has(value)) node.classList.add("cuttable");
    if (value === after) node.classList.add("cut");
  }
  /** @type {{value: string, x: number, y: number} | null} */
  let pressed = null;
  picture.addEventListener("pointerdown", ({ target, clientX: x, clientY: y }) => {
    const node = /** @type {Element} */ (target).closest("g.cuttable");
    pressed = node && { value: String(node.getAttribute("data-value")), x, y };
  });
  picture.addEventListener("pointerup", ({ clientX, clientY }) => {
    if (pressed && Math.hypot(clientX - pressed.x, clientY - pressed.y) < CLICK) choose(pressed.value);
    pressed = null;
  });
}

/** @param {Graph} graph */
function boxes({ parameters, operations, outputs }) {
  /** @type {Map<string, string>} */
  const makers = new Map();
  /** @type {any[]} */
  const nodes = [];
  /** @type {{from: string, to: string}[]} */
  const edges = [];
  const add = (/** @type {any} */ node) => {
    const lines = node.lines.map((/** @type {string} */ line) => shortened(line));
    const width = Math.max(...lines.map((/** @type {string} */ line) => line.length)) * LETTER + 2 * PADDING;
    nodes.push({ ...node, lines, width, height: lines.length * LINE + PADDING });
  };
  parameters.forEach((value, i) => {
    makers.set(value.name, `in${i}`);
    add({ id: `in${i}`, lines: [value.name, typeText(value)], fill: "#ffffff", border: "#333333", round: true });
  });
  // Constants are left out: they would be half of the boxes, and the edges say little.
  const shown = operations.filter(({ operator }) => operator !== "tensor::const");
  shown.forEach((operation, i) => {
    for (const { name } of operation.results) makers.set(name, `op${i}`);
    add({ id: `op${i}`, ...operationBox(operation) });
  });
  /** @type {Map<unknown, string>} */
  const senders = new Map();
  shown.forEach(({ operator, operands, attributes }, i) => {
    for (const name of operands) {
      const from = makers.get(name);
      if (from) edges.push({ from, to: `op${i}` });
    }
    if (operator === "comm::send") senders.set(attributes.edge, `op${i}`);
    const sender = operator === "comm::recv" && senders.get(attributes.edge);
    if (sender) edges.push({ from: sender, to: `op${i}` });
  });
  outputs.forEach(({ name, value }, i) => {
    add({ id: `out${i}`, lines: [name], fill: "#ffffff", border: "#333333", round: true });
    const from = makers.get(value);
    if (from) edges.push({ from, to: `out${i}` });
  });
  return { nodes, edges };
}

/** @param {GraphOperation} operation */
function operationBox({ operator, attributes, results }) {
  const details = Object.entries(attributes)
    .filter(([name]) => !HIDDEN.includes(name))
    .map(([name, value]) => `${name} = ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const layout = /** @type {keyof typeof LAYOUTS} */ (attributes.memory_layout);
  return {
    value: results[0]?.name,
    lines: [operator.replace(/^rlxc::/, ""), results.map(typeText).join(", ")],
    title: [`${results.map(({ name }) => `%${name}`).join(", ")} = ${operator}`, ...details].join("\n"),
    fill: deviceColor(attributes.target_device_set?.[0]),
    border: LAYOUTS[layout] ?? "#999999",
    dashed: attributes.phase === "compile",
  };
}

/** @param {string | undefined} device */
function deviceColor(device = "") {
  const [kind, index] = device.split(/[:@]/);
  const colors = DEVICES[/** @type {keyof typeof DEVICES} */ (kind)];
  return colors ? colors[Number(index) % colors.length] : UNPLACED;
}

/** @param {GraphValue} value */
function typeText({ type }) {
  return `${type.dtype}[${type.shape.join(", ")}]`;
}

/** @param {string} text */
function shortened(text) {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}…`;
}

/** @param {any} node */
function nodeBox({ x, y, width, height, lines, fill, border, title, round, dashed, value = null }) {
  return svg(
    "g",
    { class: "node", "data-value": value, transform: `translate(${x - width / 2} ${y - height / 2})` },
    title ? svg("title", {}, title) : null,
    svg("rect", {
      width,
      height,
      rx: round ? height / 2 : 5,
      fill,
      stroke: border,
      "stroke-width": 1.5,
      "stroke-dasharray": dashed ? "4 3" : null,
    }),
    lines.map((/** @type {string} */ line, /** @type {number} */ i) =>
      svg(
        "text",
        {
          x: width / 2,
          y: PADDING / 2 + LINE * (i + 0.78),
          "text-anchor": "middle",
          "font-family": "ui-monospace, monospace",
          "font-size": 11,
          "font-weight": i === 0 ? 600 : 400,
          fill: "#1a1a1a",
        },
        line,
      ),
    ),
  );
}

/** @param {{points: {x: number, y: number}[]}} edge */
function edgePath({ points }) {
  const [first, ...rest] = points;
  const path = `M${first.x} ${first.y}${rest.map(({ x, y }) => `L${x} ${y}`).join("")}`;
  const { x, y } = points[points.length - 1];
  return svg(
    "g",
    {},
    svg("path", { d: path, fill: "none", stroke: "#888888", "stroke-width": 1.2 }),
    svg("path", { d: `M${x - 3.5} ${y - 7}L${x + 3.5} ${y - 7}L${x} ${y}Z`, fill: "#888888" }),
  );
}

/** @param {Graph} graph */
function legend({ operations }) {
  const devices = new Set();
  const layouts = new Set();
  for (const { attributes } of operations) {
    for (const device of attributes.target_device_set ?? []) devices.add(device);
    if (attributes.memory_layout in LAYOUTS) layouts.add(attributes.memory_layout);
  }
  const key = (/** @type {string} */ text, /** @type {string} */ fill, /** @type {string} */ border) =>
    h(
      "span",
      { class: "key" },
      svg("svg", { width: 14, height: 14 }, svg("rect", { x: 1, y: 1, width: 12, height: 12, fill, stroke: border, "stroke-width": 2 })),
      text,
    );
  return h(
    "p",
    { class: "legend" },
    [...devices].map((device) => key(device, deviceColor(device), "#999999")),
    [...layouts].map((layout) => key(layout, "#ffffff", LAYOUTS[/** @type {keyof typeof LAYOUTS} */ (layout)])),
    h("span", { class: "hint" }, "dashed: runs once, before the first run"),
  );
}
