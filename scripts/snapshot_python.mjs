// Writes the memory of Pyodide with every module of our wheel imported, so that the page has neither
// to start Python nor to import the compiler. Usage:
//   node snapshot_python.mjs PYODIDE_FOLDER LIBRARY.zip WHEEL OUT.bin
//
// Prints as JSON the files of LIBRARY.zip that the memory has modules of. The memory is checked
// before it is written: Pyodide starts from it and finds the compiler. The format is Pyodide's own
// (`makeMemorySnapshot`, not in its documentation) and good for exactly the `pyodide.asm.wasm` that
// made it; package-lock.json pins that.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import path from "node:path";
import { roomFor } from "../web/compiler/snapshot.js";

const [folder, library, wheel, out] = process.argv.slice(2);
if (!out) {
  console.error("usage: node snapshot_python.mjs PYODIDE_FOLDER LIBRARY.zip WHEEL OUT.bin");
  process.exit(2);
}
process.on("uncaughtException", (error) => {
  // Node would print the source line, and Pyodide's are a megabyte long.
  console.error(`snapshot_python: ${String(error?.message ?? error).slice(0, 2000)}`);
  process.exit(1);
});
const indexURL = path.resolve(folder);
const stdLibURL = path.resolve(library);
const { loadPyodide } = await import(pathToFileURL(path.join(indexURL, "pyodide.mjs")));
const { default: create } = await import(pathToFileURL(path.join(indexURL, "pyodide.asm.mjs")));

// Without a seed, hashes of strings would be others in every build.
const env = { HOME: "/home/pyodide", PYTHONHASHSEED: "0" };
const pyodide = await loadPyodide({ indexURL, stdLibURL, env, _makeSnapshot: true });
pyodide.unpackArchive(new Uint8Array(await readFile(wheel)), "wheel");
const files = pyodide.runPython(`
import gc, importlib, json, pkgutil, sys
import rlx_edge
for found in pkgutil.walk_packages(rlx_edge.__path__, "rlx_edge."):
    importlib.import_module(found.name)
files = json.dumps([getattr(module, "__file__", None) or "" for module in sys.modules.values()])
gc.collect()
files
`);
const memory = pyodide.makeMemorySnapshot();

const restored = await loadPyodide({
  indexURL,
  stdLibURL,
  _loadSnapshot: memory,
  createPyodideModule: roomFor(create, memory.length),
});
restored.runPython("from rlx_edge.compile.page import compile_for_page");
await writeFile(out, memory);
console.log(JSON.stringify(JSON.parse(files).map((name) => name.split(".zip/")[1]).filter(Boolean)));
process.exit(0);
