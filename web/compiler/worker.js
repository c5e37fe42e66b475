/**
 * The compiler in a worker: Pyodide with the rlx-edge wheel. Requests come as messages, each with an
 * `id` that its answers carry.
 *
 * | request | answers |
 * | --- | --- |
 * | `{id, kind: "start"}` | `progress`…, `ready` |
 * | `{id, kind: "describe", file, name}` | `described` with the inputs that the file declares |
 * | `{id, kind: "compile", file, name, values, shapes, style}` | `progress`…, `compiled` |
 *
 * Any may be answered by `failed`. Compiling cannot be interrupted: who wants to cancel terminates
 * the worker. The model is a `Blob`; only the ranges that the compiler asks for are read.
 *
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
 */

import { loadPyodide } from "../pyodide/pyodide.mjs";

const PACKAGE = "rlx-edge";
const PYODIDE = new URL("../pyodide/", import.meta.url).href;

/** @type {Promise<any> | undefined} */
let starting;

/** @param {(step: string) => void} tell */
function start(tell) {
  starting ??= (async () => {
    tell("python");
    const pyodide = await loadPyodide({
      indexURL: PYODIDE,
      lockFileURL: `${PYODIDE}pyodide-lock.json`,
      stdLibURL: `${PYODIDE}python_stdlib.zip`,
      packages: [PACKAGE],
    });
    // loadPyodide resolves even where the wheel's digest does not match the lock file.
    if (!(PACKAGE in pyodide.loadedPackages)) {
      throw new Error("the compiler's wheel does not match its lock file; rebuild the site");
    }
    tell("compiler");
    return { pyodide, page: pyodide.pyimport("rlx_edge.compile.page") };
  })();
  return starting;
}

/** @param {Blob} file */
function reader(file) {
  const sync = new FileReaderSync();
  return (/** @type {number} */ offset, /** @type {number} */ length) =>
    sync.readAsArrayBuffer(file.slice(offset, offset + length));
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

def compile_model(read, size, name, values, shapes, style, progress):
    return guarded(lambda: compile_for_page(
        lambda o, n: read(o, n).to_bytes(), size, name, values.to_py(), shapes.to_py(),
        style=style, progress=progress))
`;

/** @type {any} */
let glue;

/** @param {any} pyodide */
function entry(pyodide) {
  if (!glue) {
    glue = pyodide.globals.get("dict")();
    pyodide.runPython(GLUE, { globals: glue });
  }
  return glue;
}

/**
 * The value of a guarded call; throws what Python reported.
 *
 * @param {any} pair
 */
function unwrap(pair) {
  const [done, value] = pair;
  pair.destroy();
  if (done) return value;
  throw new ReportedError(JSON.parse(value));
}

class ReportedError extends Error {
  /** @param {{code: string, message: string, excerpt: string}} report */
  constructor(report) {
    super(report.message);
    this.report = report;
  }
}

/**
 * @param {StartRequest | DescribeRequest | CompileRequest} request
 * @param {(step: string) => void} tell
 * @returns {Promise<{message: Record<string, unknown>, transfer: Transferable[]}>}
 */
async function answer(request, tell) {
  const { pyodide } = await start(tell);
  if (request.kind === "start") return { message: { kind: "ready" }, transfer: [] };
  const { file, name } = request;
  const calls = entry(pyodide);
  if (request.kind === "describe") {
    const inputs = unwrap(calls.get("describe")(reader(file), file.size, name));
    return { message: { kind: "described", inputs: JSON.parse(inputs) }, transfer: [] };
  }
  const { values = {}, shapes = {}, style = "v8" } = request;
  const started = performance.now();
  const model = unwrap(
    calls.get("compile_model")(reader(file), file.size, name, values, shapes, style, tell),
  );
  /** @param {string} part */
  const bytes = (part) => {
    const value = model[part];
    const copy = value.toJs();
    value.destroy();
    return copy;
  };
  const kernels = bytes("kernels");
  const extra = bytes("extra");
  const { program, constants, ir, placed, dot } = model;
  model.destroy();
  const milliseconds = performance.now() - started;
  return {
    message: {
      kind: "compiled",
      program,
      kernels,
      extra,
      constants: JSON.parse(constants),
      ir,
      placed,
      dot,
      milliseconds,
    },
    transfer: [kernels.buffer, extra.buffer],
  };
}

self.addEventListener("message", async ({ data: request }) => {
  const { id } = request;
  const tell = (/** @type {string} */ step) => self.postMessage({ id, kind: "progress", step });
  try {
    const { message, transfer } = await answer(request, tell);
    self.postMessage({ id, ...message }, { transfer });
  } catch (error) {
    const report =
      error instanceof ReportedError
        ? error.report
        : { code: "compiler.failed", message: `the compiler failed: ${error}`, excerpt: "" };
    self.postMessage({ id, kind: "failed", ...report });
  }
});
