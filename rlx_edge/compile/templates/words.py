"""Argument words of a kernel launch, read by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.compile.codegen.wasm.encoder import I32
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder


class Words:
    """Names of the i32 words behind a launch's argument address, in order.

    `constants` names values that a template fixes instead of reading a word, so that one driver
    serves templates with fewer words.
    """

    def __init__(self, names: Sequence[str], constants: Mapping[str, int] | None = None) -> None:
        self.names = tuple(names)
        self._offsets = {name: 4 * position for position, name in enumerate(names)}
        self._constants = dict(constants or {})

    def push(self, body: FunctionBuilder, name: str) -> FunctionBuilder:
        """Push a word; the argument address is the body's parameter 0."""
        if name in self._constants:
            return body.i32_const(self._constants[name])
        return body.local_get(0).i32_load(self._offsets[name])

    def local(self, body: FunctionBuilder, name: str) -> int:
        """Load a word into a new local."""
        index = body.local(I32, name)
        self.push(body, name).local_set(index)
        return index
