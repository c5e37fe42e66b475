"""The backends: a row a kind of target, with the code that goes with its data.

A backend is constraints (``Offers``: which templates it has for an operation), an emitter, and in
a package of its own an ``ExecutionUnit``. Passes, lowering, planning and linking are the same for
all. Rows are imported when used: a page that compiles WebAssembly loads no other emitter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias, cast

from rlx_edge.compile.select import Offers
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.kernel import Kernel, LoopKernel
from rlx_edge.ir.program import Entry, LaunchInfo

BACKENDS = {
    "wasm": "rlx_edge.compile.codegen.wasm.backend:BACKEND",
    "cuda": "rlx_edge.compile.codegen.cuda.emit:BACKEND",
    "vulkan": "rlx_edge.compile.codegen.spirv.emit:BACKEND",
}
"""Kind of target → ``module:name`` of its ``Backend``."""


@dataclass(frozen=True, slots=True)
class Code:
    """What an emitter makes: bytes, and an entry a kernel where the host launches kernels."""

    data: bytes
    entries: tuple[Entry, ...] = ()


Emit: TypeAlias = Callable[[Sequence[Kernel], Any, Sequence[LaunchInfo]], Code]
"""``emit(kernels, target, uses)``: code in which kernel i is number i; ``uses`` is the first launch
of each, for names. The same arguments give the same bytes."""
Groups: TypeAlias = Callable[[LoopKernel, Sequence[Dim]], Sequence[tuple[LoopKernel, Dim]]]
"""``groups(kernel, arguments)``: the forms of a generic loop kernel whose parameters are
``arguments``, and their workgroups; the sizes decide which one has any."""
Unfit: TypeAlias = Callable[[Sequence[Entry], Callable[[], str], Any], Mapping[int, str]]
"""``unfit(entries, ask, limits)``: kernels that do not fit limits of this kind, and why; ``ask``
gives what an assembler says of the code."""


@dataclass(frozen=True, slots=True)
class Assembler:
    """Who can say what becomes of code on a device: ``words(code)``, and the device's ``limits``,
    of the kind that the row's ``unfit`` takes."""

    words: Callable[[bytes], str]
    limits: Any


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of target; ``groups`` is ``None`` where kernels have no workgroups, ``unfit`` where
    nothing tells before a launch whether one fits. ``reductions`` over a row are the most that one
    kernel takes in (option of ``fuse``)."""

    offers: Offers
    emit: Emit
    groups: Groups | None = None
    unfit: Unfit | None = None
    reductions: int = 1


def backend_of(target: Target) -> Backend:
    """The row of a target; ``RlxError`` ``target.kind`` where this build has none."""
    return backend_named(target.kind)


def backend_named(kind: str) -> Backend:
    """The row of a kind of target; as ``backend_of``."""
    place = BACKENDS.get(kind)
    if place is None:
        raise RlxError(
            "target.kind", "no backend for this target", found=kind, allowed=list(BACKENDS)
        )
    module, _, name = place.partition(":")
    return cast(Backend, getattr(import_module(module), name))


def precisions(target: Target) -> tuple[str, ...]:
    """What contractions on a target may be asked for (``ir.attributes.PRECISIONS``)."""
    return tuple(backend_of(target).offers.precisions(target))
