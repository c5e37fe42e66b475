"""What the builders of scalar expressions refuse."""

from __future__ import annotations

import pytest

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    INDEX,
    Expr,
    acc,
    binary,
    const,
    index,
    load,
    replace_loads,
    select,
)
from rlx_edge.ir.scalar_ops import SHIFTS
from rlx_edge.ir.types import BOOL, F32, I8, I32, I64, U32, DType


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


def test_what_was_rewritten_is_not_rewritten_again() -> None:
    """A select whose sides become one load folds to it; the new slot is not an old one."""
    chosen = select(load(0, BOOL, []), load(1, F32, []), load(2, F32, []))
    slots = {0: 1, 1: 0, 2: 0}
    found = replace_loads(chosen, lambda slot, at, dtype: load(slots[slot], dtype, at))
    assert found is load(0, F32, [])
