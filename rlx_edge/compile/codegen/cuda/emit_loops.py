"""Loop kernels as CUDA kernels: the walk over the output, reductions, the store.

Reductions follow the numerics contract bit for bit. A thread on its own keeps four partials that
rotate: the next element goes to the first. Several threads share a reduction in ``emit_rows.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.bounds import Ranges
from rlx_edge.compile.codegen.cuda.emit_expression import (
    Emission,
    Scope,
    bare,
    callable_form,
    dim_text,
    variable,
)
from rlx_edge.compile.codegen.cuda.emit_rows import emit_rows
from rlx_edge.compile.codegen.cuda.emit_walk import store, walk
from rlx_edge.compile.codegen.cuda.scalar_table import literal, operation, storage_type, value_type
from rlx_edge.compile.codegen.cuda.writer import Block
from rlx_edge.compile.codegen.kernel_form import (
    CHUNK,
    COMBINE,
    PARTIALS,
    identity,
    is_order_free,
)
from rlx_edge.compile.workgroups import Spread, free_variables
from rlx_edge.ir.dims import ONE, Dim, product
from rlx_edge.ir.expression import Expr, reduce_parts
from rlx_edge.ir.kernel import LoopKernel
from rlx_edge.ir.types import DType

ROW_OCCUPANCY = 1024
"""Threads of a processor that kernels by rows are compiled for."""


def emit_loop_kernel(form: Spread, head: str) -> str:
    """The text of a kernel: ``head`` is its declaration up to the parameters."""
    kernel = form.kernel
    value = callable_form(kernel.value)
    parameters = frozenset(f"p{position}" for position in range(kernel.parameters))
    ranges = Ranges({loop.var: loop.extent for loop in kernel.loops}, parameters)
    em = Emission(free_variables(value), ranges.widened(value), reduce_in_thread)
    body = Block()
    body.lines += argument_lines(kernel)
    root = Scope(body, frozenset(), None)
    if form.rows:
        emit_rows(em, form, value, root)
    else:
        _emit_flat(em, form, value, root)
    body.lines[:0] = [
        f"__shared__ {kind} {stage}[{size}];" for stage, (kind, size) in sorted(em.stages.items())
    ]
    whole = Block()
    whole.line(head)
    whole.nested("", body)
    return whole.text()


def loop_bounds(form: Spread) -> str:
    """Threads of a workgroup, and for rows how many workgroups a processor should have at least:
    asked for nothing, the assembler spills to have more."""
    return f"{form.threads}, {ROW_OCCUPANCY // form.threads}" if form.rows else f"{form.threads}"


def words_struct(name: str, kernel: LoopKernel) -> str:
    """The struct of a loop kernel's words: an address a buffer, then the parameters."""
    addresses = ", ".join(slot_names(len(kernel.buffers)))
    sizes = ", ".join(f"p{position}" for position in range(kernel.parameters))
    integers = f" int {sizes};" if sizes else ""
    return f"struct {name} {{ unsigned {addresses};{integers} }};"


def slot_names(count: int) -> list[str]:
    """``out``, ``in1``, ``in2``, …"""
    return ["out", *(f"in{slot}" for slot in range(1, count))]


def argument_lines(kernel: LoopKernel) -> list[str]:
    """Pointers and parameters from the words."""
    lines: list[str] = []
    for slot, (name, dtype) in enumerate(
        zip(slot_names(len(kernel.buffers)), kernel.buffers, strict=True)
    ):
        const = "const " if slot else ""
        kind = f"{const}{storage_type(dtype)}"
        lines.append(f"{kind}* __restrict__ {name} = at<{kind}>(arena, words.{name});")
    lines += [f"const int p{at} = words.p{at};" for at in range(kernel.parameters)]
    return lines


# ---- walks -------------------------------------------------------------------------------------


def _emit_flat(em: Emission, form: Spread, value: Expr, root: Scope) -> None:
    kernel = form.kernel
    if not kernel.loops:
        inside = Block()
        store(em, kernel, value, Scope(inside, frozenset(), root))
        root.block.nested("if (blockIdx.x == 0 && threadIdx.x == 0)", inside)
        return
    step = f"blockIdx.x * {form.threads}u + threadIdx.x"
    walk(em, form, kernel.loops, value, root, step, f"gridDim.x * {form.threads}u")


# ---- reductions --------------------------------------------------------------------------------


def reduce_in_thread(em: Emission, node: Expr, scope: Scope) -> str:
    """A reduction by each thread on its own, in the contract's order."""
    kind, names, extents, body = reduce_parts(node)
    axes = list(zip(names, extents, strict=True))
    dtype = node.dtype
    type_name, start = value_type(dtype), literal(identity(kind, dtype), dtype)
    name = em.names.fresh(kind if kind not in ("max", "min") else f"{kind}imum")
    if kind == "chain" or is_order_free(kind, dtype):
        scope.block.line(f"{type_name} {name} = {start};")
        inner = _loops(em, axes, scope)
        element = em.value(body, inner[-1])
        step = operation(COMBINE[kind], dtype, [name, element])
        inner[-1].block.line(f"{name} = {step};")
        _close(em, axes, inner)
        return name
    return _partials(em, node, scope, name)


def _partials(em: Emission, node: Expr, scope: Scope, name: str) -> str:
    """Four partials that rotate, joined once a chunk."""
    kind, names, extents, body = reduce_parts(node)
    axes = list(zip(names, extents, strict=True))
    dtype = node.dtype
    type_name, start = value_type(dtype), literal(identity(kind, dtype), dtype)
    parts = [f"{name}_{part}" for part in range(PARTIALS)]
    scope.block.line(f"{type_name} {', '.join(f'{part} = {start}' for part in parts)};")
    total = product(extents)
    chunked = not (total.is_constant and total.value <= CHUNK)
    joined = _joined(kind, dtype, parts)
    if chunked:
        scope.block.line(f"{type_name} {name}_total = {start};")
        scope.block.line(f"int {name}_count = 0;")
        scope.block.line(f"bool {name}_more = false;")
    inner = _loops(em, axes, scope)
    element = em.value(body, inner[-1])
    block = inner[-1].block
    block.line(
        f"const {type_name} {name}_next = {operation(COMBINE[kind], dtype, [parts[0], element])};"
    )
    block.line(
        " ".join(f"{a} = {b};" for a, b in zip(parts, [*parts[1:], f"{name}_next"], strict=True))
    )
    total_of = operation(COMBINE[kind], dtype, [f"{name}_total", f"({joined})"])
    if chunked:
        reset = Block()
        reset.line(f"{name}_total = {name}_more ? {total_of} : {joined};")
        reset.line(f"{name}_more = true;")
        reset.line(f"{name}_count = 0;")
        reset.line(f"{' = '.join(parts)} = {start};")
        block.nested(f"if (++{name}_count == {CHUNK})", reset)
    _close(em, axes, inner)
    if not chunked:
        scope.block.line(f"const {type_name} {name} = {joined};")
        return name
    scope.block.line(
        f"const {type_name} {name} = !{name}_more ? {joined} : "
        f"{name}_count > 0 ? {total_of} : {name}_total;"
    )
    return name


def _joined(kind: str, dtype: DType, parts: Sequence[str]) -> str:
    op = COMBINE[kind]
    left = operation(op, dtype, [parts[0], parts[2]])
    right = operation(op, dtype, [parts[1], parts[3]])
    return operation(op, dtype, [f"({left})", f"({right})"])


def _loops(em: Emission, axes: Sequence[tuple[str, Dim]], scope: Scope) -> list[Scope]:
    """A scope for each axis, nested; extents of 1 included."""
    scopes: list[Scope] = []
    for name, _ in axes:
        scope = Scope(Block(), frozenset([name]), scope)
        scopes.append(scope)
    return scopes


def _close(em: Emission, axes: Sequence[tuple[str, Dim]], scopes: Sequence[Scope]) -> None:
    """Put each scope's loop into the one around it."""
    for (name, extent), scope in reversed(list(zip(axes, scopes, strict=True))):
        assert scope.parent is not None
        at = variable(name)
        if extent is ONE:
            scope.block.lines.insert(0, f"const int {at} = 0;")
            scope.parent.block.nested("", scope.block)
            continue
        count = bare(dim_text(extent, em.ranges))
        scope.parent.block.nested(f"for (int {at} = 0; {at} < {count}; ++{at})", scope.block)
