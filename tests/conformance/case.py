"""A conformance case: one node, the inputs to run it with, and how exact its result must be."""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]

DTYPES: dict[str, tuple[int, type[np.generic]]] = {
    "f32": (TensorProto.FLOAT, np.float32),
    "f64": (TensorProto.DOUBLE, np.float64),
    "i64": (TensorProto.INT64, np.int64),
    "i32": (TensorProto.INT32, np.int32),
    "i8": (TensorProto.INT8, np.int8),
    "u8": (TensorProto.UINT8, np.uint8),
    "bool": (TensorProto.BOOL, np.bool_),
}
"""The element types of the table: name → ONNX number and numpy type."""

EXACT, FUNCTION, RANGE, SUM = "exact", "function", "range", "sum"
"""Accuracies: the very value; a few units in the last place of each element; as many of the largest
element (where terms cancel); 1e-5 of the largest element (long sums in an order of choice)."""

OPSET = 22

_TENSOR = re.compile(r"(-)|(\w+)\[([^\]]*)\]")


@dataclass(frozen=True)
class Operand:
    """An input in text form: ``f32[n, 3]``; ``-`` is an optional input that is left out."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def sizes(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.shape)


@dataclass(frozen=True)
class Case:
    """``operands`` as text: ``"f32[n, 3] f32[3]"``. ``runs`` give the open sizes, all with one
    session. ``constants`` are inputs whose content the model has, ``given`` inputs whose content
    is fixed but fed at run time, both by position. ``draw`` names a kind of content by position,
    or for all inputs."""

    operator: str
    name: str
    operands: tuple[Operand | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[Sizes, ...] = ({},)
    constants: Mapping[int, Array] = field(default_factory=dict)
    given: Mapping[int, Array] = field(default_factory=dict)
    draw: str | Mapping[int, str] = "normal"
    outputs: int = 1
    accuracy: str = EXACT
    opset: int = OPSET
    oracle: str = "onnxruntime"
    """Or ``numpy``, where onnxruntime leaves ONNX's semantics (a maximum of NaN)."""

    @property
    def id(self) -> str:
        return f"{self.operator}-{self.name}"

    def model(self) -> bytes:
        """The serialized model: the node with the operands as inputs and constants."""
        names = ["" if item is None else item.name for item in self.operands]
        outputs = [f"y{position}" for position in range(self.outputs)]
        node = helper.make_node(self.operator, names, outputs, name="node", **self.attrs)
        inputs = [
            helper.make_tensor_value_info(item.name, DTYPES[item.dtype][0], item.shape)
            for position, item in enumerate(self.operands)
            if item is not None and position not in self.constants
        ]
        constants = [
            numpy_helper.from_array(np.asarray(value), names[position])
            for position, value in self.constants.items()
        ]
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "case", inputs, infos, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, ir_version=10, opset_imports=opsets)
        return bytes(model.SerializeToString())

    def feeds(self) -> Iterator[dict[str, Array]]:
        """The inputs of each run, the same in every process."""
        for sizes in self.runs:
            random = np.random.default_rng(zlib.crc32(f"{self.id}{sorted(sizes.items())}".encode()))
            yield {
                item.name: self._content(position, item, sizes, random)
                for position, item in enumerate(self.operands)
                if item is not None and position not in self.constants
            }

    def _content(
        self, position: int, item: Operand, sizes: Sizes, random: np.random.Generator
    ) -> Array:
        if position in self.given:
            return np.asarray(self.given[position])
        draw = self.draw if isinstance(self.draw, str) else self.draw.get(position, "normal")
        return content(draw, item.dtype, item.sizes(sizes), random)


SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, 3e38)


def content(draw: str, dtype: str, shape: Sequence[int], random: np.random.Generator) -> Array:
    """Elements of one kind: ``normal``, ``positive``, ``unit``, ``wide``, ``special`` (infinities,
    NaN, signed zeros, a denormal), ``nonzero``, ``divisor`` (non-zero, no -1), ``below:N`` for
    positions, ``within:N`` also from the end."""
    kind, _, bound = draw.partition(":")
    target = DTYPES[dtype][1]
    shape = tuple(shape)
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    if kind in ("below", "within"):
        low = -int(bound) if kind == "within" else 0
        return np.asarray(random.integers(low, int(bound), shape)).astype(target)
    if dtype in ("f32", "f64"):
        return np.asarray(_floats(kind, shape, random), target)
    low = 1 if dtype == "u8" or kind in ("positive", "divisor", "small") else -9
    found = np.asarray(random.integers(low, 4 if kind == "small" else 10, shape))
    if kind == "wide":
        info = np.iinfo(target)
        found = np.asarray(random.integers(info.min, info.max, shape, target, endpoint=True))
    if kind == "nonzero":
        found = np.where(found == 0, 3, found)
    return np.asarray(found).astype(target)


def _floats(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if kind == "special":
        count = int(np.prod(shape))
        return np.resize(np.array(SPECIAL), count).reshape(shape)
    values = np.asarray(random.standard_normal(shape))
    if kind in ("positive", "divisor", "small"):
        return np.abs(values) + 0.1
    if kind == "unit":
        return np.asarray(random.uniform(-1, 1, shape))
    return values * (20 if kind == "wide" else 2)


def operands(text: str) -> tuple[Operand | None, ...]:
    """``"f32[n, 3] - i64[]"`` as operands named a, b, c."""
    found: list[Operand | None] = []
    for absent, dtype, dims in _TENSOR.findall(text):
        shape = tuple(
            int(part) if part.strip().isdigit() else part.strip()
            for part in dims.split(",")
            if part.strip()
        )
        name = string.ascii_lowercase[len(found)]
        found.append(None if absent else Operand(name, dtype, shape))
    return tuple(found)


def case(
    operator: str,
    name: str,
    inputs: str = "",
    *,
    sizes: Sequence[int | Sizes] | None = None,
    **options: Any,
) -> Case:
    """A case from text. ``sizes`` are the runs: numbers for the symbol ``n``, or mappings. What is
    no field of ``Case`` is an attribute of the node."""
    fields = ("constants", "given", "draw", "outputs", "accuracy", "opset", "oracle")
    chosen = {key: options.pop(key) for key in fields if key in options}
    found = operands(inputs)
    symbolic = any(isinstance(dim, str) for item in found if item for dim in item.shape)
    if sizes is None:
        sizes = (3, 1, 8) if symbolic else ({},)
    runs = tuple({"n": size} if isinstance(size, int) else size for size in sizes)
    return Case(operator, name, found, options, runs, **chosen)


def typed(
    operator: str,
    dtypes: Sequence[str],
    forms: Mapping[str, str | tuple[str, Mapping[str, Any]]],
    *,
    most: int = 2,
    **options: Any,
) -> tuple[Case, ...]:
    """Cases of one operator: every form for the first element type, the first ``most`` for the
    others. ``T`` in a form stands for the type."""
    cases = []
    for order, dtype in enumerate(dtypes):
        for position, (name, form) in enumerate(forms.items()):
            if order and position >= most:
                continue
            text, more = (form, {}) if isinstance(form, str) else form
            inputs = text.replace("T[", f"{dtype}[")
            cases.append(case(operator, f"{dtype}-{name}", inputs, **{**options, **more}))
    return tuple(cases)
