"""The compiler as a page calls it (Pyodide): byte reader in, program, kernels and ranges out.

Everything that crosses to JavaScript is text, bytes or numbers; weights stay where they are and
are named by ranges of the model file (``weights.js`` reads them). Constants that the compiler made
itself come along as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rlx_edge.compile.compiler import compile_placed_module, compile_shard, place_module
from rlx_edge.compile.cuts import Cut, cuts
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.program_builder import BufferPlace
from rlx_edge.compile.schedule import schedule
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.core import Constant
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.errors import InputError, RlxError
from rlx_edge.ir.json_form import module_json
from rlx_edge.ir.onnx.bytes import check_range
from rlx_edge.ir.onnx.importer import as_model, declared_parameters, import_model
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.program_text import dump_program
from rlx_edge.ir.task_graph import dump_task_graph
from rlx_edge.ir.task_graph_picture import task_graph_dot, task_graph_svg
from rlx_edge.ir.transfer_rules import devices, home
from rlx_edge.ir.types import TensorType

MODEL_FILE = "model"
EXTRA_FILE = "extra"
PLACES = ("local", "remote", "split")
"""Everything here, everything on the gateway, or a prefix here and the rest there."""

Read = Callable[[int, int], bytes]
Progress = Callable[[str], None]


class ReaderSource:
    """A ``ByteSource`` over a function, such as one that reads a ``Blob`` in a worker."""

    def __init__(self, read: Read, size: int, name: str) -> None:
        self._read = read
        self.size = size
        self.name = name

    def read(self, offset: int, length: int) -> bytes:
        check_range(self, offset, length)
        return self._read(offset, length)


@dataclass(frozen=True, slots=True)
class PageModel:
    """What a page gets for one variant.

    ``program`` is the document without its binary code, ``kernels`` that code, ``constants`` JSON
    by digest of ranges in the files ``model`` (the model) and ``extra`` (the bytes here). ``ir`` is
    the text before the passes, ``placed`` that after them, ``graph`` the latter as JSON.
    ``buffers`` is JSON for the picture of memory: rows ``[name, kind, first launch, last launch,
    resident, plan value of the address, bytes as a dim]``.

    ``cuts`` is JSON for every place where the module can be cut: rows ``[after, [[value, type,
    bytes as a dim], …]]`` of what crosses. Where a part runs elsewhere, ``peer`` is that device,
    ``ir_digest`` and ``task_graph`` (its document) are what both sides check, ``task_dot`` and
    ``task_svg`` its pictures, and ``constants`` has the peer's ones too; otherwise these texts are
    empty.
    """

    program: str
    kernels: bytes
    constants: str
    extra: bytes
    ir: str
    placed: str
    graph: str
    buffers: str
    cuts: str
    peer: str = ""
    ir_digest: str = ""
    task_graph: str = ""
    graph_digest: str = ""
    task_dot: str = ""
    task_svg: str = ""


def describe_model(read: Read, size: int, name: str) -> str:
    """JSON ``{inputs, metadata}``: rows ``{name, dtype, shape}`` of a model's inputs as the file
    declares them, and the texts that its makers put in (``metadata_props``).

    Raises ``RlxError`` for a file that is no ONNX model.
    """
    model = as_model(ReaderSource(read, size, name))
    rows = [
        {"name": value.name, "dtype": value.type.dtype.name, "shape": _shape(value.type)}
        for value in declared_parameters(model)
    ]
    return json.dumps({"inputs": rows, "metadata": dict(model.metadata)})


def compile_for_page(
    read: Read,
    size: int,
    name: str,
    values: Mapping[str, Sequence[int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    style: str = "v8",
    device: str = "local",
    split_after: str = "",
    worker: str = "",
    progress: Progress | None = None,
) -> PageModel:
    """Compile the model behind ``read`` for the page's own kernels.

    ``values`` and ``shapes`` decide the branches of a model that has some, as in
    ``import_model``. ``device`` is one of ``PLACES``; a split is cut behind the operation that
    defines ``split_after``. ``worker`` is the other device, ``cpu:0@gateway`` where it is empty.
    Raises ``RlxError``, ``InputError`` ``page.device`` for another word.
    """
    if device not in PLACES:
        raise InputError("page.device", "no such place", found=device, allowed=PLACES)
    tell = progress or _silent
    tell("import")
    source = ReaderSource(read, size, name)
    module = import_model(source, values=values, shapes=shapes)
    placed = place_module(module, progress=tell)
    found = list(cuts(placed.function))
    target = WasmTarget(style)
    peer = ""
    tasks = ("",) * 4
    if device != "local":
        tell("split")
        cut = Split(after=split_after if device == "split" else "")
        placed = (replace(cut, second=worker) if worker else cut).run(placed)
        graph = schedule(placed)
        own = home(placed.function)[0]
        peer = next((role for role in devices(placed.function) if role != own), "")
        tasks = (
            dump_task_graph(graph),
            graph.digest,
            task_graph_dot(graph),
            task_graph_svg(graph),
        )
        compiled = compile_shard(placed, own, target, progress=tell)
    else:
        source_digest = module_digest(module)
        compiled = compile_placed_module(placed, target, progress=tell, source_digest=source_digest)
    needed = {upload.digest for upload in compiled.program.uploads}
    constants = {
        digest: constant
        for digest, constant in compiled.placed.constants.items()
        if digest in needed or peer
    }
    ranges, extra = _ranges(constants, source)
    return PageModel(
        dump_program(compiled.program, with_code=False),
        compiled.program.code,
        json.dumps(ranges),
        extra,
        print_module(module),
        print_module(compiled.placed),
        module_json(compiled.placed),
        json.dumps([_buffer(place) for place in compiled.buffers]),
        json.dumps([_cut(cut) for cut in found]),
        peer,
        compiled.program.ir_digest,
        *tasks,
    )


def error_json(error: RlxError) -> str:
    """What a page shows of an error: its code, the sentence and the excerpt."""
    return json.dumps({"code": error.code, "message": str(error), "excerpt": error.excerpt})


def _ranges(
    constants: Mapping[str, Constant], source: ReaderSource
) -> tuple[dict[str, dict[str, object]], bytes]:
    ranges: dict[str, dict[str, object]] = {}
    extra = bytearray()
    for digest in sorted(constants):
        constant = constants[digest]
        if constant.source is source:
            ranges[digest] = _range(MODEL_FILE, constant.offset, constant.nbytes)
        else:
            ranges[digest] = _range(EXTRA_FILE, len(extra), constant.nbytes)
            extra += constant.read()
    return ranges, bytes(extra)


def _buffer(place: BufferPlace) -> list[object]:
    lifetime = [place.first, place.last, place.resident]
    return [place.name, place.kind, *lifetime, place.address, str(place.nbytes)]


def _cut(cut: Cut) -> list[object]:
    rows = [[value.name, str(value.type), str(value.type.nbytes)] for value in cut.values]
    return [cut.after, rows]


def _range(file: str, offset: int, length: int) -> dict[str, object]:
    return {"file": file, "offset": offset, "length": length}


def _shape(type: TensorType) -> list[int | str]:
    return [dim.value if dim.is_constant else str(dim) for dim in type.shape]


def _silent(step: str) -> None:
    del step
