"""Kernel IR: what one launch computes, with symbolic sizes.

Two forms share one calling convention. A ``LoopKernel`` is a loop nest around one store whose
value is a scalar expression over flat element offsets. A ``TemplateKernel`` names a hand-designed
template (matmul, conv2d, …) with baked configuration and an epilogue expression.

A kernel is generic: its dims mention only loop variables (``_…``) and parameters (``p0``, ``p1``,
…). ``generalize`` turns the loop nest of one operator into such a kernel plus the dims that the
plan evaluates into its argument words, so equal computations share one kernel.

Calling convention (WebAssembly): ``(args: i32, thread: i32) -> ()`` where ``args`` is the byte
address of i32 words: first one byte address a buffer slot (slot 0 is the output), then the
parameters in order.

Calling convention (Vulkan): the same words, addresses in units of 16 bytes. Push constants are the
64-bit device address of the memory, where kernels use one, then the words if there are at most
``PUSHED_WORDS``, else the place of the first of them in memory, counted in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_edge.ir.dims import Atom, Dim, Monomial, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.expression import Expr, index, index_dim, rewrite
from rlx_edge.ir.types import DType

PUSHED_WORDS = 28
"""Words that every Vulkan device takes as push constants beside an address (128 bytes)."""
BAKED = (-1, 0, 1, 4)
"""Strides that kernels are specialised for: reverse, broadcast, contiguous, one channel block."""
BAKED_EXTENT = 16
"""Reduction extents up to this constant are baked into the kernel; others are parameters."""


@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in 0..extent``; outermost first in a nest."""

    var: str
    extent: Dim


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """``for loops: store(slot 0, offset, value)``; loads in ``value`` have one flat offset.

    ``buffers`` are the slots' element types. Offsets are in elements. Iterations are independent
    (any order, any vector width); reductions inside ``value`` follow the numerics contract. If
    ``lanes`` is set, the innermost loop has extent 4 exactly and is one vector (channel blocks).
    ``walk`` is how workgroups go over rows, where a target has them (``compile/workgroups.py``).
    """

    loops: tuple[Loop, ...]
    buffers: tuple[DType, ...]
    offset: Dim
    value: Expr
    parameters: int = 0
    lanes: bool = False
    walk: str = ""


@dataclass(frozen=True, slots=True)
class TemplateKernel:
    """A template with its baked configuration; ``config`` is sorted ``(name, value)`` pairs.

    ``epilogue`` is an expression over ``acc`` and loads of the extra operands at the output's
    position, or ``None``: ``load(k, dtype, ())`` is extra operand ``k`` (its position in
    ``extras``), without indices. Slot order is the template's (``slots``).
    """

    template: str
    config: tuple[tuple[str, int | str | bool], ...]
    buffers: tuple[DType, ...]
    epilogue: Expr | None = None
    extras: tuple[str, ...] = ()
    """How each extra operand is indexed: ``full``, ``channel``, ``batch_channel`` or ``scalar``."""
    parameters: int = 0

    def option(self, name: str) -> int | str | bool:
        return dict(self.config)[name]


Kernel = LoopKernel | TemplateKernel


def is_variable(name: str) -> bool:
    """Whether a dim symbol is a loop variable."""
    return name.startswith("_")


def parameter(position: int) -> Dim:
    """The dim of kernel parameter ``position``."""
    return symbol(f"p{position}")


def generalize(kernel: LoopKernel) -> tuple[LoopKernel, tuple[Dim, ...]]:
    """Abstract sizes into parameters: ``(generic kernel, argument dims)``.

    Coefficients of ``BAKED`` stay (they decide vectorisation), as do reduction extents up to
    ``BAKED_EXTENT`` and constant divisors; every other size becomes a parameter. Each loop extent
    has its own, so that sizes which happen to be equal do not make another kernel; equal strides
    and offsets share one.
    """
    arguments: list[Dim] = []
    known: dict[Dim, Dim] = {}

    def abstract(dim: Dim) -> Dim:
        if dim.is_constant and dim.value in BAKED:
            return dim
        found = known.get(dim)
        if found is None:
            found = parameter(len(arguments))
            known[dim] = found
            arguments.append(dim)
        return found

    def size(dim: Dim) -> Dim:
        arguments.append(dim)
        return parameter(len(arguments) - 1)

    def offset(dim: Dim) -> Dim:
        return _split_variables(dim, abstract)

    loops = tuple(
        Loop(loop.var, loop.extent if _stays(loop, kernel) else size(loop.extent))
        for loop in kernel.loops
    )
    store = offset(kernel.offset)

    def rule(node: Expr) -> Expr | None:
        dim = index_dim(node)
        return None if dim is None else index(offset(dim))

    value = rewrite(kernel.value, rule)
    generic = LoopKernel(loops, kernel.buffers, store, value, len(arguments), kernel.lanes)
    return generic, tuple(arguments)


def _stays(loop: Loop, kernel: LoopKernel) -> bool:
    return loop.extent.is_constant and (
        loop.extent.value == 1 or (kernel.lanes and loop is kernel.loops[-1])
    )


_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": dim_max,
    "min": dim_min,
}


def _split_variables(dim: Dim, abstract: Callable[[Dim], Dim]) -> Dim:
    """Rewrite ``Σ size · variables`` with each size part passed through ``abstract``."""
    groups: dict[tuple[Dim, ...], dict[Monomial, int]] = {}
    for mono, coef in dim.terms:
        moving = tuple(atom for atom in mono if _mentions_variable(atom))
        fixed = tuple(atom for atom in mono if not _mentions_variable(atom))
        key = tuple(_atom_dim(atom, abstract) for atom in moving)
        group = groups.setdefault(key, {})
        group[fixed] = group.get(fixed, 0) + coef
    total = as_dim(0)
    for key, fixed_terms in groups.items():
        size = Dim.make(fixed_terms)
        constant_only = not key and size.is_constant and abs(size.value) <= BAKED_EXTENT
        term = size if constant_only else abstract(size)
        for factor in key:
            term = term * factor
        total = total + term
    return total


def _mentions_variable(atom: Atom) -> bool:
    if atom.op == "symbol":
        return is_variable(atom.name)
    return any(is_variable(name) for arg in atom.args for name in arg.symbols())


def _atom_dim(atom: Atom, abstract: Callable[[Dim], Dim]) -> Dim:
    if atom.op == "symbol":
        return Dim.make({(atom,): 1})
    a, b = atom.args
    left = _split_variables(a, abstract)
    right = b if b.is_constant else _split_variables(b, abstract)
    return _FUNCTIONS[atom.op](left, right)
