/** Tabs whose content is made when it is first looked at (ARIA Authoring Practices, "Tabs"). */

import { h } from "./dom.js";
import { asReport } from "./reports.js";

/** @typedef {() => Node | Promise<Node>} Make */

export class Tabs {
  /** @type {Map<string, {tab: HTMLButtonElement, make: Make}>} */
  #tabs = new Map();
  #chosen = "";

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.list = h("div", { role: "tablist", "aria-label": "Look inside", class: "tablist" });
    this.panel = h("div", { role: "tabpanel", class: "tabpanel", id: "tabpanel" });
    this.list.addEventListener("keydown", (event) => this.#key(event));
    element.append(this.list, this.panel);
    this.clear();
  }

  /**
   * A tab with this content; one with the same name is replaced.
   *
   * @param {string} name
   * @param {Make} make
   */
  set(name, make) {
    const known = this.#tabs.get(name);
    if (known) known.make = make;
    else {
      const tab = h(
        "button",
        { type: "button", role: "tab", "aria-controls": "tabpanel", "data-tab": name, onclick: () => this.choose(name) },
        name,
      );
      this.list.append(tab);
      this.#tabs.set(name, { tab, make });
    }
    this.element.hidden = false;
    if (!this.#chosen || this.#chosen === name) this.choose(name);
  }

  /**
   * Take a tab away; the first one is shown in its place.
   *
   * @param {string} name
   */
  remove(name) {
    const found = this.#tabs.get(name);
    if (!found) return;
    found.tab.remove();
    this.#tabs.delete(name);
    if (this.#chosen === name) this.choose([...this.#tabs.keys()][0]);
  }

  /** Without tabs nothing is shown. */
  clear() {
    this.#tabs.clear();
    this.#chosen = "";
    this.list.replaceChildren();
    this.panel.replaceChildren();
    this.element.hidden = true;
  }

  /** @param {string} name */
  async choose(name) {
    const found = this.#tabs.get(name);
    if (!found) return;
    this.#chosen = name;
    for (const [other, { tab }] of this.#tabs) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
    }
    const { make } = found;
    let content;
    try {
      content = await make();
    } catch (error) {
      content = h("p", { class: "failed" }, asReport(error).message);
    }
    // Another tab, or newer content, may have been asked for meanwhile.
    if (this.#chosen === name && this.#tabs.get(name)?.make === make) {
      this.panel.replaceChildren(content);
      this.panel.dataset.shown = name;
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const names = [...this.#tabs.keys()];
    const next = names[(names.indexOf(this.#chosen) + step + names.length) % names.length];
    this.choose(next);
    this.#tabs.get(next)?.tab.focus();
  }
}
