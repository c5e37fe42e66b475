"""Expressions as C++ statements: one named value a node, where its variables are known.

A scope is a block of text with the loop variables that it binds. A value is written into the
innermost open scope that binds one of its variables, so what a loop does not change stands before
it. Derived functions (``exp``, ``erf``, …) are calls; their definitions follow ``scalar_functions``
operator by operator, so every device computes the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlx_edge.compile.bounds import Ranges, is_nonnegative
from rlx_edge.compile.codegen.cuda.scalar_table import (
    BITCASTS,
    conversion,
    literal,
    operation,
    value_type,
)
from rlx_edge.compile.codegen.cuda.writer import Block, Names
from rlx_edge.compile.codegen.kernel_form import primitive
from rlx_edge.ir.dims import Atom, Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, index_dim, load, rewrite, walk
from rlx_edge.ir.scalar_functions import FUNCTIONS
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.types import BOOL, F32

Reduce = Callable[["Emission", Expr, "Scope"], str]
"""Write a reduction's loops into a scope; the name of its value."""
ReadAcc = Callable[[], str]


@dataclass(eq=False, slots=True)
class Scope:
    """One block of text, the variables bound in it, and the values written there."""

    block: Block
    variables: frozenset[str]
    parent: Scope | None
    values: dict[Expr, str] = field(default_factory=dict)

    def find(self, node: Expr) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.values.get(node)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def home(self, names: frozenset[str]) -> Scope:
        """The innermost scope, from here outwards, that binds one of ``names``."""
        scope = self
        while scope.parent is not None and scope.variables.isdisjoint(names):
            scope = scope.parent
        return scope


@dataclass(eq=False, slots=True)
class Emission:
    """What is known while one kernel is written."""

    free: dict[Expr, frozenset[str]]
    ranges: Ranges
    reduce: Reduce
    names: Names = field(default_factory=Names)
    loads: dict[Expr, str] = field(default_factory=dict)
    """Loads that are given: an epilogue's extra operands by their node."""
    acc: str = ""
    stages: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Arrays in shared memory: name → element type and size."""

    def value(self, node: Expr, scope: Scope) -> str:
        """The name (or literal) of a node's value, written out where it belongs."""
        if node.op == "const":
            return literal(node.attr, node.dtype)  # type: ignore[arg-type]
        if node.op == "acc":
            return self.acc
        given = self.loads.get(node)
        if given is not None:
            return given
        dim = index_dim(node)
        if dim is not None:
            return dim_text(dim, self.ranges)
        found = scope.find(node)
        if found is not None:
            return found
        home = scope.home(self.free[node])
        if node.op == "reduce":
            name = self.reduce(self, node, home)
        else:
            text = self.text(node, home)
            name = self.names.fresh(_stem(node))
            home.block.line(f"const {value_type(node.dtype)} {name} = {text};")
        home.values[node] = name
        return name

    def text(self, node: Expr, scope: Scope) -> str:
        """The C++ expression of a node from its operands' names."""
        args = [self.value(arg, scope) for arg in node.args]
        if node.op == "load":
            element = f"in{node.attr}[{bare(args[0])}]"
            return f"{element} != 0" if node.dtype is BOOL else element
        if node.op == "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if node.op == "cast":
            return conversion(node.args[0].dtype, node.dtype, args[0])
        if node.op == "bitcast":
            return BITCASTS[node.args[0].dtype, node.dtype](args[0])
        if is_call(node):
            return f"{node.op}_f32({', '.join(args)})"
        return operation(node.op, node.args[0].dtype, args)


_STEMS = {"and": "both", "or": "either", "xor": "differ", "not": "negated", "select": "chosen"}
"""Operators that C++ has as words, or that read better otherwise."""


def _stem(node: Expr) -> str:
    """A name to start from; never one of the functions that kernels call."""
    if node.op == "load":
        return f"x{node.attr}"
    return _STEMS.get(node.op, f"{node.op}_")


# ---- derived functions -------------------------------------------------------------------------


def is_call(node: Expr) -> bool:
    """Whether the node is a derived function of f32."""
    op = SCALAR_OPS.get(node.op)
    return op is not None and not op.primitive and node.dtype is F32


def callable_form(value: Expr) -> Expr:
    """The value with derived operators of other types than f32 in primitive ones."""

    def rule(node: Expr) -> Expr | None:
        op = SCALAR_OPS.get(node.op)
        if op is None or op.primitive or node.dtype is F32:
            return None
        return primitive(node)

    return rewrite(value, rule)


def function_names(value: Expr) -> set[str]:
    """Derived functions that the value calls."""
    return {node.op for node in walk(value) if is_call(node)}


def function_text(name: str) -> str:
    """The definition of a derived function."""
    arity = SCALAR_OPS[name].arity
    parameters = ["x", "y"][:arity]
    arguments = [load(slot, F32, ()) for slot in range(arity)]
    body = primitive(FUNCTIONS[name](*arguments))
    block = Block()
    no_reductions = Ranges({}, frozenset())
    em = Emission(
        dict.fromkeys(walk(body), frozenset()),
        no_reductions,
        _no_reduction,
        Names({"x": 1, "y": 1}),
    )
    em.loads.update(zip(arguments, parameters, strict=True))
    result = em.value(body, Scope(block, frozenset(), None))
    block.line(f"return {result};")
    whole = Block()
    signature = ", ".join(f"float {parameter}" for parameter in parameters)
    whole.line(f"static __device__ __forceinline__ float {name}_f32({signature})")
    whole.nested("", block)
    return whole.text()


def _no_reduction(em: Emission, node: Expr, scope: Scope) -> str:
    raise RlxError("codegen.op", "a scalar function has no reductions", found=repr(node))


# ---- sizes -------------------------------------------------------------------------------------


def variable(name: str) -> str:
    """The C++ name of a loop variable or parameter."""
    return name.lstrip("_")


def dim_text(dim: Dim, ranges: Ranges) -> str:
    """A size or index as an ``int`` expression, in parentheses where it has several terms."""
    if dim.is_constant:
        return str(dim.value)
    parts: list[str] = []
    for mono, coefficient in dim.terms:
        factors = [_atom_text(atom, ranges) for atom in mono]
        if abs(coefficient) != 1 or not factors:
            factors.append(str(abs(coefficient)))
        text = " * ".join(factors)
        if parts:
            parts.append(f"{'-' if coefficient < 0 else '+'} {text}")
        else:
            parts.append(f"-{text}" if coefficient < 0 else text)
    if len(parts) == 1 and len(dim.terms[0][0]) == 1 and abs(dim.terms[0][1]) == 1:
        return parts[0]
    return f"({' '.join(parts)})"


def bare(text: str) -> str:
    """``text`` without parentheses around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


def _atom_text(atom: Atom, ranges: Ranges) -> str:
    if atom.op == "symbol":
        return variable(atom.name)
    a, b = atom.args
    left, right = dim_text(a, ranges), dim_text(b, ranges)
    if atom.op in ("max", "min"):
        call = "greater_integer" if atom.op == "max" else "lesser_integer"
        return f"{call}<int>({bare(left)}, {bare(right)})"
    positive = is_nonnegative(b - 1, ranges)
    if positive and is_nonnegative(a, ranges):
        # Never negative: the plain operators, unsigned so that constants become multiplications.
        sign = "/" if atom.op == "floordiv" else "%"
        return f"(int)((unsigned){left} {sign} (unsigned){right})"
    call = "floor_quotient" if atom.op == "floordiv" else "floor_remainder"
    return f"{call}<int>({bare(left)}, {bare(right)})"
