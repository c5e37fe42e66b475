/**
 * What lies where in linear memory while the model runs: launches to the right, addresses upwards.
 *
 * @typedef {import("../compiler/worker.js").CompiledAnswer} CompiledAnswer
 * @typedef {import("./runner.js").RunAnswer} RunAnswer
 * @typedef {{name: string, kind: string, first: number, last: number, resident: boolean,
 *   address: number, nbytes: number}} Place
 */

import { evaluateDim, parseDim } from "../runtime/dims.js";
import { runInstructions } from "../runtime/plan.js";
import { readProgram } from "../runtime/program.js";
import { bytesText, h, svg } from "./dom.js";
import { PanZoom } from "./pan_zoom.js";

const WIDTH = 1000;
const HEIGHT = 420;
const LEFT = 80;
const BOTTOM = 26;
const TOP = 18;
const COLORS = {
  input: "#7db2de",
  constant: "#b9b9c4",
  value: "#8fbf82",
  scratch: "#f6cf66",
};

/**
 * @param {CompiledAnswer} model
 * @param {RunAnswer} answer
 */
export function memoryView(model, answer) {
  const program = readProgram(model.program);
  const places = placesOf(model, program, answer.symbols);
  const boundary = program.launches.filter(({ phase }) => phase === "compile").length;
  const total = program.launches.length + 1;
  const x = (/** @type {number} */ launch) => LEFT + (launch / total) * (WIDTH - LEFT - 10);
  const y = (/** @type {number} */ address) => HEIGHT - BOTTOM - (address / answer.peak) * (HEIGHT - BOTTOM - TOP);
  const picture = svg(
    "svg",
    { class: "memory", "data-buffers": places.length },
    places.map((place) => {
      const right = place.resident ? total : place.last + 1;
      const first = place.resident && place.kind === "constant" ? 0 : place.first;
      return svg(
        "rect",
        {
          x: x(first),
          y: y(place.address + place.nbytes),
          width: Math.max(1, x(right) - x(first)),
          height: Math.max(0.5, y(place.address) - y(place.address + place.nbytes)),
          fill: COLORS[/** @type {keyof typeof COLORS} */ (place.kind)] ?? "#cccccc",
          stroke: "#444444",
          "stroke-width": 0.4,
        },
        svg("title", {}, describe(place)),
      );
    }),
    svg("line", { x1: LEFT, x2: WIDTH - 10, y1: y(answer.peak), y2: y(answer.peak), class: "peak" }),
    svg("text", { x: LEFT - 6, y: y(answer.peak) + 4, "text-anchor": "end", class: "axis" }, bytesText(answer.peak)),
    svg("text", { x: LEFT - 6, y: y(0) + 4, "text-anchor": "end", class: "axis" }, "0"),
    svg("line", { x1: x(boundary), x2: x(boundary), y1: TOP, y2: HEIGHT - BOTTOM, class: "boundary" }),
    svg("text", { x: x(0), y: HEIGHT - 8, class: "axis" }, `once: launches 0 to ${boundary}`),
    svg("text", { x: WIDTH - 10, y: HEIGHT - 8, "text-anchor": "end", class: "axis" }, `each run: ${boundary} to ${total - 1}`),
  );
  const view = new PanZoom(picture, { width: WIDTH, height: HEIGHT }, `memory plan of ${places.length} buffers`);
  view.element.querySelector(".save-picture")?.remove();
  requestAnimationFrame(() => view.fit());
  const at = Object.entries(answer.symbols).map(([name, value]) => `${name} = ${value}`);
  return h(
    "div",
    {},
    h(
      "p",
      { class: "legend" },
      Object.entries(COLORS).map(([kind, color]) =>
        h("span", { class: "key" }, svg("svg", { width: 14, height: 14 }, svg("rect", { width: 14, height: 14, fill: color })), kind),
      ),
    ),
    h(
      "p",
      {},
      "peak ",
      h("strong", { id: "peak", "data-bytes": answer.peak }, bytesText(answer.peak)),
      `, of which ${bytesText(program.resident)} stay between runs`,
      at.length ? ` (${at.join(", ")})` : "",
      `; all buffers together: ${bytesText(places.reduce((sum, { nbytes }) => sum + nbytes, 0))}`,
    ),
    view.element,
  );
}

/**
 * @param {CompiledAnswer} model
 * @param {import("../runtime/program.js").Program} program
 * @param {Record<string, number>} symbols
 * @returns {Place[]}
 */
export function placesOf(model, program, symbols) {
  const values = runInstructions(program.plan, symbols);
  return model.buffers.map((row) => {
    const [name, kind, first, last, resident, address, nbytes] = /** @type {any[]} */ (row);
    return {
      name,
      kind,
      first,
      last,
      resident,
      address: Number(values[address]),
      nbytes: Number(evaluateDim(parseDim(nbytes), symbols)),
    };
  });
}

/** @param {Place} place */
function describe({ name, kind, first, last, resident, address, nbytes }) {
  const when = resident ? "stays" : `launches ${first} to ${last}`;
  return `%${name} (${kind})\n${bytesText(nbytes)} at ${address}\n${when}`;
}
