"""Loop kernels as CUDA kernels: the walk over the output, reductions, the store.

Reductions follow the numerics contract bit for bit. A thread on its own keeps four partials that
rotate: the next element goes to the first. A workgroup computes the elements of a chunk together
into shared memory, then four threads sum one partial each; minima, maxima and integers, whose order
does not matter, go up a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.bounds import Ranges
from rlx_edge.compile.codegen.cuda.emit_expression import (
    Emission,
    Scope,
    bare,
    callable_form,
    dim_text,
    variable,
)
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
from rlx_edge.ir.kernel import Loop, LoopKernel
from rlx_edge.ir.types import BOOL, DType


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
        _emit_rows(em, form, value, root)
    else:
        _emit_flat(em, form, value, root)
    body.lines[:0] = [
        f"__shared__ {kind} {stage}[{size}];" for stage, (kind, size) in sorted(em.stages.items())
    ]
    whole = Block()
    whole.line(head)
    whole.nested("", body)
    return whole.text()


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
        _store(em, kernel, value, Scope(inside, frozenset(), root))
        root.block.nested("if (blockIdx.x == 0 && threadIdx.x == 0)", inside)
        return
    step = f"blockIdx.x * {form.threads}u + threadIdx.x"
    _walk(em, form, kernel.loops, value, root, step, f"gridDim.x * {form.threads}u")


def _emit_rows(em: Emission, form: Spread, value: Expr, root: Scope) -> None:
    kernel = form.kernel
    outer, inner = kernel.loops[: form.outer], kernel.loops[form.outer :]
    body = Block()
    row = Scope(body, frozenset(loop.var for loop in outer), root)
    body.lines += _decode(outer, "row", em.ranges)
    for node in form.shared:
        shared = callable_form(node)
        row.values[shared] = reduce_in_group(em, shared, row, form.threads)
    if inner:
        _walk(em, form, inner, value, row, "threadIdx.x", f"{form.threads}u")
    else:
        inside = Block()
        _store(em, kernel, value, Scope(inside, frozenset(), row))
        body.nested("if (threadIdx.x == 0)", inside)
    count = _count(outer, em.ranges)
    root.block.line(f"const unsigned rows = {count};")
    root.block.nested("for (unsigned row = blockIdx.x; row < rows; row += gridDim.x)", body)


def _walk(
    em: Emission,
    form: Spread,
    loops: Sequence[Loop],
    value: Expr,
    scope: Scope,
    start: str,
    step: str,
) -> None:
    inside = Block()
    inside.lines += _decode(loops, "item", em.ranges)
    inner = Scope(inside, frozenset(loop.var for loop in loops), scope)
    _store(em, form.kernel, value, inner)
    scope.block.line(f"const unsigned items = {_count(loops, em.ranges)};")
    scope.block.nested(f"for (unsigned item = {start}; item < items; item += {step})", inside)


def _count(loops: Sequence[Loop], ranges: Ranges) -> str:
    """How many steps there are; none if any extent is not positive."""
    factors = [
        dim_text(loop.extent, ranges)
        if loop.extent.is_constant
        else f"greater_integer<int>({bare(dim_text(loop.extent, ranges))}, 0)"
        for loop in loops
    ]
    return " * ".join(factors) or "1"


def _decode(loops: Sequence[Loop], counter: str, ranges: Ranges) -> list[str]:
    """Loop variables from a row-major counter."""
    lines: list[str] = []
    rest = counter
    for position in range(len(loops) - 1, -1, -1):
        name = variable(loops[position].var)
        if position == 0:
            lines.append(f"const int {name} = {rest};")
            continue
        extent = f"(unsigned){dim_text(loops[position].extent, ranges)}"
        lines.append(f"const int {name} = {rest} % {extent};")
        outer = f"{counter}{position}"
        lines.append(f"const unsigned {outer} = {rest} / {extent};")
        rest = outer
    return lines


def _store(em: Emission, kernel: LoopKernel, value: Expr, scope: Scope) -> None:
    offset = bare(dim_text(kernel.offset, em.ranges))
    scope.block.line(f"out[{offset}] = {em.value(value, scope)};")


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


def reduce_in_group(em: Emission, node: Expr, scope: Scope, threads: int) -> str:
    """A reduction by all threads of a workgroup, every one of which gets the value."""
    kind, names, extents, body = reduce_parts(node)
    loops = [Loop(name, extent) for name, extent in zip(names, extents, strict=True)]
    dtype = node.dtype
    type_name = value_type(dtype)
    if dtype is BOOL:
        type_name = storage_type(dtype)
    name = em.names.fresh(kind if kind not in ("max", "min") else f"{kind}imum")
    count = f"{name}_items"
    inside = Block()
    inner = Scope(inside, frozenset(names), scope)
    inside.lines += _decode(loops, "item", em.ranges)
    element = em.value(body, inner)
    scope.block.line(f"const unsigned {count} = {_count(loops, em.ranges)};")
    part = _Part(em, scope.block, inside, kind, dtype, type_name, name, count, element, threads)
    (_tree if is_order_free(kind, dtype) else _chunks)(part)
    return name


@dataclass(frozen=True, slots=True)
class _Part:
    """What the two ways of reducing in a workgroup are written from: ``inside`` computes the
    ``element`` of number ``item``, ``count`` names how many there are."""

    em: Emission
    block: Block
    inside: Block
    kind: str
    dtype: DType
    type_name: str
    name: str
    count: str
    element: str
    threads: int

    @property
    def start(self) -> str:
        return literal(identity(self.kind, self.dtype), self.dtype)

    def join(self, a: str, b: str) -> str:
        return operation(COMBINE[self.kind], self.dtype, [a, b])

    def stage(self, suffix: str, size: int) -> str:
        """Shared memory that reductions of one type use one after another."""
        name = f"{suffix}_{self.dtype.name}"
        known = self.em.stages.get(name, (self.type_name, 0))
        self.em.stages[name] = (self.type_name, max(size, known[1]))
        return name


def _tree(part: _Part) -> None:
    """Any order gives the same bits: each thread its share, then halves."""
    stage = part.stage("stage", part.threads)
    block, own = part.block, f"{part.name}_own"
    block.line(f"{part.type_name} {own} = {part.start};")
    part.inside.line(f"{own} = {part.join(own, part.element)};")
    step = f"item < {part.count}; item += {part.threads}u"
    block.nested(f"for (unsigned item = threadIdx.x; {step})", part.inside)
    block.line(f"{stage}[threadIdx.x] = {own};")
    block.line("__syncthreads();")
    here, there = f"{stage}[threadIdx.x]", f"{stage}[threadIdx.x + half]"
    join, half = Block(), Block()
    join.line(f"{here} = {part.join(here, there)};")
    half.nested("if (threadIdx.x < half)", join)
    half.line("__syncthreads();")
    block.nested(f"for (unsigned half = {part.threads // 2}u; half > 0; half /= 2)", half)
    block.line(f"const {part.type_name} {part.name} = {stage}[0];")
    block.line("__syncthreads();")


def _chunks(part: _Part) -> None:
    """Chunk by chunk: all threads compute elements, four add up one partial each."""
    stage, parts = part.stage("stage", CHUNK), part.stage("parts", PARTIALS)
    name, count, block = part.name, part.count, part.block
    block.line(f"{part.type_name} {name} = {part.start};")
    chunk, add = Block(), Block()
    chunk.line(f"const unsigned last = first + {CHUNK}u < {count} ? first + {CHUNK}u : {count};")
    part.inside.line(f"{stage}[item - first] = {part.element};")
    step = f"item < last; item += {part.threads}u"
    chunk.nested(f"for (unsigned item = first + threadIdx.x; {step})", part.inside)
    chunk.line("__syncthreads();")
    add.line(f"{part.type_name} part = {part.start};")
    add.line(f"for (unsigned item = threadIdx.x; item < last - first; item += {PARTIALS}u)")
    add.line(f"  part = {part.join('part', f'{stage}[item]')};")
    add.line(f"{parts}[threadIdx.x] = part;")
    chunk.nested(f"if (threadIdx.x < {PARTIALS})", add)
    chunk.line("__syncthreads();")
    joined = _joined(part.kind, part.dtype, [f"{parts}[{lane}]" for lane in range(PARTIALS)])
    chunk.line(f"{name} = first == 0 ? {joined} : {part.join(name, f'({joined})')};")
    step = f"first == 0 || first < {count}; first += {CHUNK}u"
    block.nested(f"for (unsigned first = 0; {step})", chunk)
    block.line("__syncthreads();")
