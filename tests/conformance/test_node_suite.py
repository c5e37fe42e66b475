"""Every listed case of the node suite does what the list says: a pass passes, a gap fails."""

from __future__ import annotations

import onnx
import pytest

from rlx_edge.ir.errors import RlxError
from tests.conformance.devices import DEVICES
from tests.conformance.node_suite import GAP, PAGE, Line, node_cases, page_text, read_list

VERSION, LINES = read_list()
DEVICE = DEVICES[0]


def _parameters() -> list[object]:
    slow = pytest.mark.slow
    return [
        pytest.param(line, id=line.name, marks=[slow] if line.tier == "core" else [])
        for line in LINES
    ]


@pytest.mark.parametrize("line", _parameters())
def test_node_case(line: Line) -> None:
    case = node_cases().get(line.name)
    if case is None:
        assert onnx.__version__ != VERSION, f"onnx {VERSION} has no such case"
        pytest.skip(f"onnx {onnx.__version__} has no such case")
    if line.outcome != GAP:
        case.run(DEVICE)
        return
    try:
        case.run(DEVICE)
    except (RlxError, AssertionError):
        return
    assert onnx.__version__ != VERSION, "passes now: run `python -m tests.conformance`"


def test_the_list_is_in_order() -> None:
    names = [line.name for line in LINES]
    assert len(set(names)) == len(names)
    assert len(names) > 1000


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text(VERSION, LINES)
