"""Texts and what is printed for them; spoiled texts and what is said about them."""

# covers R1, R2, R6, R8, R9

from __future__ import annotations

from pathlib import Path

import pytest

from rlx_edge.ir.dot import module_dot
from rlx_edge.ir.errors import ParseError, RlxError, VerifyError
from rlx_edge.ir.json_form import module_json
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.verifier import findings, verify
from tests.conftest import GOLDEN, Golden


def names(folder: str) -> list[str]:
    return sorted(path.stem for path in (GOLDEN / folder).glob("*.rlx"))


def message(error: RlxError) -> str:
    return f"{error.code}\n{error}\n{error.excerpt}\n"


@pytest.mark.parametrize("name", names("text"))
def test_canonical_text(name: str, golden: Golden) -> None:
    module = parse_module(golden.read(f"text/{name}.rlx"), f"{name}.rlx")
    assert findings(module) == []
    text = print_module(module)
    golden.check(f"text/{name}.expected", text)
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("name", names("parse_errors"))
def test_text_that_does_not_parse(name: str, golden: Golden) -> None:
    text = golden.read(f"parse_errors/{name}.rlx")
    with pytest.raises(ParseError) as caught:
        parse_module(text, f"{name}.rlx")
    golden.check(f"parse_errors/{name}.expected", message(caught.value))


@pytest.mark.parametrize("name", names("verify_errors"))
def test_text_that_breaks_a_rule(name: str, golden: Golden) -> None:
    module = parse_module(golden.read(f"verify_errors/{name}.rlx"), f"{name}.rlx")
    with pytest.raises(VerifyError) as caught:
        verify(module)
    golden.check(f"verify_errors/{name}.expected", message(caught.value))


@pytest.mark.parametrize("name", ["placed", "values", "epilogues"])
def test_pictures_and_json(name: str, golden: Golden) -> None:
    module = parse_module(golden.read(f"text/{name}.rlx"), f"{name}.rlx")
    golden.check(f"text/{name}.dot", module_dot(module))
    golden.check(f"text/{name}.json", module_json(module))


def test_there_are_cases(tmp_path: Path) -> None:
    del tmp_path
    counts = {folder: len(names(folder)) for folder in ("text", "parse_errors", "verify_errors")}
    assert all(count >= 5 for count in counts.values()), counts
