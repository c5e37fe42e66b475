/**
 * The compiler in a worker: Pyodide with the rlx-edge wheel. Requests come as messages, each with an
 * `id` that its answers carry.
 *
 * | request | answers |
 * | --- | --- |
 * | `{id, kind: "start"}` | `progress`…, `ready` |
 * | `{id, kind: "describe", file, name}` | `progress`…, `described` |
 * | `{id, kind: "compile", file, name, values, shapes, style, device, after, worker}` | `progress`…, `compiled` |
 *
 * Any may be answered by `failed` with code, message and excerpt. Compiling cannot be interrupted:
 * who wants to cancel terminates the worker. The model is a `Blob`; only the ranges that the
 * compiler asks for are read, and weights never come here.
 *
 * @typedef {{code: string, message: string, excerpt: string}} Report
 * @typedef {{step: "python", done: number, total: number} | {step: string}} Progress
 *   `python`: bytes of the interpreter and its library; otherwise the pass that begins
 * @typedef {{name: string, dtype: string, shape: (number | string)[]}} DeclaredInput
 * @typedef {{inputs: DeclaredInput[], metadata: Record<string, string>}} Description
 * @typedef {{id: number, kind: "start"}} StartRequest
 * @typedef {{id: number, kind: "describe", file: Blob, name: string}} DescribeRequest
 * @typedef {object} CompileRequest
 * @property {number} id
 * @property {"compile"} kind
 * @property {Blob} file
 * @property {string} name
 * @property {Record<string, number[]>} [values]
 * @property {Record<string, number[]>} [shapes]
 * @property {string} [style]
 * @property {"local" | "remote" | "split"} [device]
 * @property {string} [worker] the gateway's device; `cpu:0@gateway` where it is empty
 * @property {string} [after] the value behind whose operation a split is cut
 * @typedef {object} CompiledAnswer
 * @property {string} program the document of `rlx_edge/ir/program_text.py`
 * @property {Uint8Array<ArrayBuffer>} kernels
 * @property {Uint8Array<ArrayBuffer>} extra constants that the compiler made
 * @property {Record<string, {file: string, offset: number, length: number}>} constants
 * @property {string} ir the text before the passes
 * @property {string} placed the text after them
 * @property {string} graph the latter as JSON
 * @property {unknown[][]} buffers see `rlx_edge/compile/page.py`
 * @property {[string, [string, string, string][]][]} cuts where it can be cut, and what crosses
 * @property {string} peer the other device, "" where there is none
 * @property {string} ir_digest
 * @property {string} task_graph its document; "" without a peer, as its pictures
 * @property {string} task_dot
 * @property {string} task_svg
 * @property {number} milliseconds
 * @property {{step: string, milliseconds: number}[]} passes
 */

import { checkedFetch, fetchBytes, ReportedError } from "./fetching.js";
import { roomFor } from "./snapshot.js";

const PACKAGE = "rlx-edge";
const PYODIDE = new URL("../pyodide/", import.meta.url).href;
const scope = /** @type {any} */ (globalThis);
/** Progress messages are at least this many milliseconds apart. */
const PAUSE = 50;

/** @type {Promise<any> | undefined} */
let starting;

/** @param {(progress: Progress) => void} tell */
function start(tell) {
  starting ??= load(tell);
  return starting;
}

/**
 * How the site says that Python starts: from a snapshot of memory, or from library and wheel.
 *
 * @typedef {{library: string, bytes: number}} PlainStart
 * @typedef {PlainStart & {file: string, length: number, integrity: string}} SnapshotStart
 */

/** @param {(progress: Progress) => void} tell */
async function load(tell) {
  const site = await (await checkedFetch(new URL("../site.json", import.meta.url))).json();
  /** @type {{plain: PlainStart, snapshot?: SnapshotStart}} */
  const { plain, snapshot } = site.starts;
  const total = (snapshot ?? plain).bytes;
  let done = 0;
  let told = 0;
  const count = (/** @type {number} */ nbytes) => {
    done += nbytes;
    if (done < total && performance.now() - told < PAUSE) return;
    told = performance.now();
    tell({ step: "python", done, total });
  };
  count(0);
  /** @type {(error: unknown) => void} */
  let fail = () => {};
  const broken = new Promise((_, reject) => (fail = reject));
  scope.fetch = (/** @type {RequestInfo | URL} */ resource, /** @type {RequestInit} */ options) => {
    const response = checkedFetch(resource, options, count);
    response.catch(fail);
    return response;
  };
  // loadPyodide waits for ever where a file of its core cannot be had.
  const python = snapshot ? restored(snapshot, count) : started(plain);
  const pyodide = await Promise.race([broken, python]);
  tell({ step: "compiler" });
  const globals = pyodide.globals.get("dict")();
  pyodide.runPython(GLUE, { globals });
  return { describe: globals.get("describe"), compile: globals.get("compile_model") };
}

/** @param {string} library */
function settingsFor(library) {
  return {
    indexURL: PYODIDE,
    lockFileURL: `${PYODIDE}pyodide-lock.json`,
    stdLibURL: `${PYODIDE}${library}`,
    checkIntegrity: true,
  };
}

/**
 * Python from its library, the compiler from its wheel.
 *
 * @param {PlainStart} start
 */
async function started({ library }) {
  const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
  const pyodide = await loadPyodide({ ...settingsFor(library), packages: [PACKAGE] });
  // loadPyodide resolves even where the wheel's digest does not match the lock file.
  if (!(PACKAGE in pyodide.loadedPackages)) {
    throw new ReportedError(
      "site.wheel",
      "the compiler's wheel is not the one of the lock file; build the site again",
    );
  }
  return pyodide;
}

/**
 * The same, as it was when the snapshot was made. The library then had more files, which are in the
 * snapshot as modules.
 *
 * @param {SnapshotStart} start
 * @param {(nbytes: number) => void} count
 */
async function restored({ library, file, length, integrity }, count) {
  const memory = fetchBytes(`${PYODIDE}${file}`, { integrity }, length, count);
  const { loadPyodide } = await import(`${PYODIDE}pyodide.mjs`);
  const { default: create } = await import(`${PYODIDE}pyodide.asm.mjs`);
  const pyodide = await loadPyodide({
    ...settingsFor(library),
    _loadSnapshot: memory,
    createPyodideModule: roomFor(create, length),
  });
  pyodide.runPython("import importlib; importlib.invalidate_caches()");
  return pyodide;
}

const GLUE = `
from rlx_edge.compile.page import compile_for_page, describe_model, error_json
from rlx_edge.ir.errors import RlxError

def guarded(work):
    try:
        return True, work()
    except RlxError as error:
        return False, error_json(error)

def describe(read, size, name):
    return guarded(lambda: describe_model(lambda o, n: read(o, n).to_bytes(), size, name))

def compile_model(read, size, name, values, shapes, style, device, after, worker, progress):
    return guarded(lambda: compile_for_page(
        lambda o, n: read(o, n).to_bytes(), size, name, values.to_py(), shapes.to_py(),
        style=style, device=device, split_after=after, worker=worker, progress=progress))
`;

/**
 * The value of a guarded call; throws what Python reported.
 *
 * @param {any} pair
 */
function unwrap(pair) {
  const [done, value] = pair;
  pair.destroy();
  if (done) return value;
  const { code, message, excerpt } = JSON.parse(value);
  throw new ReportedError(code, message, excerpt);
}

/** @param {Blob} file */
function reader(file) {
  const sync = new scope.FileReaderSync();
  return (/** @type {number} */ offset, /** @type {number} */ length) =>
    sync.readAsArrayBuffer(file.slice(offset, offset + length));
}

/**
 * @param {CompileRequest} request
 * @param {any} compile
 * @param {(progress: Progress) => void} tell
 * @returns {CompiledAnswer}
 */
function compiled(request, compile, tell) {
  const { file, name, values = {}, shapes = {}, style = "v8" } = request;
  const { device = "local", after = "", worker = "" } = request;
  const started = performance.now();
  /** @type {{step: string, start: number}[]} */
  const steps = [];
  const onStep = (/** @type {string} */ step) => {
    steps.push({ step, start: performance.now() });
    tell({ step });
  };
  const read = reader(file);
  const model = unwrap(
    compile(read, file.size, name, values, shapes, style, device, after, worker, onStep),
  );
  const bytes = (/** @type {string} */ part) => {
    const value = model[part];
    const copy = value.toJs();
    value.destroy();
    return copy;
  };
  const [kernels, extra] = [bytes("kernels"), bytes("extra")];
  const { program, constants, ir, placed, graph, buffers, cuts } = model;
  const { peer, ir_digest, task_graph, task_dot, task_svg } = model;
  model.destroy();
  const end = performance.now();
  return {
    program,
    kernels,
    extra,
    constants: JSON.parse(constants),
    ir,
    placed,
    graph,
    buffers: JSON.parse(buffers),
    cuts: JSON.parse(cuts),
    peer,
    ir_digest,
    task_graph,
    task_dot,
    task_svg,
    milliseconds: end - started,
    passes: steps.map(({ step, start }, i) => ({
      step,
      milliseconds: (steps[i + 1]?.start ?? end) - start,
    })),
  };
}

/**
 * @param {StartRequest | DescribeRequest | CompileRequest} request
 * @param {(progress: Progress) => void} tell
 * @returns {Promise<[Record<string, unknown>, Transferable[]]>}
 */
async function answer(request, tell) {
  const { describe, compile } = await start(tell);
  if (request.kind === "start") return [{ kind: "ready" }, []];
  const { file, name } = request;
  if (request.kind === "describe") {
    const found = unwrap(describe(reader(file), file.size, name));
    return [{ kind: "described", ...JSON.parse(found) }, []];
  }
  const model = compiled(request, compile, tell);
  return [{ kind: "compiled", ...model }, [model.kernels.buffer, model.extra.buffer]];
}

/**
 * @param {unknown} error
 * @returns {Report}
 */
function report(error) {
  if (error instanceof ReportedError) {
    return { code: error.code, message: error.message, excerpt: error.excerpt };
  }
  const lines = String(error).trim().split("\n");
  return {
    code: starting ? "compiler.failed" : "site.python",
    message: `the compiler failed: ${lines[lines.length - 1]}`,
    excerpt: "",
  };
}

// Pyodide drops promises of files that it waits for later; what they fail with is told anyway.
scope.addEventListener("unhandledrejection", (/** @type {PromiseRejectionEvent} */ event) => {
  if (event.reason instanceof ReportedError) event.preventDefault();
});

scope.addEventListener("message", async (/** @type {MessageEvent} */ { data: request }) => {
  const { id } = request;
  const tell = (/** @type {Progress} */ progress) =>
    scope.postMessage({ id, kind: "progress", ...progress });
  try {
    const [message, transfer] = await answer(request, tell);
    scope.postMessage({ id, ...message }, { transfer });
  } catch (error) {
    scope.postMessage({ id, kind: "failed", ...report(error) });
  }
});
