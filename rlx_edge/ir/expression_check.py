"""Whether an expression is well formed: the rules that its builders keep, for any ``Expr``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX, Expr, bitcast, index_dim, reduce_parts, walk
from rlx_edge.ir.expression_text import OUTPUT_INDEX, literal_dtype_ok
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.types import BOOL, DType, TensorType

MAX_NODES = 20_000
MAX_DEPTH = 256
"""Longest path of an expression's DAG; passes over one recurse along it."""


def check_size(expr: Expr) -> tuple[int, int]:
    """Number of nodes and depth; ``RlxError`` ``expression.limit`` beyond what text may hold."""
    depths: dict[Expr, int] = {}
    for node in walk(expr):
        depths[node] = 1 + max((depths[arg] for arg in node.args), default=0)
    for what, found, most in (
        ("nodes", len(depths), MAX_NODES),
        ("nested operators", depths[expr], MAX_DEPTH),
    ):
        if found > most:
            raise RlxError(
                "expression.limit",
                f"an expression has too many {what}",
                found=found,
                allowed=f"at most {most}",
            )
    return len(depths), depths[expr]


def epilogue_problems(
    epilogue: Expr,
    operands: Sequence[TensorType],
    root: TensorType,
    sizes: Collection[str],
    reduces: bool = False,
) -> Iterator[str]:
    """What breaks a rule of epilogues, one sentence each; nothing when it is sound.

    An epilogue continues from ``acc`` of the root's element type and loads operands by slot at
    indices that are made of output indices and sizes. It reduces only where it may (``reduces``),
    over variables of which each belongs to one reduction and over extents made of sizes.
    """
    try:
        check_size(epilogue)
    except RlxError as error:
        yield f"{error.what} ({error.found}, {error.allowed})"
        return
    if epilogue.dtype is INDEX:
        yield "the epilogue's value is an index"
    known = {f"_i{axis}" for axis in range(root.rank)} | set(sizes)
    if reduces:
        yield from _reduction_problems(epilogue, sizes)
        known |= {name for node in _reductions(epilogue) for name in reduce_parts(node)[1]}
    for node in walk(epilogue):
        yield from _node_problems(node)
        if node.op == "acc" and node.dtype is not root.dtype:
            yield f"acc is {node.dtype}, the root's element type is {root.dtype}"
        elif node.op == "load":
            yield from _load_problems(node, operands)
        elif node.op == "reduce" and not reduces:
            yield "an epilogue cannot reduce"
        dim = index_dim(node)
        if dim is not None:
            yield from _symbol_problems(dim, known)


def _reductions(expr: Expr) -> list[Expr]:
    return [node for node in walk(expr) if node.op == "reduce"]


def _reduction_problems(epilogue: Expr, sizes: Collection[str]) -> Iterator[str]:
    """Variables are bound once and used inside of what binds them; extents are sizes."""
    owners: dict[str, Expr] = {}
    for node in _reductions(epilogue):
        _, names, extents, _ = reduce_parts(node)
        for name in names:
            if OUTPUT_INDEX.fullmatch(name) or not name.startswith("_"):
                yield f"{name} is not a reduction variable"
            elif owners.setdefault(name, node) is not node:
                yield f"{name} is the variable of two reductions"
        for extent in extents:
            yield from _symbol_problems(extent, sizes)
    free: dict[Expr, frozenset[str]] = {}
    for node in walk(epilogue):
        dim = index_dim(node)
        own = frozenset(dim.symbols() if dim is not None else ())
        found = own.union(*(free[arg] for arg in node.args))
        free[node] = found - set(reduce_parts(node)[1]) if node.op == "reduce" else found
    for name in sorted(free[epilogue] & owners.keys()):
        yield f"{name} is used outside of its reduction"


def _load_problems(node: Expr, operands: Sequence[TensorType]) -> Iterator[str]:
    slot = node.attr
    if not isinstance(slot, int) or not 0 <= slot < len(operands):
        yield f"it loads operand slot {slot}, and there are {len(operands)} operands"
        return
    type = operands[slot]
    if node.dtype is not type.dtype or len(node.args) != type.rank:
        yield f"it loads {node.dtype} at {len(node.args)} indices from operand {slot}, {type}"
    if any(arg.dtype is not INDEX for arg in node.args):
        yield f"it loads operand {slot} at an index that is not of type index"


def _symbol_problems(dim: Dim, known: Collection[str]) -> Iterator[str]:
    for name in dim.symbols():
        if name not in known:
            match = OUTPUT_INDEX.fullmatch(name)
            yield f"there is no output axis d{match[1]}" if match else f"{name} is not a size"


def _node_problems(node: Expr) -> Iterator[str]:
    """Arity and types of one node."""
    types = [arg.dtype for arg in node.args]
    op = SCALAR_OPS.get(node.op)
    if op is not None:
        fits = len(types) == op.arity and all(
            type.kind in op.kinds and type is types[0] for type in types
        )
        result = BOOL if op.result == "bool" else types[0] if types else node.dtype
        if not fits or node.dtype is not result:
            yield f"{node.op} cannot take ({_names(types)}) and give {node.dtype}"
    elif node.op == "select":
        if types != [BOOL, node.dtype, node.dtype]:
            yield f"select cannot take ({_names(types)}) and give {node.dtype}"
    elif node.op == "const":
        value = node.attr
        if not _is_value(value, node.dtype):
            yield f"{value} is not a value of {node.dtype}"
    elif node.op == "cast":
        if len(types) != 1:
            yield "cast takes one operand"
    elif node.op == "bitcast":
        try:
            bitcast(node.args[0], node.dtype)
        except (RlxError, IndexError):
            yield f"there is no bitcast from ({_names(types)}) to {node.dtype}"
    elif node.op not in ("acc", "load", "index", "reduce"):
        yield f"there is no scalar operator {node.op}"


def _is_value(value: object, dtype: DType) -> bool:
    if isinstance(value, bool) or dtype is BOOL:
        return isinstance(value, bool) and dtype is BOOL
    if isinstance(value, float):
        return dtype.is_float
    return isinstance(value, int) and not dtype.is_float and literal_dtype_ok(value, dtype)


def _names(types: Sequence[DType]) -> str:
    return ", ".join(str(type) for type in types)
