"""Scalar expressions as text: ``select(acc + %b[d1] < 0, 0, acc + %b[d1])``.

``d0``, ``d1``, … are the output indices (the dim symbols ``_i0``, ``_i1``, …), other names are
sizes or loop variables. A size whose name would read as something else is written ``$name``.
Operands are named; ``%x#2[d0]`` is operand slot 2 where the same value is an earlier operand too.
A number takes the element type of the other operand; standing alone it says its own: ``f32(0)``.
A large node that is used more than once is named first: ``t0 = acc + …; select(t0 < 0, 0, t0)``.

From loosest to tightest: comparisons, ``+ -``, ``* / // %``, prefix ``-``, everything else.
``expression_parser.py`` reads the same back: the parse of a print is the same interned object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import INDEX, Expr, index_dim, reduce_parts, round_f32, walk
from rlx_edge.ir.lexer import sigil_name
from rlx_edge.ir.types import BOOL, F64, DType

SHARE_SIZE = 9
"""A node of at least this many printed nodes that is used more than once gets a name."""
SHARE_DEPTH = 40
"""A node nested this deep gets a name as well: brackets nest less than the parser allows."""

COMPARISON, SUM, PRODUCT, PREFIX, PRIMARY = range(1, 6)

INFIX: dict[str, tuple[str, int]] = {
    "eq": ("==", COMPARISON),
    "ne": ("!=", COMPARISON),
    "lt": ("<", COMPARISON),
    "le": ("<=", COMPARISON),
    "gt": (">", COMPARISON),
    "ge": (">=", COMPARISON),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "mod": ("%", PRODUCT),
}
"""Operator → sign and binding strength."""

OUTPUT_INDEX = re.compile(r"_i(0|[1-9][0-9]*)")
INDEX_NAME = re.compile(r"d(0|[1-9][0-9]*)")
SHARED_NAME = re.compile(r"t(0|[1-9][0-9]*)")
LITERAL_NAMES = ("acc", "inf", "nan", "true", "false")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def number_text(value: float | int | bool, dtype: DType | None = None) -> str:
    """The shortest text that reads back as ``value`` in ``dtype`` (``None``: f64).

    Elements of float types other than f64 are f32 numbers, as ``expression.const`` keeps them, so
    one tenth is ``0.1`` and not the digits of its f32 neighbour in f64.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if dtype is not None and dtype.is_float:
        return repr(float(value)) if dtype is F64 else _shortest_f32(value)
    return str(value) if isinstance(value, int) else repr(value)


def _shortest_f32(value: float) -> str:
    rounded = round_f32(value)
    for digits in range(1, 10):
        text = repr(float(f"{rounded:.{digits}g}"))
        if round_f32(float(text)) == rounded:
            return text
    return repr(rounded)


def expression_text(expr: Expr, operands: Sequence[str] = ()) -> str:
    """One line; ``operands`` are the names by slot (a slot without one prints as ``%#7``)."""
    return _Writer(expr, operands).text()


class _Writer:
    """Texts of all nodes bottom-up, so that depth costs no recursion."""

    def __init__(self, root: Expr, operands: Sequence[str]) -> None:
        self.root = root
        self.slots = [_slot_text(operands, slot) for slot in range(len(operands))]
        self.done: dict[Expr, tuple[str, int]] = {}
        """Node → its text as it stands where it is used, and how tightly that binds."""

    def text(self) -> str:
        order = list(walk(self.root))
        shared = _shared(order)
        prefix: list[str] = []
        for node in order:
            text, level = self.render(node)
            if node in shared and node is not self.root:
                name = f"t{len(prefix)}"
                prefix.append(f"{name} = {text}; ")
                text, level = name, PRIMARY
            self.done[node] = text, level
        text = self.done[self.root][0]
        if _is_number(self.root):
            text = self.typed(self.root)
        return "".join(prefix) + text

    def render(self, node: Expr) -> tuple[str, int]:
        if node.op in INFIX and len(node.args) == 2:
            return self.infix(node)
        if node.op == "neg":
            return f"-{self.operand(node.args[0], PRIMARY)}", PREFIX
        write = _WRITERS.get(node.op)
        if write is not None:
            return write(self, node)
        return f"{node.op}({', '.join(self.arguments(node.args))})", PRIMARY

    def infix(self, node: Expr) -> tuple[str, int]:
        sign, level = INFIX[node.op]
        left, right = self.pair(node.args, (level + 1 if level == COMPARISON else level, level + 1))
        return f"{left} {sign} {right}", level

    def pair(self, args: tuple[Expr, ...], levels: tuple[int, int] = (0, 0)) -> tuple[str, str]:
        """Two operands of one type: a number is bare unless both are numbers."""
        left, right = args
        if _is_number(left) and _is_number(right):
            return self.typed(left), self.done[right][0]
        return self.at(left, levels[0]), self.at(right, levels[1])

    def arguments(self, args: tuple[Expr, ...]) -> tuple[str, ...]:
        if len(args) == 2:
            return self.pair(args)
        return tuple(self.operand(arg, 0) for arg in args)

    def at(self, node: Expr, level: int) -> str:
        text, found = self.done[node]
        return f"({text})" if found < level else text

    def operand(self, node: Expr, level: int) -> str:
        """The node where nothing else says its type."""
        return self.typed(node) if _is_number(node) else self.at(node, level)

    def typed(self, node: Expr) -> str:
        return f"{node.dtype}({self.done[node][0]})"

    # ---- one function a kind of node ---------------------------------------------------------

    def const(self, node: Expr) -> tuple[str, int]:
        value = node.attr
        if not isinstance(value, (int, float)):
            return repr(value), PRIMARY
        text = number_text(value, node.dtype)
        return (text[:-2] if text.endswith(".0") and text != "-0.0" else text), PRIMARY

    def index(self, node: Expr) -> tuple[str, int]:
        dim = index_dim(node)
        return ("?", PRIMARY) if dim is None else (_dim_text(dim), _dim_level(dim))

    def load(self, node: Expr) -> tuple[str, int]:
        slot = node.attr
        known = isinstance(slot, int) and 0 <= slot < len(self.slots)
        name = self.slots[slot] if known and isinstance(slot, int) else f"%#{slot}"
        return f"{name}[{', '.join(self.at(arg, 0) for arg in node.args)}]", PRIMARY

    def select(self, node: Expr) -> tuple[str, int]:
        condition, *sides = node.args
        a, b = self.pair(tuple(sides))
        return f"select({self.at(condition, 0)}, {a}, {b})", PRIMARY

    def cast(self, node: Expr) -> tuple[str, int]:
        return f"{node.dtype}({self.operand(node.args[0], 0)})", PRIMARY

    def bitcast(self, node: Expr) -> tuple[str, int]:
        return f"bitcast_{node.dtype}({self.operand(node.args[0], 0)})", PRIMARY

    def reduce(self, node: Expr) -> tuple[str, int]:
        kind, variables, _, body = reduce_parts(node)
        loops = ", ".join(
            f"{name} < {self.at(extent, SUM)}"
            for name, extent in zip(variables, node.args[1:], strict=False)
        )
        return f"reduce_{kind}[{loops}]({self.operand(body, 0)})", PRIMARY


_WRITERS: Mapping[str, Callable[[_Writer, Expr], tuple[str, int]]] = {
    "acc": lambda writer, node: ("acc", PRIMARY),
    "const": _Writer.const,
    "index": _Writer.index,
    "load": _Writer.load,
    "select": _Writer.select,
    "cast": _Writer.cast,
    "bitcast": _Writer.bitcast,
    "reduce": _Writer.reduce,
}


def _shared(order: Sequence[Expr]) -> set[Expr]:
    """Nodes that get a name: large and used more than once, or deep. A named one is a leaf."""
    uses: dict[Expr, int] = {}
    for node in order:
        for arg in node.args:
            uses[arg] = uses.get(arg, 0) + 1
    sizes: dict[Expr, int] = {}
    depths: dict[Expr, int] = {}
    named: set[Expr] = set()
    for node in order:
        size = 1 + sum(sizes[arg] for arg in node.args)
        depth = 1 + max((depths[arg] for arg in node.args), default=0)
        if (size >= SHARE_SIZE and uses.get(node, 0) > 1) or depth >= SHARE_DEPTH:
            named.add(node)
            size = depth = 1
        sizes[node], depths[node] = size, depth
    return named


def _is_number(node: Expr) -> bool:
    """Whether the text of ``node`` alone does not say its type."""
    if node.op == "const":
        return node.dtype is not BOOL
    dim = index_dim(node)
    return dim is not None and dim.is_constant


def _slot_text(operands: Sequence[str], slot: int) -> str:
    name = sigil_name("%", operands[slot])
    return name if operands.index(operands[slot]) == slot else f"{name}#{slot}"


def _dim_text(dim: Dim) -> str:
    return _SYMBOL.sub(lambda match: symbol_text(match.group()), str(dim))


def symbol_text(name: str) -> str:
    """How an index symbol is written: ``_i0`` as ``d0``, a misleading size name with ``$``."""
    match = OUTPUT_INDEX.fullmatch(name)
    if match is not None:
        return f"d{match[1]}"
    if name in LITERAL_NAMES or INDEX_NAME.fullmatch(name) or SHARED_NAME.fullmatch(name):
        return f"${name}"
    return name


def _dim_level(dim: Dim) -> int:
    if dim.is_constant:
        return PRIMARY
    if len(dim.terms) > 1:
        return SUM
    monomial, coefficient = dim.terms[0]
    if len(monomial) == 1 and coefficient == 1 and monomial[0].op not in ("floordiv", "mod"):
        return PRIMARY
    return PRODUCT


def literal_dtype_ok(value: int | float, dtype: DType) -> bool:
    """Whether a number as written may stand for an element of ``dtype``."""
    if dtype is BOOL:
        return False
    if dtype.is_float:
        return True
    if isinstance(value, float):
        return False
    bits = 63 if dtype is INDEX else 8 * dtype.bytes
    low = -(1 << (bits - 1)) if dtype.kind == "int" else 0
    high = 1 << (bits - 1 if dtype.kind == "int" else bits)
    return low <= value < high
