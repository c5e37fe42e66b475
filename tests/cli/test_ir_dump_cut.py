"""``rlx ir dump --split-after``: the cut text and its task graph from the command line."""

# covers R9, R24

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlx_edge.cli.main import main
from rlx_edge.ir.module_file import load_module
from rlx_edge.ir.task_graph import load_task_graph
from rlx_edge.ir.transfer_rules import transfers


@pytest.fixture
def digits(model_file: Callable[[str], Path]) -> str:
    return str(model_file("digits"))


def test_cut_text_is_valid_and_has_one_task_graph(
    digits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.rlx"
    assert main(["ir", "dump", digits, "--split-after", "%block1_relu", "-o", str(cut)]) == 0
    module = load_module(cut, check_digests=True, strict=True)
    assert len(transfers(module.function)) == 2
    capsys.readouterr()
    assert main(["ir", "dump", str(cut), "--stage", "placed", "--format", "tasks"]) == 0
    from_text = load_task_graph(capsys.readouterr().out)
    words = ["ir", "dump", digits, "--split-after", "block1_relu", "--format", "tasks"]
    assert main(words) == 0
    assert load_task_graph(capsys.readouterr().out) == from_text
    assert main(["ir", "run", str(cut), "--input", "image=random:1x1x8x8"]) == 1
    assert "only this one" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "start"), [("tasks-dot", "digraph"), ("tasks-svg", "<svg")])
def test_pictures(digits: str, form: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ir", "dump", digits, "--split-after", "%", "--format", form]) == 0
    out = capsys.readouterr().out
    assert out.startswith(start) and "cpu:0@gateway" in out


def test_mistakes(digits: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ir", "dump", digits, "--format", "tasks"]) == 1
    assert "--stage placed" in capsys.readouterr().err
    assert main(["ir", "dump", digits, "--split-after", "%nothing"]) == 1
    assert "%block1_relu" in capsys.readouterr().err
