"""Generated code as files, to read or to hand to other tools; the suffix says in which form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from rlx_edge.compile import CudaTarget
from rlx_edge.compile.codegen.spirv import dump as spirv
from rlx_edge.compile.codegen.wasm import dump as wasm
from rlx_edge.compile.targets.target import Target
from rlx_edge.gpu_workers.cuda.assembly import assemble
from rlx_edge.ir.errors import InputError

Form = Callable[[bytes, Target], bytes]


def _plain(code: bytes, target: Target) -> bytes:
    del target
    return code


def _wasm_text(code: bytes, target: Target) -> bytes:
    del target
    return wasm.dump(code).encode()


def _spirv_text(code: bytes, target: Target) -> bytes:
    del target
    return spirv.dump(code).encode() if code else b""  # a program without kernels has no module


def _assembled(form: str) -> Form:
    def write(code: bytes, target: Target) -> bytes:
        assert isinstance(target, CudaTarget)
        return assemble(code, target.arch, form)

    return write


FORMS: dict[str, dict[str, Form]] = {
    "wasm": {".wasm": _plain, ".dump": _wasm_text},
    "cuda": {".cu": _plain, ".ptx": _assembled("ptx"), ".cubin": _assembled("cubin")},
    "vulkan": {".spv": _plain, ".spvasm": _spirv_text},
}
"""By the kind of a target and the suffix of a file: the program's code, or text of it."""


def form_of(path: str, target: Target) -> Form:
    """``InputError`` ``cli.code`` where the device has no code of that suffix."""
    forms, suffix = FORMS[target.kind], PurePath(path).suffix
    if suffix not in forms:
        raise InputError(
            "cli.code",
            "the device has no code of that suffix",
            found=suffix or "none",
            allowed=list(forms),
            where=f"--code {path}",
        )
    return forms[suffix]
