"""What the builders of scalar expressions refuse."""

from __future__ import annotations

import pytest

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX, Expr, acc, binary, const, index
from rlx_edge.ir.scalar_ops import SHIFTS
from rlx_edge.ir.types import I8, I32, I64, U32, DType


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("dtype", [I8, I32, U32, I64], ids=str)
def test_shift_counts(name: str, dtype: DType) -> None:
    width = 8 * dtype.bytes
    x = acc(dtype)
    for count in (0, width - 1):
        assert binary(name, x, const(count, dtype)).op == name
    refused: list[Expr] = [const(width, dtype), x]
    if dtype.kind == "int":
        refused.append(const(-1, dtype))
    for bad in refused:
        with pytest.raises(RlxError, match="not a constant below the width") as caught:
            binary(name, x, bad)
        assert caught.value.code == "expression.shift"


def test_shift_counts_of_indices() -> None:
    assert binary("shl", index("n"), index(3)).dtype is INDEX
    for bad in (index(-1), index(32), index("n")):
        with pytest.raises(RlxError, match="0 to 31"):
            binary("shl", index("n"), bad)
