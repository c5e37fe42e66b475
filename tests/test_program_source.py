"""A program knows the IR that it was compiled from, before and after the graph passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.compile import compile_module
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.errors import DigestError
from rlx_edge.ir.module_file import load_module, save_module
from rlx_edge.ir.onnx.importer import import_model
from rlx_edge.ir.program import Program
from rlx_edge.ir.program_text import dump_program, load_program
from rlx_edge.model_store import model_path

FEEDS = {"image": np.zeros((1, 1, 8, 8), np.float32)}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "digits.rlx"
    save_module(import_model(model_path("digits")), path)
    return path


@pytest.fixture
def program(text: Path) -> Program:
    return compile_module(load_module(text)).program


def test_both_digests_survive_the_file(text: Path, program: Program) -> None:
    compiled = compile_module(load_module(text))
    assert program.source_digest == module_digest(load_module(text))
    assert program.ir_digest == module_digest(compiled.placed) != program.source_digest
    assert load_program(dump_program(program)) == program


def test_text_before_and_after_the_passes_runs(
    text: Path, program: Program, tmp_path: Path
) -> None:
    placed = tmp_path / "placed.rlx"
    save_module(compile_module(load_module(text)).placed, placed)
    results = [
        InferenceSession(path, program=program).run(None, FEEDS)[0].tobytes()
        for path in (text, placed, model_path("digits"))
    ]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("stride", ["stride = [2, 2]", "stride = [2, 1]"])
def test_edited_text_is_refused_with_both_digests(
    text: Path, program: Program, stride: str
) -> None:
    # covers R10. The edited text would not verify either: the digests come first.
    edited = text.read_text().replace("stride = [1, 1]", stride, 1)
    assert edited != text.read_text()
    text.write_text(edited)
    with pytest.raises(DigestError, match="do not belong together") as caught:
        InferenceSession(text, program=program)
    assert program.source_digest in str(caught.value)
    assert str(caught.value).count("sha256:") == 2
