/** The task graph as the compiler draws it: a lane a device, an arrow an edge. */

import { h } from "./dom.js";
import { saveFile } from "./results.js";

/** @param {import("../compiler/worker.js").CompiledAnswer} compiled */
export function taskGraphView({ task_graph, task_svg, task_dot }) {
  const { digest, tasks, edges } = JSON.parse(task_graph);
  const picture = new DOMParser().parseFromString(task_svg, "image/svg+xml").documentElement;
  const save = (/** @type {string} */ title, /** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ type) =>
    h("button", { type: "button", onclick: () => saveFile(name, new Blob([text], { type })) }, title);
  return h(
    "div",
    { class: "task-graph", "data-tasks": tasks.length, "data-edges": edges.length },
    h("p", {}, `${tasks.length} tasks, ${edges.length} edges `, h("code", { class: "hint", id: "graph-digest" }, digest)),
    h(
      "div",
      { class: "row tools" },
      save("Save SVG", "tasks.svg", task_svg, "image/svg+xml"),
      save("Save DOT", "tasks.dot", task_dot, "text/vnd.graphviz"),
      save("Save JSON", "tasks.json", task_graph, "application/json"),
    ),
    document.importNode(picture, true),
  );
}
