"""Whole models on Vulkan against onnxruntime: every size with one compile."""

# covers R14, R18

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

from rlx_edge import InferenceSession
from tests import sample_inputs
from tests.oracles import Comparison, Oracle

ModelFile = Callable[[str], Path]
Feeds = Mapping[str, npt.NDArray[Any]]
TOLERANCE = 1e-4


def run(path: Path, sets: list[Feeds], compiles: int = 1) -> None:
    oracle, comparison = Oracle(path), Comparison()
    with InferenceSession(path, providers=["vulkan:0"]) as session:
        names = [arg.name for arg in session.get_outputs()]
        for feeds in sets:
            found = session.run(None, feeds)
            comparison.add(dict(zip(names, found, strict=True)), oracle.run(feeds))
        assert session.compile_count == compiles
    comparison.require(TOLERANCE)


def test_digits(model_file: ModelFile) -> None:
    run(model_file("digits"), [sample_inputs.digits(batch, batch) for batch in (1, 4, 7)])


def test_silero(model_file: ModelFile) -> None:
    sets = [sample_inputs.silero_vad(seed, 1, rate) for rate in (16000, 8000) for seed in (0, 1)]
    run(model_file("silero_vad"), sets, compiles=2)


@pytest.mark.slow
def test_orientation(model_file: ModelFile) -> None:
    run(model_file("orientation"), [sample_inputs.orientation(0)])


@pytest.mark.slow
def test_text_lines(model_file: ModelFile) -> None:
    widths = (64, 97, 160)
    run(model_file("ppocr_rec"), [sample_inputs.ppocr_rec(w, 1, w) for w in widths])
