"""``rlx compile``: a model as a folder of static files that a page runs without Python."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import rlx_edge
from rlx_edge.cli.arguments import add_import, parse_shapes, parse_values
from rlx_edge.cli.bundle_folder import BundleFolder
from rlx_edge.cli.loading import graph_of
from rlx_edge.cli.progress import Steps
from rlx_edge.compile import CompiledModule, WasmTarget, compile_module
from rlx_edge.compile.bundle import StoredFile, write_bundle
from rlx_edge.compile.targets.wasm import STYLES
from rlx_edge.ir.errors import DeviceError

WEIGHTS = "weights"
PARTS = (
    ("runtime", ("runtime/",)),
    ("kernels", ("kernels-",)),
    ("program", ("program-", "manifest.json")),
    (WEIGHTS, ("weights-",)),
    ("example", ("",)),
)
"""Rows of the table of sizes: a file counts for the first whose beginning it has."""

T = TypeVar("T")
Numbers = tuple[int, ...]
Compress = Callable[[bytes], bytes]


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx compile``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX model or IR text")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", required=True, help="the bundle, new or to be replaced"
    )
    parser.add_argument(
        "--style", choices=STYLES, default="v8", help="kernels tuned for; v8 by default"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_import(parser)
    parser.epilog = (
        "Several values or shapes for one input make a variant each: "
        "--value sr=16000 --value sr=8000"
    )


def execute(options: argparse.Namespace) -> int:
    """Compile every variant, write the bundle, print its sizes."""
    combinations = list(
        variant_inputs(
            alternatives(parse_values([spec]) for spec in options.value),
            alternatives(parse_shapes([spec]) for spec in options.shape),
        )
    )
    runtime = runtime_files()
    method, compress = compressor()
    steps = Steps()
    with BundleFolder(options.output) as folder:
        try:
            variants = compiled_variants(options, combinations, steps)
            steps("write")
            name = Path(options.model).name
            files = write_bundle(variants, folder, model=name, runtime=runtime)
            parts = measured(folder, files, compress)
        finally:
            steps.clear()
    if options.json:
        print(json.dumps(summary(options.output, variants, parts, method), indent=2))
    else:
        print("\n".join(lines(options.output, variants, parts, method)))
    return 0


def alternatives(parsed: Iterable[dict[str, T]]) -> dict[str, list[T]]:
    """What was given for each name, in order."""
    found: dict[str, list[T]] = {}
    for one in parsed:
        for name, item in one.items():
            if item not in found.setdefault(name, []):
                found[name].append(item)
    return found


def variant_inputs(
    values: Mapping[str, Sequence[Numbers]], shapes: Mapping[str, Sequence[Numbers]]
) -> Iterator[tuple[dict[str, Numbers], dict[str, Numbers]]]:
    """Values and shapes of every variant: one alternative for each name, all combinations."""
    for chosen_values in product(*values.values()):
        for chosen_shapes in product(*shapes.values()):
            yield (
                dict(zip(values, chosen_values, strict=True)),
                dict(zip(shapes, chosen_shapes, strict=True)),
            )


def compiled_variants(
    options: argparse.Namespace,
    combinations: Sequence[tuple[dict[str, Numbers], dict[str, Numbers]]],
    steps: Steps,
) -> list[CompiledModule]:
    """The variants that differ, in order."""
    found: dict[str, CompiledModule] = {}
    for values, shapes in combinations:
        module = graph_of(options.model, values, shapes)
        compiled = compile_module(module, WasmTarget(options.style), progress=steps)
        found.setdefault(compiled.program.ir_digest, compiled)
    return list(found.values())


def runtime_files() -> dict[str, bytes]:
    """The runtime and its example by their names in a bundle.

    They lie in the installed package, or beside it in the source tree.
    """
    package = Path(rlx_edge.__file__).resolve().parent
    for folder in (package / "web" / "runtime", package.parent / "web" / "runtime"):
        if (folder / "index.js").is_file():
            files = {f"runtime/{path.name}": path.read_bytes() for path in folder.glob("*.js")}
            example = {path.name: path.read_bytes() for path in (folder / "example").iterdir()}
            return files | example
    raise DeviceError(
        "cli.runtime", "this installation has no JavaScript runtime", where=str(package)
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of files in a bundle: bytes as stored, and compressed as a server would send them
    (``None`` for weights, which hardly shrink)."""

    name: str
    files: int
    nbytes: int
    compressed: int | None


def measured(folder: BundleFolder, stored: Sequence[StoredFile], compress: Compress) -> list[Part]:
    """The parts of a bundle that is about to be finished."""
    rows: dict[str, list[StoredFile]] = {name: [] for name, _ in PARTS}
    for file in stored:
        rows[next(name for name, heads in PARTS if file.name.startswith(heads))].append(file)
    return [
        Part(
            name,
            len(files),
            sum(file.nbytes for file in files),
            None
            if name == WEIGHTS
            else sum(len(compress(folder.read(file.name))) for file in files),
        )
        for name, files in rows.items()
    ]


def compressor() -> tuple[str, Compress]:
    """brotli where its module is installed, else gzip."""
    if find_spec("brotli") is None:
        return "gzip", lambda data: gzip.compress(data, 9, mtime=0)
    return "brotli", import_module("brotli").compress


def summary(
    output: str, variants: Sequence[CompiledModule], parts: Sequence[Part], method: str
) -> dict[str, Any]:
    """What was written, as JSON."""
    return {
        "output": output,
        "variants": [
            {
                "ir_digest": variant.program.ir_digest,
                "kernels_digest": variant.program.kernels_digest,
                "guards": [str(guard) for guard in variant.program.guards],
            }
            for variant in variants
        ],
        "parts": {
            part.name: {"files": part.files, "bytes": part.nbytes}
            | ({} if part.compressed is None else {method: part.compressed})
            for part in parts
        },
    }


def lines(
    output: str, variants: Sequence[CompiledModule], parts: Sequence[Part], method: str
) -> list[str]:
    """The same for people."""
    found = [f"{'part':<10}{'files':>6}{'bytes':>12}{method:>12}"]
    for part in parts:
        compressed = "" if part.compressed is None else part.compressed
        found.append(f"{part.name:<10}{part.files:>6}{part.nbytes:>12}{compressed:>12}")
    overhead = [part for part in parts if part.compressed is not None]
    total, small = (
        sum(part.nbytes for part in overhead),
        sum(part.compressed or 0 for part in overhead),
    )
    found.append(f"{'all but weights':<16}{total:>12}{small:>12}")
    for number, variant in enumerate(variants):
        guards = " and ".join(str(guard) for guard in variant.program.guards)
        found.append(f"variant {number} {f'where {guards}' if guards else 'for every input'}")
    return [*found, f"bundle in {output}; serve it, or open index.html from any static host"]
