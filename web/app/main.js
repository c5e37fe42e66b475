/** The page: which model is open, what happens at each step, what is shown of it. */

import { capabilitiesView } from "./capabilities.js";
import { CompilerClient } from "./compiler_client.js";
import { DigitsPanel } from "./digits_panel.js";
import { bytesText, byId, fileButton, h } from "./dom.js";
import { fetchJson, fetchModel } from "./download.js";
import { graphView } from "./graph_view.js";
import { irView } from "./ir_view.js";
import { memoryView } from "./memory_view.js";
import { OpenModel } from "./open_model.js";
import { OrientationPanel } from "./orientation_panel.js";
import { PlacementView } from "./placement_view.js";
import { asReport, Cancelled, Report } from "./reports.js";
import { tensorTable, timesList } from "./results.js";
import { splitTimelineView } from "./split_timeline.js";
import { StepsView } from "./steps_view.js";
import { Tabs } from "./tabs.js";
import { taskGraphView } from "./task_graph_view.js";
import { TensorPanel } from "./tensor_panel.js";
import { timelineView } from "./timeline_view.js";

/**
 * @typedef {import("./panels.js").Panel} Panel
 * @typedef {import("./open_model.js").Origin} Origin
 * @typedef {{name: string, title: string, url: string, bytes: number, digest: string,
 *   licence: string}} ListedModel
 */

const OWN = "own";

/** Sizes and contents that a listed model needs to do something sensible. */
const DEFAULTS = {
  silero_vad: { sizes: { "input.1": 576 }, fills: { sr: "values: 16000" } },
};

class Page {
  compiler = new CompilerClient();
  /** @type {OpenModel | null} */
  model = null;
  /** @type {Panel | null} */
  panel = null;
  /** @type {AbortController | null} */
  work = null;
  /** @type {Promise<void>} */
  turn = Promise.resolve();
  /** How often a model was chosen. */
  opened = 0;
  /** Whether a run was asked for while something else was going on. */
  again = false;

  constructor() {
    this.steps = new StepsView(() => this.cancel());
    this.tabs = new Tabs(byId("inspect"));
    this.placement = new PlacementView((placement) => this.place(placement));
    byId("placement").append(this.placement.element);
    byId("steps").append(this.steps.element);
    byId("browser").append(capabilitiesView());
    byId("repeat").addEventListener("change", () => {
      if (document.body.dataset.state === "ran") this.run();
    });
  }

  cancel() {
    this.again = false;
    this.work?.abort(new Cancelled());
  }

  /**
   * Leave the open model, if any, and open another.
   *
   * @param {string} name
   * @param {Panel} panel
   * @param {Origin | null} origin `null` where the user has yet to choose a file
   */
  async open(name, panel, origin) {
    this.cancel();
    document.body.dataset.model = name;
    document.body.dataset.state = "opening";
    this.opened += 1;
    const number = this.opened;
    await this.turn;
    if (number !== this.opened) return; // another model was chosen meanwhile
    this.model?.close();
    this.model = null;
    this.again = false; // that was for the panel before
    this.panel = panel;
    byId("panel").replaceChildren(panel.element);
    byId("result").replaceChildren();
    this.tabs.clear();
    this.placement.reset();
    this.steps.reset();
    this.clearError();
    document.body.dataset.state = origin ? "opening" : "empty";
    if (!origin) return;
    const model = new OpenModel(origin, this.compiler, {
      token: () => this.placement.token.value,
      onGateway: (state) => {
        if (this.model === model) this.placement.showState(state);
      },
    });
    this.model = model;
    await this.#work(async (call) => {
      await model.open(call);
      if (model.description) panel.describe?.(model.description);
      this.placement.element.disabled = false;
      document.body.dataset.state = "ready";
      this.#inspectModel();
    });
    if (this.model === model) await this.#runAgain(document.body.dataset.state === "ready");
  }

  /**
   * Run the open model elsewhere from now on; what has been run is run again there.
   *
   * @param {import("./compiler_client.js").Placement} placement
   */
  async place(placement) {
    const { model } = this;
    if (!model) return;
    const hasRun = byId("result").childElementCount > 0;
    this.cancel();
    await this.turn;
    const isCurrent = () => this.model === model && this.placement.placement === placement;
    if (!isCurrent()) return;
    await this.#work(async (call) => {
      model.place(placement);
      await model.prepare(call);
      document.body.dataset.state = "ready";
      this.#inspectModel();
    });
    this.again ||= hasRun;
    if (isCurrent()) await this.#runAgain(document.body.dataset.state === "ready");
  }

  /**
   * Run the open model on the panel's inputs. A run that is asked for while the model is opened,
   * placed or runs comes after that.
   */
  async run() {
    const { model, panel } = this;
    if (!panel) return;
    if (this.work) {
      this.again = true;
      return;
    }
    await this.#work(async (call) => {
      if (!model) throw new Report("page.model", "choose a model first");
      if (!model.description) await model.open(call);
      const feeds = await panel.feeds();
      const repeat = Number(/** @type {HTMLInputElement} */ (byId("repeat")).value) || 0;
      const profile = /** @type {HTMLInputElement} */ (byId("profile")).checked;
      const answer = await model.run(feeds, { repeat: Math.min(1000, Math.max(0, repeat)), profile }, call);
      this.#show(feeds, answer);
      document.body.dataset.state = "ran";
    });
    await this.#runAgain(true);
  }

  /**
   * What was asked for meanwhile.
   *
   * @param {boolean} isAble whether there is a model that can run
   */
  async #runAgain(isAble) {
    const asked = this.again && isAble;
    this.again = false;
    if (asked) await this.run();
  }

  /** @param {unknown} error */
  showError(error) {
    const { code, message, excerpt } = asReport(error);
    byId("error").replaceChildren(
      h("p", {}, h("strong", {}, "Error: "), h("span", { class: "message" }, message)),
      h("p", { class: "hint" }, h("code", { "data-code": code }, code)),
      excerpt ? h("pre", {}, excerpt) : "",
      h("button", { type: "button", onclick: () => this.clearError() }, "Dismiss"),
    );
    byId("error").hidden = false;
  }

  clearError() {
    byId("error").hidden = true;
    byId("error").replaceChildren();
  }

  /** @param {(call: import("./open_model.js").Call) => Promise<void>} act */
  async #work(act) {
    const controller = new AbortController();
    this.work = controller;
    this.steps.setBusy(true);
    this.clearError();
    document.body.dataset.busy = "";
    this.turn = (async () => {
      try {
        await act({ signal: controller.signal, onStep: (report) => this.steps.update(report) });
      } catch (error) {
        const isCancel = controller.signal.aborted || error instanceof Cancelled;
        this.steps.stop(isCancel ? "cancelled" : "failed");
        document.body.dataset.state = isCancel ? "cancelled" : "failed";
        if (!isCancel) this.showError(error);
      } finally {
        this.work = null;
        this.steps.setBusy(false);
        delete document.body.dataset.busy;
      }
    })();
    await this.turn;
  }

  #inspectModel() {
    const { model, tabs } = this;
    const compiled = model?.variants[model.variants.length - 1];
    if (!model || !compiled) return;
    this.placement.setCuts(compiled.cuts);
    const { after } = model.placement;
    const names = compiled.cuts.slice(1, -1).map(([name]) => name);
    const choose = (/** @type {string} */ name) => {
      if (this.placement.placement.device === "split") this.placement.choose(name);
    };
    tabs.set("Graph", () => graphView(compiled.graph, { names, after, choose }));
    if (compiled.peer) tabs.set("Tasks", () => taskGraphView(compiled));
    else tabs.remove("Tasks");
    tabs.set("IR text", () => irView(compiled, model.origin.name));
    tabs.set("Compiler", () => passesTable(compiled));
  }

  /**
   * @param {Record<string, import("./panels.js").PlainTensor>} feeds
   * @param {import("./runner.js").RunAnswer} answer
   */
  #show(feeds, answer) {
    const { model, panel, tabs } = this;
    if (!model || !panel) return;
    const compiled = model.variants[answer.variant];
    this.placement.setSymbols(answer.symbols);
    byId("result").replaceChildren(
      ...[
        panel.show(answer.outputs),
        timesList(answer),
        h("p", { class: "hint" }, "compilations: ", h("span", { id: "compilations" }, model.compilations)),
        h(
          "details",
          { id: "tensors" },
          h("summary", {}, "Tensors and digests"),
          tensorTable("outputs", answer.outputs),
          tensorTable("inputs", feeds),
        ),
      ].filter((node) => node !== null),
    );
    this.#inspectModel();
    tabs.set("Memory", () => memoryView(compiled, answer));
    const { launches } = JSON.parse(compiled.program);
    const named = launches.map((/** @type {string[]} */ [op, value]) => ({ op, value }));
    const { events, remote } = answer;
    tabs.set("Timeline", () =>
      events.length
        ? h("div", {}, remote && splitTimelineView(events, remote), timelineView(events, named))
        : h("p", { class: "hint" }, "run with “time every launch” to see where the time goes"),
    );
  }
}

/** @param {import("../compiler/worker.js").CompiledAnswer} compiled */
function passesTable({ passes, milliseconds, kernels, program, extra }) {
  const sizes = [
    ["kernels", kernels.length],
    ["program", program.length],
    ["constants made", extra.length],
  ];
  return h(
    "div",
    { class: "two" },
    h(
      "table",
      { class: "passes" },
      h("caption", {}, `Compiled in ${milliseconds.toFixed(0)} ms`),
      h(
        "tbody",
        {},
        passes.map(({ step, milliseconds: spent }) =>
          h("tr", {}, h("th", { scope: "row" }, step), h("td", {}, `${spent.toFixed(1)} ms`)),
        ),
      ),
    ),
    h(
      "table",
      {},
      h("caption", {}, "Bytes"),
      h("tbody", {}, sizes.map(([name, size]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, bytesText(Number(size)))))),
    ),
  );
}

/** @param {ListedModel} listed */
function originOf(listed) {
  /** @type {Origin} */
  const origin = {
    name: `${listed.name}.onnx`,
    digest: listed.digest,
    load: ({ signal, onStep }) =>
      fetchModel(listed, {
        signal,
        onProgress: (done, total) => onStep({ step: "download", done, total }),
      }),
  };
  return origin;
}

/**
 * @param {Page} page
 * @param {string} name
 * @returns {Panel}
 */
function panelFor(page, name) {
  const run = () => page.run();
  if (name === "digits") return new DigitsPanel(run);
  if (name === "orientation") return new OrientationPanel(run, (error) => page.showError(error));
  return new TensorPanel(run, DEFAULTS[/** @type {keyof typeof DEFAULTS} */ (name)]);
}

/**
 * @param {Page} page
 * @param {File} file
 */
function openFile(page, file) {
  select(OWN);
  const origin = { name: file.name, load: async () => file };
  return page.open(OWN, new TensorPanel(() => page.run()), origin);
}

/** @param {string} name */
function select(name) {
  for (const button of byId("models").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.model === name));
  }
}

/** @param {Page} page */
function listenForFiles(page) {
  byId("choose").append(
    fileButton("Choose a file", { id: "model-file", accept: ".onnx" }, (file) => openFile(page, file)),
  );
  const isFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    document.body.classList.remove("dropping");
    const [file] = event.dataTransfer?.files ?? [];
    if (file) openFile(page, file);
  });
}

/**
 * @param {Page} page
 * @param {ListedModel[]} models
 */
function listModels(page, models) {
  const list = byId("models");
  const entry = (/** @type {string} */ name, /** @type {string} */ title, /** @type {string} */ note, /** @type {() => void} */ act) =>
    h(
      "li",
      {},
      h(
        "button",
        { type: "button", "data-model": name, "aria-pressed": "false", onclick: () => { select(name); act(); } },
        h("span", { class: "title" }, title),
        h("span", { class: "hint" }, note),
      ),
    );
  list.replaceChildren(
    ...models.map((model) => {
      const open = () => page.open(model.name, panelFor(page, model.name), originOf(model));
      return entry(model.name, model.title, `${bytesText(model.bytes)}, ${model.licence}`, open);
    }),
  );
  const [first] = models;
  if (first) {
    select(first.name);
    page.open(first.name, panelFor(page, first.name), originOf(first));
  }
}

const page = new Page();
listenForFiles(page);
try {
  const [models, { workers }] = await Promise.all([fetchJson("models"), fetchJson("healthz")]);
  page.placement.setWorkers(workers);
  listModels(page, models);
} catch (error) {
  page.showError(error);
}
document.body.dataset.loaded = "";
