/** Elements with their attributes and children in one expression. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Properties `onclick: listener`, `hidden: true`, or attributes
 */

/**
 * An HTML element. Functions become listeners, booleans are set where true, `null` is left out.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Properties} [properties]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * An SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Properties} [properties]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, properties = {}, ...children) {
  return fill(/** @type {any} */ (document.createElementNS(SVG, tag)), properties, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Properties} properties
 * @param {(Child | Child[])[]} children
 * @returns {E}
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") {
      element.addEventListener(name.replace(/^on/, ""), /** @type {EventListener} */ (value));
    } else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.flat().filter(isShown).map(asNode));
  return element;
}

/**
 * @param {Child} child
 * @returns {child is Node | string | number}
 */
function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

/** @param {Node | string | number} child */
function asNode(child) {
  return child instanceof Node ? child : String(child);
}

/**
 * The element with this id.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * A file chooser that looks like a button; the name of what was chosen is shown elsewhere.
 *
 * @param {string} text
 * @param {Properties} properties of the input
 * @param {(file: File) => void} take
 */
export function fileButton(text, properties, take) {
  const input = h("input", { type: "file", class: "unseen", ...properties });
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    if (file) take(file);
    input.value = ""; // the same file can be chosen again
  });
  return h("label", { class: "button" }, text, input);
}

/**
 * Bytes for people.
 *
 * @param {number} count
 */
export function bytesText(count) {
  if (count < 10_000) return `${count} bytes`;
  return count < 10_000_000 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

/**
 * Milliseconds for people.
 *
 * @param {number} milliseconds
 */
export function timeText(milliseconds) {
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(2)} s`;
  if (milliseconds >= 10) return `${milliseconds.toFixed(1)} ms`;
  return milliseconds >= 0.1 ? `${milliseconds.toFixed(2)} ms` : `${(milliseconds * 1000).toFixed(0)} µs`;
}
