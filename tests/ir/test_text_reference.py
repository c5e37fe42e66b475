"""The reference page's example is what the printer writes, and its numbers are the limits."""

# covers R1

from __future__ import annotations

import re
from pathlib import Path

from rlx_edge.ir.attributes import PLACEMENT
from rlx_edge.ir.expression_check import MAX_DEPTH, MAX_NODES
from rlx_edge.ir.expression_parser import CALLS
from rlx_edge.ir.lexer import MAX_TEXT
from rlx_edge.ir.parser import MAX_OPS, parse_module
from rlx_edge.ir.printer import LINE_WIDTH, print_module
from rlx_edge.ir.token_reader import MAX_DIM_OPERATORS, MAX_DIM_TOKENS, MAX_LIST, MAX_RANK
from rlx_edge.ir.verifier import findings

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "ir-text.md").read_text("utf-8")


def test_the_example_is_canonical_and_valid() -> None:
    (text,) = re.findall(r"```rlx\n(.*?)```", PAGE, re.DOTALL)
    module = parse_module(text, "ir-text.md")
    assert print_module(module) == text
    assert findings(module) == []


def test_the_numbers_are_the_limits() -> None:
    limits = PAGE[PAGE.index("## Limits") :]
    assert f"{MAX_TEXT >> 20} Mi characters" in limits
    for number in (MAX_OPS, MAX_LIST, MAX_NODES):
        assert f"{number:,}" in limits
    for number in (MAX_RANK, MAX_DIM_TOKENS, MAX_DIM_OPERATORS, MAX_DEPTH):
        assert f" {number} " in limits
    assert f"longer than {LINE_WIDTH} characters" in PAGE


def test_every_function_and_placement_attribute_is_listed() -> None:
    for name in (*CALLS, *(item.name for item in PLACEMENT)):
        assert f"`{name}`" in PAGE
