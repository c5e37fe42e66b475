/**
 * A run on two sides: what each did when, the tensors between them, and how well the clocks agree.
 *
 * @typedef {import("../runtime/trace.js").TraceEvent} TraceEvent
 * @typedef {import("../runtime/gateway_client.js").RemoteRun} RemoteRun
 * @typedef {import("../runtime/task_graph.js").TaskGraph} TaskGraph
 * @typedef {{task: number, device: string, start: number, end: number, launches: number}} Span
 * @typedef {{edge: number, from: TraceEvent, to: TraceEvent}} Carried
 */

import { bytesText, h, svg, timeText } from "./dom.js";
import { PanZoom } from "./pan_zoom.js";

const WIDTH = 1200;
const LEFT = 130;
const TASK = 26;
const TOPS = { local: 26, edges: 76, remote: 126 };
const HEIGHT = 176;
const COLORS = { local: "#f6cf66", remote: "#ad9bd6", edge: "#7db2de" };

/**
 * @param {TraceEvent[]} events of this side
 * @param {RemoteRun} remote
 */
export function splitTimelineView(events, remote) {
  const { graph, offset, uncertainty } = remote;
  const local = events.filter(({ phase }) => phase === "execute" || phase === "sync");
  const theirs = remote.events.filter(({ phase }) => phase === "execute" || phase === "sync");
  const all = [...local, ...theirs];
  if (!all.length) return h("p", { class: "hint" }, "nothing was recorded");
  const start = Math.min(...all.map((event) => event.start));
  const end = Math.max(...all.map((event) => event.start + event.duration));
  const spans = [...taskSpans(local, graph), ...taskSpans(theirs, graph)];
  const edges = carried(local, theirs);
  const ms = (/** @type {number} */ nanoseconds) => timeText(nanoseconds / 1e6);
  const picture = draw(spans, edges, local[0]?.device ?? graph.devices[0], remote, start, end);
  return h(
    "div",
    { class: "split-timeline", "data-tasks": spans.length, "data-edges": edges.length },
    h(
      "p",
      {},
      `${spans.length} tasks and ${edges.length} edges in `,
      h("strong", {}, ms(end - start)),
      h(
        "span",
        { class: "hint", id: "clock", "data-uncertainty": uncertainty },
        `; the clock of ${remote.device} is shifted by ${ms(offset)}, give or take ${ms(uncertainty)} (half a round trip)`,
      ),
    ),
    picture,
    h(
      "table",
      { class: "edges" },
      h("caption", {}, "Tensors between the sides"),
      h("thead", {}, h("tr", {}, ["edge", "value", "bytes", "by", "from", "to", "time"].map((text) => h("th", { scope: "col" }, text)))),
      h(
        "tbody",
        {},
        edges.map(({ edge, from, to }) => {
          const found = graph.edges.find((item) => item.edge === edge);
          const by = found && (from.nbytes > found.bulkBytes ? found.bulkProtocol : found.protocol);
          const spent = to.start + to.duration - from.start;
          return h(
            "tr",
            { "data-edge": edge },
            [edge, `%${from.name}`, bytesText(from.nbytes), by, from.device, to.device].map((text) => h("td", {}, text)),
            h("td", {}, `${ms(Math.max(0, spent))} ± ${ms(uncertainty)}`),
          );
        }),
      ),
    ),
  );
}

/**
 * Tasks of one side with the times of their launches. Launches belong to one task until something
 * is sent or waited for.
 *
 * @param {TraceEvent[]} events
 * @param {TaskGraph} graph
 * @returns {Span[]}
 */
function taskSpans(events, graph) {
  const device = events[0]?.device;
  const number = graph.devices.indexOf(device);
  const sends = graph.edges.map(({ source }) => source);
  const working = graph.tasks.flatMap((task, position) => {
    const count = task.ops.reduce((sum, [begin, end]) => sum + end - begin, 0);
    const moved = task.receives.length + sends.filter((source) => source === position).length;
    return task.device === number && task.phase === "execute" && count > moved ? [position] : [];
  });
  /** @type {Span[]} */
  const spans = [];
  let isNew = true;
  for (const event of [...events].sort((a, b) => a.start - b.start)) {
    if (event.kind === "send" || event.kind === "wait") isNew = true;
    if (event.kind !== "run") continue;
    const end = event.start + event.duration;
    const last = spans[spans.length - 1];
    if (last && !isNew) {
      last.end = end;
      last.launches += event.end - event.begin;
    } else {
      const task = working[Math.min(spans.length, working.length - 1)] ?? -1;
      spans.push({ task, device, start: event.start, end, launches: event.end - event.begin });
    }
    isNew = false;
  }
  return spans;
}

/**
 * @param {TraceEvent[]} local
 * @param {TraceEvent[]} remote
 * @returns {Carried[]}
 */
function carried(local, remote) {
  const sides = [
    [local, remote],
    [remote, local],
  ];
  return sides.flatMap(([senders, receivers]) =>
    senders
      .filter(({ kind }) => kind === "send")
      .flatMap((from) => {
        const to = receivers.find(({ kind, edge }) => kind === "receive" && edge === from.edge);
        return to ? [{ edge: from.edge, from, to }] : [];
      }),
  );
}

/**
 * @param {Span[]} spans
 * @param {Carried[]} edges
 * @param {string} device
 * @param {RemoteRun} remote
 * @param {number} start
 * @param {number} end
 */
function draw(spans, edges, device, remote, start, end) {
  const scale = (WIDTH - LEFT - 20) / Math.max(1, end - start);
  const at = (/** @type {number} */ time) => LEFT + (time - start) * scale;
  const doubt = remote.uncertainty * scale;
  const top = (/** @type {string} */ side) => (side === device ? TOPS.local : TOPS.remote);
  const lanes = [
    [TOPS.local, device],
    [TOPS.edges, "edges"],
    [TOPS.remote, remote.device],
  ];
  const shapes = [
    ...lanes.map(([y, text]) => svg("text", { x: 4, y: Number(y) + 18, class: "axis" }, text)),
    ...spans.map((span) => {
      const isRemote = span.device !== device;
      const [x, width] = [at(span.start), Math.max(1, (span.end - span.start) * scale)];
      const y = top(span.device);
      const title = `task ${span.task} on ${span.device}\n${span.launches} launches, ${timeText((span.end - span.start) / 1e6)}`;
      return svg(
        "g",
        { class: "block task", "data-task": span.task, "data-device": span.device },
        svg("title", {}, title),
        svg("rect", { x, y, width, height: TASK, fill: isRemote ? COLORS.remote : COLORS.local, stroke: "#444444", "stroke-width": 0.4 }),
        width > 60 ? svg("text", { x: x + 4, y: y + 17, "font-size": 11, fill: "#1a1a1a" }, `task ${span.task}`) : null,
        // Where the other clock says that it began and ended, it may have been earlier or later.
        isRemote ? [x, x + width].map((edge) => whisker(edge, y + TASK + 5, doubt)) : [],
      );
    }),
    ...edges.map(({ edge, from, to }) => {
      const [x0, x1] = [at(from.start), at(to.start + to.duration)];
      const [y0, y1] = from.device === device ? [TOPS.local + TASK, TOPS.remote] : [TOPS.remote, TOPS.local + TASK];
      const title = `edge ${edge}: %${from.name}, ${bytesText(from.nbytes)}\n${from.device} → ${to.device}`;
      return svg(
        "g",
        { class: "edge", "data-edge": edge },
        svg("title", {}, title),
        svg("path", { d: `M${x0} ${y0}L${x1} ${y1}`, stroke: COLORS.edge, "stroke-width": 2, fill: "none" }),
        svg("circle", { cx: x1, cy: y1, r: 3.5, fill: COLORS.edge }),
        svg("text", { x: (x0 + x1) / 2 + 6, y: TOPS.edges + 18, "font-size": 11, fill: "#666666" }, `%${from.name}`),
      );
    }),
  ];
  const picture = svg("svg", { class: "strip-picture split-picture" }, shapes);
  const view = new PanZoom(picture, { width: WIDTH, height: HEIGHT }, "tasks and edges on both sides");
  view.element.querySelector(".save-picture")?.remove();
  requestAnimationFrame(() => view.fit());
  return view.element;
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} doubt
 */
function whisker(x, y, doubt) {
  const d = `M${x - doubt} ${y}H${x + doubt}M${x - doubt} ${y - 3}v6M${x + doubt} ${y - 3}v6`;
  return svg("path", { d, class: "doubt", stroke: "#a3180f", "stroke-width": 1, fill: "none" });
}
