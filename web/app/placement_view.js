/**
 * Where a model runs: here, on the gateway, or cut in two behind an operation; and how the
 * connection to the gateway fares.
 *
 * @typedef {import("./compiler_client.js").Placement} Placement
 * @typedef {import("../compiler/worker.js").CompiledAnswer["cuts"]} Cuts
 * @typedef {import("../runtime/gateway_client.js").GatewayState} GatewayState
 */

import { evaluateDim, parseDim } from "../runtime/dims.js";
import { bytesText, h } from "./dom.js";

const TOKEN_KEY = "rlx-token";
/** @type {[Placement["device"], string, string][]} */
const DEVICES = [
  ["local", "here", "everything in this page"],
  ["remote", "on the gateway", "the inputs go there, the results come back"],
  ["split", "split", "the operations up to the cut here, the rest on the gateway"],
];
/** @type {Record<GatewayState["state"], string>} */
const STATES = {
  connecting: "connecting to the gateway…",
  open: "connected to the gateway",
  lost: "no connection to the gateway; the next run reconnects",
  closed: "",
};

export class PlacementView {
  /** @type {Placement} */
  #placement = { device: "local", after: "", worker: "" };
  /** @type {Cuts} */
  #cuts = [];
  /** @type {Record<string, number>} */
  #symbols = {};

  /** @param {(placement: Placement) => void} onChange */
  constructor(onChange) {
    this.onChange = onChange;
    this.radios = DEVICES.map(([device, title, hint]) =>
      h(
        "label",
        { title: hint },
        h("input", {
          type: "radio",
          name: "device",
          value: device,
          checked: device === "local",
          onchange: () => this.#choose(device, this.#placement.after),
        }),
        ` ${title}`,
      ),
    );
    this.cut = h("select", {
      id: "cut",
      "aria-label": "operation behind which the model is cut",
      onchange: () => this.choose(this.cut.value),
    });
    this.crossing = h("span", { id: "crossing", class: "hint", "aria-live": "polite" });
    this.cutRow = h(
      "div",
      { class: "row", hidden: true },
      h("label", {}, "cut behind ", this.cut),
      this.crossing,
      h("span", { class: "hint" }, "or click an operation of the graph"),
    );
    this.worker = h("select", {
      id: "worker",
      "aria-label": "device of the gateway",
      onchange: () => this.#choose(this.#placement.device, this.#placement.after),
    });
    this.workerRow = h("label", { hidden: true }, "device ", this.worker);
    this.token = h("input", {
      id: "token",
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      value: startToken(),
      onchange: () => sessionStorage.setItem(TOKEN_KEY, this.token.value),
    });
    this.tokenRow = h("label", { hidden: true, title: "`rlx serve --offload` prints it" }, "token ", this.token);
    this.state = h("span", { id: "gateway-state", class: "hint", role: "status" });
    this.element = h(
      "fieldset",
      { class: "placement" },
      h("legend", {}, "Where it runs"),
      h("div", { class: "row" }, this.radios, this.workerRow, this.tokenRow, this.state),
      this.cutRow,
    );
  }

  get placement() {
    return this.#placement;
  }

  /** Another model: it begins here, its cuts are not known, and nothing can be chosen yet. */
  reset() {
    this.element.disabled = true;
    this.#placement = { device: "local", after: "", worker: this.worker.value };
    this.#symbols = {};
    this.setCuts([]);
  }

  /**
   * Where the open model can be cut.
   *
   * @param {Cuts} cuts
   */
  setCuts(cuts) {
    this.#cuts = cuts;
    const names = inner(cuts).map(([after]) => after);
    if (names.join() !== [...this.cut.options].map(({ value }) => value).join()) {
      this.cut.replaceChildren(...names.map((name) => h("option", { value: name }, `%${name}`)));
    }
    this.#show();
  }

  /**
   * Sizes of the last run, for bytes.
   *
   * @param {Record<string, number>} symbols
   */
  setSymbols(symbols) {
    this.#symbols = symbols;
    this.#show();
  }

  /**
   * Cut behind the operation that defines this value.
   *
   * @param {string} after
   */
  choose(after) {
    if (inner(this.#cuts).some(([name]) => name === after)) this.#choose("split", after);
  }

  /** @param {GatewayState} state */
  showState({ state, reason }) {
    this.state.dataset.state = state;
    this.state.textContent = STATES[state];
    this.state.title = reason;
  }

  /**
   * @param {Placement["device"]} device
   * @param {string} after
   */
  #choose(device, after) {
    const names = inner(this.#cuts);
    if (device === "split" && !names.some(([name]) => name === after)) after = middle(names);
    if (device !== "split") after = "";
    const placement = { device, after, worker: this.worker.value };
    this.#placement = placement;
    if (device === "local") this.showState({ state: "closed", reason: "" });
    this.#show();
    this.onChange(placement);
  }

  /**
   * Devices that the gateway lends; the first one unless the user chooses another.
   *
   * @param {string[]} roles
   */
  setWorkers(roles) {
    this.worker.replaceChildren(
      ...roles.map((role) => h("option", { value: role }, role.replace(/@.*/, ""))),
    );
    this.#show();
  }

  #show() {
    const { device, after } = this.#placement;
    for (const label of this.radios) {
      const radio = /** @type {HTMLInputElement} */ (label.firstChild);
      radio.checked = radio.value === device;
      radio.disabled = radio.value === "split" && !inner(this.#cuts).length;
    }
    this.cutRow.hidden = device !== "split";
    this.tokenRow.hidden = device === "local";
    this.workerRow.hidden = device === "local" || this.worker.options.length < 2;
    if (device === "split") this.cut.value = after;
    const cut = this.#cuts.find(([name]) => name === after);
    this.crossing.textContent = cut && device === "split" ? crossingText(cut, this.#symbols) : "";
    this.crossing.dataset.values = String(cut?.[1].length ?? "");
  }
}

/**
 * Cuts that leave something to do on both sides.
 *
 * @param {Cuts} cuts
 */
function inner(cuts) {
  return cuts.slice(1, -1);
}

/**
 * The cut nearest to the middle among those that the fewest values cross.
 *
 * @param {Cuts} cuts
 */
function middle(cuts) {
  const fewest = Math.min(...cuts.map(([, values]) => values.length));
  const half = cuts.length / 2;
  const found = cuts
    .map(([after, values], i) => ({ after, distance: Math.abs(i - half), count: values.length }))
    .filter(({ count }) => count === fewest)
    .sort((a, b) => a.distance - b.distance);
  return found[0]?.after ?? "";
}

/**
 * `2 values cross, 31 kB each run`, or the bytes as a formula where sizes are not known.
 *
 * @param {Cuts[number]} cut
 * @param {Record<string, number>} symbols
 */
export function crossingText([, values], symbols) {
  const count = `${values.length} ${values.length === 1 ? "value crosses" : "values cross"}`;
  let total = 0;
  for (const [, , dim] of values) {
    const nbytes = bytesOf(dim, symbols);
    if (nbytes === null) return `${count}, ${values.map(([, , text]) => text).join(" + ")} bytes`;
    total += nbytes;
  }
  return `${count}, ${bytesText(total)} a run`;
}

/**
 * @param {string} dim
 * @param {Record<string, number>} symbols
 */
function bytesOf(dim, symbols) {
  try {
    const found = Number(evaluateDim(parseDim(dim), symbols));
    return Number.isNaN(found) ? null : found;
  } catch {
    return null; // a size that no run has given yet
  }
}

/** The token of the address (`#token=…`, which is taken out of it), or of this tab. */
function startToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found !== null) {
    sessionStorage.setItem(TOKEN_KEY, found);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}
