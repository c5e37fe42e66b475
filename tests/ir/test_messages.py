"""The table of error texts: complete, used, and the same for JavaScript."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rlx_edge.ir.errors import InputError
from rlx_edge.ir.messages import MESSAGES, failure
from scripts import build_messages

ROOT = Path(__file__).resolve().parent.parent.parent
HOLE = re.compile(r"\{(\w+)\}")


def python_calls() -> list[tuple[str, set[str]]]:
    """Key and names of values of every ``failure(…)`` whose key is a text."""
    found = []
    for path in sorted((ROOT / "rlx_edge").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "failure"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                names = {word.arg for word in node.keywords if word.arg}
                found.append((str(node.args[0].value), names - {"where"}))
    return found


def javascript_keys() -> set[str]:
    text = "".join(path.read_text("utf-8") for path in (ROOT / "web").rglob("runtime/*.js"))
    return set(re.findall(r"failure\(\s*\"([^\"]+)\"", text))


def holes(key: str) -> set[str]:
    message = MESSAGES[key]
    return set(HOLE.findall(message.what + message.found + message.allowed + message.hint))


def test_every_error_has_a_text_and_fills_it() -> None:
    calls = python_calls()
    assert len(calls) > 20
    for key, names in calls:
        assert key in MESSAGES
        assert names == holes(key), key
    assert javascript_keys() <= set(MESSAGES)


def test_every_text_is_used() -> None:
    used = {key for key, _ in calls_and_rules()} | javascript_keys()
    assert set(MESSAGES) <= used


def calls_and_rules() -> list[tuple[str, set[str]]]:
    """Keys in calls, and those that are put together from a rule's name."""
    rules = [(f"input.shape:{rule}", set[str]()) for rule in ("empty", "axis")]
    codes = [(code, set[str]()) for code in ("program.value", "program.syntax")]
    return [*python_calls(), *rules, *codes]


def test_javascript_has_the_same_table() -> None:
    assert build_messages.main(["--check"]) == 0
    text = build_messages.TARGET.read_text("utf-8")
    assert text.count("\n") == build_messages.table().count("\n")
    for key in MESSAGES:
        assert f'  "{key}": [' in text


def test_a_stale_table_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "messages.js"
    monkeypatch.setattr(build_messages, "TARGET", target)
    assert build_messages.main(["--check"]) == 1
    assert "make docs" in capsys.readouterr().err
    assert build_messages.main([]) == 0
    assert build_messages.main(["--check"]) == 0


def test_lists_are_joined_and_empty_parts_left_out() -> None:
    error = failure("input.name", name="z", names=["x", ["y", 3]], where="m.onnx")
    assert isinstance(error, InputError)
    assert (error.code, str(error)) == (
        "input.name",
        "m.onnx: no such input; found 'z'; allowed: x, y, 3",
    )
    assert failure("input.shape:empty", name="x", axis=0, shape=(), type="f32[n]").found is None
    braces = failure("input.name", name="{names}", names=["x"])
    assert "found '{names}'" in str(braces)
