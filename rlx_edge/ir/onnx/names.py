"""From ONNX names, which may be any text, to identifiers of the IR."""

from __future__ import annotations

import re

from rlx_edge.ir.core import unique_name
from rlx_edge.ir.dims import FUNCTIONS

_PADDLE = re.compile(r"(?:.*\.)?DynamicDimension[._](\d+)\Z")
_NOT_WORD = re.compile(r"[^A-Za-z0-9_]+")


def identifier(text: str, fallback: str) -> str:
    """``text`` with everything that no identifier holds turned into ``_``.

    >>> identifier("/model/conv.1/Conv_output_0", "v")
    'model_conv_1_Conv_output_0'
    >>> identifier("218", "v")
    'v218'
    """
    word = re.sub("__+", "_", _NOT_WORD.sub("_", text)).strip("_")
    return f"{fallback}{word}" if not word or word[0].isdigit() else word


def size_name(text: str) -> str:
    """A readable symbol for a named ONNX dim: ``p2o.DynamicDimension.0`` is ``d0``."""
    paddle = _PADDLE.match(text)
    return f"d{paddle[1]}" if paddle else identifier(text, "d")


class SymbolNames:
    """Unique symbols; the same ONNX dim name always gives the same one."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = dict.fromkeys(FUNCTIONS, "")
        self._of_dim: dict[str, str] = {}

    def for_dim(self, text: str) -> str:
        if text not in self._of_dim:
            self._of_dim[text] = self.fresh(size_name(text), text)
        return self._of_dim[text]

    def fresh(self, hint: str, original: str = "") -> str:
        name = unique_name(hint, self._taken)
        self._taken[name] = original
        return name

    def originals(self) -> dict[str, str]:
        """Symbol → the name of the dim in the ONNX file, for named dims."""
        return {symbol: text for text, symbol in self._of_dim.items()}
