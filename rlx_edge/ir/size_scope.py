"""Which dims may stand in a function: made of known sizes, and short enough to be read back."""

from __future__ import annotations

import re
from collections.abc import Collection

from rlx_edge.ir.dims import MAX_DIM_TEXT, Dim
from rlx_edge.ir.token_reader import MAX_DIM_OPERATORS, MAX_DIM_TOKENS, MAX_RANK
from rlx_edge.ir.types import TensorType

_WORD = re.compile(r"[A-Za-z_0-9]+|//|[^\sA-Za-z_0-9]")


class SizeScope:
    """``names`` are the sizes and value symbols of one function."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self._sound: set[Dim] = set()

    def dim_problem(self, dim: Dim) -> str | None:
        """Why ``dim`` cannot be a size here; ``None`` when it can."""
        if dim in self._sound:
            return None
        for name in dim.symbols():
            if name.startswith("_"):
                return f"size {name} starts with _, which loop variables do"
            if name not in self.names:
                return f"size {name} is neither an axis of a parameter nor bound to a value"
        text = str(dim)
        words = _WORD.findall(text)
        operators = sum(word in ("//", "%", "max", "min") for word in words)
        if len(text) > MAX_DIM_TEXT or len(words) > MAX_DIM_TOKENS or operators > MAX_DIM_OPERATORS:
            return f"a dim is too long: {len(words)} words, {operators} of them // % max min"
        self._sound.add(dim)
        return None

    def type_problem(self, type: TensorType) -> str | None:
        """Why a value cannot have this type."""
        if type.rank > MAX_RANK:
            return f"rank {type.rank} is more than {MAX_RANK}"
        for dim in type.shape:
            if dim.is_constant and dim.value < 0:
                return f"size {dim} is negative"
            problem = self.dim_problem(dim)
            if problem:
                return problem
        return None
