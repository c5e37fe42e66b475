/** The IR as text, before and after the passes, with a search. */

import { h } from "./dom.js";
import { saveFile } from "./results.js";

const MAX_MARKS = 2000;

/**
 * @param {{ir: string, placed: string}} model
 * @param {string} name of the model
 */
export function irView({ ir, placed }, name) {
  const texts = { placed, imported: ir };
  let shown = /** @type {keyof typeof texts} */ ("placed");
  let at = -1;
  const code = h("pre", { class: "ir", tabindex: 0, "aria-label": "IR text" });
  const count = h("span", { class: "hint", role: "status" });
  const field = h("input", { type: "search", placeholder: "search", "aria-label": "search in the IR text", id: "ir-search" });
  const stage = h(
    "select",
    { "aria-label": "stage", id: "ir-stage" },
    h("option", { value: "placed" }, "after the passes"),
    h("option", { value: "imported" }, "as imported"),
  );

  const render = () => {
    const text = texts[shown];
    const lines = text.split("\n");
    const needle = field.value.toLowerCase();
    let marks = 0;
    code.replaceChildren(
      ...lines.map((line) => {
        const row = h("span", { class: "line" });
        let rest = line;
        while (needle && marks < MAX_MARKS) {
          const found = rest.toLowerCase().indexOf(needle);
          if (found < 0) break;
          row.append(rest.slice(0, found), h("mark", {}, rest.slice(found, found + needle.length)));
          rest = rest.slice(found + needle.length);
          marks += 1;
        }
        row.append(`${rest}\n`);
        return row;
      }),
    );
    at = -1;
    count.textContent = needle ? `${marks}${marks === MAX_MARKS ? " or more" : ""} found` : `${lines.length - 1} lines`;
  };
  const next = (/** @type {number} */ step) => {
    const marks = code.querySelectorAll("mark");
    if (!marks.length) return;
    marks[at]?.classList.remove("current");
    at = (at + step + marks.length) % marks.length;
    marks[at].classList.add("current");
    marks[at].scrollIntoView({ block: "center" });
    count.textContent = `${at + 1} of ${marks.length}`;
  };
  field.addEventListener("input", render);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
  });
  stage.addEventListener("change", () => {
    shown = /** @type {keyof typeof texts} */ (stage.value);
    render();
  });
  render();
  const save = () => saveFile(`${name}.rlx`, new Blob([texts[shown]], { type: "text/plain" }));
  return h(
    "div",
    { class: "ir-view" },
    h(
      "div",
      { class: "row tools" },
      stage,
      field,
      h("button", { type: "button", onclick: () => next(1) }, "Next"),
      count,
      h("button", { type: "button", onclick: save }, "Save"),
    ),
    code,
  );
}
