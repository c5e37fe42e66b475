/**
 * The instrumented run: every launch in order, and where the time goes by operator.
 *
 * @typedef {import("../runtime/trace.js").TraceEvent} TraceEvent
 * @typedef {{op: string, value: string}} Launch
 */

import { h, svg, timeText } from "./dom.js";
import { PanZoom } from "./pan_zoom.js";

const WIDTH = 1200;
const ROW = 26;
const LEFT = 70;
const LETTER = 6;
const COLORS = ["#8fbf82", "#7db2de", "#f6cf66", "#e68f73", "#ad9bd6", "#8fd0c8", "#d7a0c0", "#c2c27a"];

/**
 * @param {TraceEvent[]} events
 * @param {Launch[]} launches of the program that ran
 */
export function timelineView(events, launches) {
  const timed = events.filter(({ phase }) => phase === "execute");
  if (!timed.length) return h("p", { class: "hint" }, "nothing was recorded");
  const rows = timed.map((event) => ({
    ...event,
    label: event.kind === "run" ? (launches[event.begin]?.op ?? event.name).replace(/^rlxc::/, "") : event.kind,
    value: event.kind === "run" ? launches[event.begin]?.value : event.name,
  }));
  const start = Math.min(...rows.map((row) => row.start));
  const end = Math.max(...rows.map((row) => row.start + row.duration));
  const groups = grouped(rows);
  const colors = new Map(groups.map(({ label }, i) => [label, COLORS[i % COLORS.length]]));
  return h(
    "div",
    { class: "timeline-view" },
    h(
      "p",
      {},
      `${rows.filter(({ kind }) => kind === "run").length} launches in `,
      h("strong", { id: "span" }, timeText((end - start) / 1e6)),
      h("span", { class: "hint" }, "; each launch is timed by itself, which costs time of its own"),
    ),
    h("h3", {}, "Timeline"),
    pictureOf(timelineRows(rows, start, end, colors), 3 * ROW, "timeline of the run"),
    h("h3", {}, "Flame graph"),
    pictureOf(flameRows(groups, colors), 3 * ROW + 4, "time by operator"),
    table(groups),
  );
}

/**
 * @typedef {TraceEvent & {label: string, value: string}} Row
 * @typedef {{label: string, total: number, rows: Row[]}} Group
 * @param {Row[]} rows
 * @returns {Group[]}
 */
function grouped(rows) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const row of rows) {
    const group = found.get(row.label) ?? { label: row.label, total: 0, rows: [] };
    group.total += row.duration;
    group.rows.push(row);
    found.set(row.label, group);
  }
  return [...found.values()].sort((a, b) => b.total - a.total || (a.label < b.label ? -1 : 1));
}

/**
 * @param {Row[]} rows
 * @param {number} start
 * @param {number} end
 * @param {Map<string, string>} colors
 */
function timelineRows(rows, start, end, colors) {
  const scale = (WIDTH - LEFT - 10) / Math.max(1, end - start);
  const lanes = [
    { title: "host", kinds: ["input", "output", "allocate", "plan"] },
    { title: rows[0].device, kinds: ["run"] },
  ];
  return lanes.flatMap(({ title, kinds }, lane) => [
    svg("text", { x: 4, y: lane * ROW + 18, class: "axis" }, title),
    ...rows
      .filter(({ kind }) => kinds.includes(kind))
      .map((row) =>
        block(
          LEFT + (row.start - start) * scale,
          lane * ROW + 3,
          row.duration * scale,
          row.label,
          `${row.label} %${row.value}\n${timeText(row.duration / 1e6)} at ${timeText((row.start - start) / 1e6)}`,
          colors.get(row.label),
        ),
      ),
  ]);
}

/**
 * @param {Group[]} groups
 * @param {Map<string, string>} colors
 */
function flameRows(groups, colors) {
  const total = groups.reduce((sum, group) => sum + group.total, 0) || 1;
  const scale = (WIDTH - 20) / total;
  const shapes = [block(10, 2 * ROW + 2, total * scale, "run", `run\n${timeText(total / 1e6)}`, "#d5d5dd")];
  let left = 10;
  for (const { label, total: time, rows } of groups) {
    const share = `${((100 * time) / total).toFixed(1)} %`;
    shapes.push(block(left, ROW + 2, time * scale, label, `${label}\n${timeText(time / 1e6)}, ${share}`, colors.get(label)));
    let inner = left;
    for (const row of [...rows].sort((a, b) => b.duration - a.duration)) {
      const title = `%${row.value}\n${timeText(row.duration / 1e6)}`;
      shapes.push(block(inner, 2, row.duration * scale, row.value ?? "", title, colors.get(label)));
      inner += row.duration * scale;
    }
    left += time * scale;
  }
  return shapes;
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {string} label
 * @param {string} title
 * @param {string} [fill]
 */
function block(x, y, width, label, title, fill = "#cccccc") {
  const room = Math.floor((width - 6) / LETTER);
  const text = room >= label.length ? label : room > 3 ? `${label.slice(0, room - 1)}…` : "";
  return svg(
    "g",
    { class: "block" },
    svg("title", {}, title),
    svg("rect", { x, y, width: Math.max(0.3, width - 0.3), height: ROW - 4, fill, stroke: "#444444", "stroke-width": 0.3 }),
    text ? svg("text", { x: x + 3, y: y + 15, "font-size": 11, fill: "#1a1a1a" }, text) : null,
  );
}

/**
 * @param {SVGElement[]} shapes
 * @param {number} height
 * @param {string} label
 */
function pictureOf(shapes, height, label) {
  const picture = svg("svg", { class: "strip-picture" }, shapes);
  const view = new PanZoom(picture, { width: WIDTH, height, start: 0 }, label);
  view.element.querySelector(".save-picture")?.remove();
  // On a narrow screen the whole would be too small to read.
  requestAnimationFrame(() => (picture.clientWidth < WIDTH / 2 ? view.readable() : view.fit()));
  return view.element;
}

/** @param {Group[]} groups */
function table(groups) {
  const total = groups.reduce((sum, group) => sum + group.total, 0) || 1;
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "operators" },
      h("caption", {}, "Time by operator"),
      h("thead", {}, h("tr", {}, ["operator", "launches", "time", "share"].map((text) => h("th", { scope: "col" }, text)))),
      h(
        "tbody",
        {},
        groups.map(({ label, total: time, rows }) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, label),
            h("td", {}, rows.length),
            h("td", {}, timeText(time / 1e6)),
            h("td", {}, `${((100 * time) / total).toFixed(1)} %`),
          ),
        ),
      ),
    ),
  );
}
