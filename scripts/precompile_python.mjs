// Compiles Python sources to bytecode with Pyodide's own interpreter, whose version differs from
// the host's. Usage: node precompile_python.mjs PYODIDE_FOLDER IN.zip OUT.zip [IN.zip OUT.zip …]
//
// Every `.py` of IN becomes a `.pyc` in its place (PEP 488 sourceless layout, unchecked hash:
// PEP 552), other files are kept; OUT is stored uncompressed with fixed times, so equal input gives
// equal bytes.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [folder, ...files] = process.argv.slice(2);
if (!folder || !files.length || files.length % 2) {
  console.error("usage: node precompile_python.mjs PYODIDE_FOLDER IN.zip OUT.zip …");
  process.exit(2);
}
process.on("uncaughtException", (error) => {
  // Node would print the source line, and Pyodide's are a megabyte long.
  console.error(`precompile_python: ${String(error?.message ?? error).slice(0, 2000)}`);
  process.exit(1);
});
const { loadPyodide } = await import(pathToFileURL(path.join(path.resolve(folder), "pyodide.mjs")));
const pyodide = await loadPyodide({ indexURL: path.resolve(folder) });
const precompile = pyodide.runPython(`
import importlib._bootstrap_external as external
import io, zipfile
from importlib.util import source_hash

def precompile(data):
    source = zipfile.ZipFile(io.BytesIO(data.to_bytes()))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(source.namelist()):
            if name.endswith("/"):
                continue
            content = source.read(name)
            if name.endswith(".py"):
                code = compile(content, name, "exec", dont_inherit=True, optimize=1)
                content = bytes(external._code_to_hash_pyc(code, source_hash(content), False))
                name += "c"
            target.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()

precompile
`);
for (let index = 0; index < files.length; index += 2) {
  const result = precompile(new Uint8Array(await readFile(files[index])));
  await writeFile(files[index + 1], result.toJs());
  result.destroy();
}
