"""What scalar operators do at the edges of their types, on a device, against the interpreter.

usage: python -m tests.scalar_behaviour DEVICE TITLE

Writes the record of a device; the records under ``tests/records/scalars`` make the reference page.
A record lists what differs only: everything else has the interpreter's bits (any NaN is any NaN).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.compile import compile_placed
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.engines import provider_of
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.dims import symbol
from rlx_edge.ir.expression import (
    SCALAR_OPS,
    SHIFTS,
    Expr,
    acc,
    binary,
    cast,
    const,
    load,
    select,
    unary,
)
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import BOOL, F32, F64, I8, I32, I64, U8, U32, DType, tensor_type
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.runner import ProgramRunner

Array = npt.NDArray[Any]
RECORDS = Path(__file__).resolve().parent / "records" / "scalars"
CLASSES = ("NaN", "denormal", "overflow", "zero", "ordinary")
"""Of an element, the first that fits: an operand or the result is NaN; one is denormal; one is
infinite, or an integer result wrapped or saturated; one is zero; nothing of that."""
WRAPPED = ("div", "floordiv", "mod", "add", "sub", "mul", "neg", "abs")
DIVISIONS = ("div", "floordiv", "mod")
"""Integers are divided by 1 instead of 0: dividing by 0 has no meaning in the IR."""
CASTS = ((F32, (I32, U32, U8, I8, I64, F64)), (F64, (F32, I32)), (I32, (F32, U8)), (U32, (F32,)))
DTYPES = (F32, F64, I32, U32, BOOL)
HEAD = """# Scalar operators at the edges

Written by `make docs` from measurements under `tests/records/scalars`; do not edit.

Every scalar operator ({rows} rows, listed at the end) runs over all pairs of NaN, signed zeros,
denormals, infinities, the largest and smallest numbers and ordinary ones, and is compared with the
reference interpreter bit by bit; any NaN counts as any NaN. What is not listed below is equal.
Measured: {devices}.

Integers are divided by 1 instead of 0: dividing by 0 has no meaning in the IR. A literal is known
when the kernel is compiled. An element counts in the first class that fits: an operand or the
result is NaN; one is denormal; one is infinite, or an integer at an end of its type; one is zero.
"""


def floats(info: Any) -> list[float]:
    """Values at the edges of a float type, and ordinary ones."""
    tiny, least = float(info.tiny), float(info.smallest_subnormal)
    positive = [0.0, least, 3 * least, tiny - least, tiny, 0.5, 1.0, 1.5, 2.5, 3.0, 17.25, 88.8]
    positive += [104.0, 255.5, 2147483648.0, float(info.max), float("inf")]
    return [*positive, *(-x for x in positive), float("nan")]


def integers(dtype: DType) -> list[int]:
    if dtype is BOOL:
        return [0, 1]
    info = np.iinfo(numpy_dtype(dtype))
    middle = [2, 3, 7, 13, 255, 1 << 16, int(info.max) // 2 + 1]
    found = [0, 1, int(info.max), *middle]
    return [*found, int(info.min), *(-x for x in [1, *middle])] if info.min < 0 else found


@cache
def operands(dtype: DType) -> tuple[Array, Array]:
    """Every pair of the type's values."""
    kind = numpy_dtype(dtype)
    values = floats(np.finfo(kind)) if dtype.is_float else integers(dtype)
    pairs = np.array(list(product(values, values)), kind)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


@dataclass(frozen=True)
class Row:
    """One operator on one type; literals are known when the kernel is compiled."""

    name: str
    dtype: DType
    value: Expr
    arity: int


def rows() -> Iterator[Row]:
    """Every scalar operator on every type here that it takes, then casts and literals."""
    for name, op in SCALAR_OPS.items():
        for dtype in DTYPES:
            # Derived functions are defined for f32; integers shift by constants.
            if dtype.kind not in op.kinds or (dtype is F64 and not op.primitive):
                continue
            a, b = acc(dtype), load(1, dtype, [symbol("_i0")])
            if name in SHIFTS:
                for count in (1, 31):
                    shifted = binary(name, a, const(count, dtype))
                    yield Row(f"{name} by {count}", dtype, shifted, 1)
            elif op.arity == 1:
                yield Row(name, dtype, unary(name, a), 1)
            else:
                divides = name in DIVISIONS and not dtype.is_float
                safe = select(binary("eq", b, const(0, dtype)), const(1, dtype), b)
                yield Row(name, dtype, binary(name, a, safe if divides else b), 2)
    for source, targets in CASTS:
        for target in targets:
            yield Row(f"cast to {target}", source, cast(acc(source), target), 1)
    for literal in (0.0, -0.0):
        for name in ("add", "sub", "mul", "min", "max"):
            value = binary(name, acc(F32), const(literal, F32))
            yield Row(f"{name} of literal {literal}", F32, value, 1)


def module_of(found: list[Row]) -> Module:
    """One output a row: a copy with the operator as its epilogue, which no pass looks into."""
    pairs = {dtype: (Value(f"a_{dtype}", _type(dtype)), Value(f"b_{dtype}", _type(dtype)))
             for dtype in DTYPES}  # fmt: skip
    params = [value for pair in pairs.values() for value in pair]
    ops, results = [], []
    for number, row in enumerate(found):
        result = Value(f"y{number}", _type(row.dtype, row.value.dtype))
        read = pairs[row.dtype][: row.arity]
        op = Op("rlxc::fused_copy_copy", list(read), {"epilogue": row.value}, [result])
        result.producer = op
        ops.append(op)
        results.append(result)
    return Module("scalars", Function("scalars", params, ops, results))


def _type(shape_of: DType, dtype: DType | None = None) -> Any:
    return tensor_type(dtype or shape_of, len(operands(shape_of)[0]))


def feeds() -> dict[str, Array]:
    return {
        f"{side}_{dtype}": array
        for dtype in DTYPES
        for side, array in zip("ab", operands(dtype), strict=True)
    }


@cache
def reference() -> tuple[Array, ...]:
    """The interpreter's outputs."""
    given = {
        name: Tensor(_dtype(name), array.shape, array.tobytes()) for name, array in feeds().items()
    }
    found = interpret(module_of(list(rows())), given)
    return tuple(
        np.frombuffer(tensor.tobytes(), numpy_dtype(tensor.dtype)) for tensor in found.values()
    )


def _dtype(name: str) -> DType:
    return next(dtype for dtype in DTYPES if name.endswith(f"_{dtype}"))


def measured(device: str, driver: str = "") -> list[Array]:
    """The device's outputs; ``driver`` is a name of the table of quirks to take for its driver."""
    place = parse_device(device)
    provider = provider_of(place)
    target = provider.make_target(place, driver or "cranelift")
    placed = run_passes(module_of(list(rows())), f"place{{device={device}}},layout,borders")
    program = compile_placed(placed, target)
    context = DeviceContext(device)
    runner = ProgramRunner(program, {}, provider.make_unit(place, False), context)
    try:
        bound = FeedChecker(program.inputs, program.bindings).bind(feeds())
        return runner.run(bound.arrays, bound.symbols)
    finally:
        runner.close()
        context.close()


def classes(row: Row, expected: Array) -> Array:
    """The class of every element, by its position in ``CLASSES``."""
    read = operands(row.dtype)[: row.arity]
    values = [item for item in (*read, expected) if item.dtype.kind == "f"]
    size = len(expected)
    none = np.zeros(size, bool)

    def some(test: Any) -> Array:
        return np.asarray(sum((test(item) for item in values), none.copy()), bool)

    with np.errstate(all="ignore"):
        over = some(np.isinf)
        if expected.dtype.kind in "iu":
            over = over | _wrapped(row, read, expected)
        zero = sum((item == 0 for item in (*read, expected)), none.copy()).astype(bool)
        found = [
            some(np.isnan),
            some(lambda item: (item != 0) & (np.abs(item) < np.finfo(item.dtype).tiny)),
            over,
            zero,
        ]
    return np.argmax(np.stack([*found, np.ones(size, bool)]), axis=0)


def _wrapped(row: Row, read: tuple[Array, ...], expected: Array) -> Array:
    """Integer results at an end of the type, or operands there."""
    info = np.iinfo(expected.dtype)
    ends = (expected == info.min) | (expected == info.max)
    for item in read:
        if item.dtype.kind in "iu" and row.name in WRAPPED:
            ends = ends | (item == np.iinfo(item.dtype).min) | (item == np.iinfo(item.dtype).max)
    return np.asarray(ends)


def same(actual: Array, expected: Array) -> Array:
    """Element by element: equal bits, any NaN being any NaN."""
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    equal = actual.view(bits) == expected.view(bits)
    if expected.dtype.kind == "f":
        equal = equal | (np.isnan(actual) & np.isnan(expected))
    return np.asarray(equal)


def differences(device: str, driver: str = "") -> dict[str, dict[str, str]]:
    """Row → class → how many of how many differ, with an example; rows without any are absent."""
    found: dict[str, dict[str, str]] = {}
    for row, actual, expected in zip(rows(), measured(device, driver), reference(), strict=True):
        equal, kind = same(actual, expected), classes(row, expected)
        if row.arity == 1:  # the first of every pair once
            once = np.zeros(len(equal), bool)
            once[:: round(len(equal) ** 0.5)] = True
            kind = np.where(once, kind, -1)
        for number, title in enumerate(CLASSES):
            astray = np.flatnonzero(~equal & (kind == number))
            if not astray.size:
                continue
            first = int(astray[0])
            given = ", ".join(_text(item[first]) for item in operands(row.dtype)[: row.arity])
            text = (
                f"{astray.size} of {int((kind == number).sum())}, as {row.name}({given}) = "
                f"{_text(actual[first])}, not {_text(expected[first])}"
            )
            found.setdefault(f"{row.name} {row.dtype}", {})[title] = text
    return found


def _text(value: Any) -> str:
    return repr(value.item()) if value.dtype.kind != "f" else f"{value!s}"


def record(device: str, title: str = "") -> dict[str, Any]:
    """What the page says of a device."""
    return {"title": title or device, "differences": differences(device)}


def record_name(device: str) -> str:
    """The record that belongs to a device of this machine: an engine, or a driver's device."""
    kind = parse_device(device).kind
    if kind in ("cuda", "vulkan"):
        (row, *_) = import_module(f"rlx_edge.gpu_workers.{kind}.provider").describe()["devices"]
        name = str(row["name"]).split("(")[0].strip()
        return f"{kind}_{name}".replace(" ", "_").lower()
    return "wasmtime"


def page_text() -> str:
    """The reference page, from the stored records."""
    records = load_records()
    names = [f"{row.name} {row.dtype}" for row in rows()]
    lines = [HEAD.format(rows=len(names), devices=", ".join(r["title"] for r in records.values()))]
    for content in records.values():
        lines += [f"## {content['title']}", ""]
        if not content["differences"]:
            lines += ["No difference.", ""]
            continue
        lines += [f"| operator | {' | '.join(CLASSES)} |", "| --- |" + " --- |" * len(CLASSES)]
        for name, cells in content["differences"].items():
            shown = [cells.get(title, "=") for title in CLASSES]
            lines.append(f"| {name} | {' | '.join(shown)} |")
        lines.append("")
    lines += ["## Operators", "", ", ".join(names) + ".", ""]
    return "\n".join(lines)


def load_records() -> dict[str, Mapping[str, Any]]:
    """The stored records by file name, in order."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(RECORDS.glob("*.json"))
    }


if __name__ == "__main__":
    asked, *words = sys.argv[1:]
    text = json.dumps(record(asked, *words), indent=1, ensure_ascii=False)
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{record_name(asked)}.json").write_text(text + "\n", encoding="utf-8")
    print(record_name(asked))
