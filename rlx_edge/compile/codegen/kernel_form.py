"""The form of a loop kernel that emitters take: canonical names, primitive operators.

Loop variables become ``_l0``, ``_l1``, … and the variables of a reduction ``_h<height>_<k>`` where
height counts the reductions nested inside it, so that no binding shadows another and equal
reductions are one node. Loops of extent 1 disappear; short reductions become operator trees.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product as positions
from math import prod

from rlx_edge.ir.dims import Dim, as_dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    Expr,
    binary,
    const,
    reduce,
    reduce_parts,
    rewrite,
    substitute,
    walk,
)
from rlx_edge.ir.kernel import BAKED_EXTENT, Kernel, Loop, LoopKernel, TemplateKernel
from rlx_edge.ir.scalar_arithmetic import limits
from rlx_edge.ir.scalar_functions import expand
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.types import DType

PARTIALS = 4
CHUNK = 4096
"""Reduction elements that share one set of partials."""
MAX_UNROLLED_NODES = 320

COMBINE = {"chain": "add", "sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""The operator of a reduction kind."""


def canonical(kernel: LoopKernel, expanded: bool = True) -> LoopKernel:
    """The kernel in the emitter's form; ``loops`` keeps its order, without extents of 1.

    ``expanded``: derived operators are replaced by primitive ones, for emitters that have no
    functions to call.
    """
    kept: list[Loop] = []
    renames: dict[str, Dim] = {}
    for loop in kernel.loops:
        if loop.extent.is_constant and loop.extent.value == 1:
            renames[loop.var] = as_dim(0)
        else:
            renames[loop.var] = symbol(f"_l{len(kept)}")
            kept.append(Loop(f"_l{len(kept)}", loop.extent))
    if kernel.lanes and (not kept or kept[-1].extent is not as_dim(PARTIALS)):
        raise RlxError(
            "kernel.lanes",
            "a lanes kernel needs an innermost loop of extent 4",
            found=str(kernel.loops[-1].extent) if kernel.loops else "no loop",
        )
    value = name_reductions(primitive(kernel.value) if expanded else kernel.value)
    value = rewrite(substitute(value, renames), _unroll)
    offset = kernel.offset.substitute(renames)
    return replace(kernel, loops=tuple(kept), offset=offset, value=value)


def primitive(value: Expr) -> Expr:
    """The value in primitive operators only."""
    derived = any(
        node.op in SCALAR_OPS and not SCALAR_OPS[node.op].primitive for node in walk(value)
    )
    return expand(value) if derived else value


def kernel_name(kernel: Kernel) -> str:
    """A readable name: the template, or loop count and the operators of the value."""
    if isinstance(kernel, TemplateKernel):
        return kernel.template
    names: list[str] = []
    for node in walk(kernel.value):
        if node.op == "reduce":
            names.append(reduce_parts(node)[0])
        elif node.op in SCALAR_OPS or node.op in ("select", "cast"):
            names.append(node.op)
    shown = list(dict.fromkeys(names))[:4] or (["copy"] if kernel_reads(kernel) else ["fill"])
    return "_".join([f"loop{len(kernel.loops)}", *shown])


def kernel_reads(kernel: LoopKernel) -> bool:
    """Whether the kernel loads anything."""
    return any(node.op == "load" for node in walk(kernel.value))


# ---- reductions ------------------------------------------------------------------------------


def name_reductions(value: Expr) -> Expr:
    """Give reduction variables names by height: ``_h0_0``, ``_h0_1``, ``_h1_0``, …"""
    heights: dict[Expr, int] = {}

    def rename(node: Expr) -> Expr | None:
        height = max((heights[arg] for arg in node.args), default=0)
        if node.op != "reduce":
            heights[node] = height
            return None
        kind, names, extents, body = reduce_parts(node)
        fresh = [f"_h{height}_{position}" for position in range(len(names))]
        renamed = substitute(
            body, {old: symbol(new) for old, new in zip(names, fresh, strict=True)}
        )
        _measure(renamed, heights)
        named = reduce(kind, fresh, extents, renamed)
        heights[named] = height + 1
        return named

    return rewrite(value, rename)


def _measure(value: Expr, heights: dict[Expr, int]) -> None:
    for node in walk(value):
        height = max((heights[arg] for arg in node.args), default=0)
        heights[node] = height + 1 if node.op == "reduce" else height


def identity(kind: str, dtype: DType) -> float | int:
    """What a reduction starts from: +0.0, 1, the lowest or the highest value."""
    if kind in ("chain", "sum"):
        return 0
    if kind == "prod":
        return 1
    if dtype.is_float:
        return float("-inf") if kind == "max" else float("inf")
    return limits(dtype)[0 if kind == "max" else 1]


def is_order_free(kind: str, dtype: DType) -> bool:
    """Whether every order gives the same bits: minima, maxima and wrapping integers."""
    return kind in ("max", "min") or not dtype.is_float


def _unroll(node: Expr) -> Expr | None:
    """A short reduction of constant extents as operators in the contract's order."""
    if node.op != "reduce":
        return None
    kind, names, extents, body = reduce_parts(node)
    if not all(extent.is_constant for extent in extents):
        return None
    total = prod(extent.value for extent in extents)
    size = sum(1 for part in walk(body) if part.op not in ("const", "index"))
    if total > BAKED_EXTENT or total * size > MAX_UNROLLED_NODES:
        return None
    if total <= 0:
        return const(identity(kind, node.dtype), node.dtype)
    steps = positions(*(range(extent.value) for extent in extents))
    elements = [substitute(body, dict(zip(names, step, strict=True))) for step in steps]
    return combine_elements(kind, elements)


def combine_elements(kind: str, elements: list[Expr]) -> Expr:
    """Elements 0, 1, … of one chunk combined in the contract's order.

    A partial starts from the identity. Joining a partial without elements changes nothing: a
    partial sum that starts from +0.0 is never -0.0, and 1 · p is p.
    """
    op, dtype = COMBINE[kind], elements[0].dtype
    start = const(identity(kind, dtype), dtype)
    count = 1 if kind == "chain" else PARTIALS
    partials: list[Expr] = []
    for first in range(min(count, len(elements))):
        mine = elements[first::count]
        partial = mine[0] if is_order_free(kind, dtype) else binary(op, start, mine[0])
        for element in mine[1:]:
            partial = binary(op, partial, element)
        partials.append(partial)
    pairs: list[Expr] = []
    for first in range(min(2, len(partials))):
        pair = partials[first : first + 3 : 2]
        pairs.append(pair[0] if len(pair) == 1 else binary(op, pair[0], pair[1]))
    return pairs[0] if len(pairs) == 1 else binary(op, pairs[0], pairs[1])
