"""Whole models as bundles: node gives the bits that wasmtime gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.cli.main import main
from tests import sample_inputs
from tests.oracles import same_bits
from tests.web.node import Feeds, run_bundle

ModelFile = Callable[[str], Path]


def compiled(model: Path, folder: Path, *flags: str) -> Path:
    bundle = folder / "bundle"
    assert main(["compile", str(model), "-o", str(bundle), *flags]) == 0
    return bundle


def check_bits(model: Path, bundle: Path, feeds: list[Feeds], scratch: Path) -> dict[str, object]:
    """Every output of the bundle has the bits of both emit styles under wasmtime."""
    run = run_bundle(bundle, feeds, scratch, {"verify": "weights"})
    for style in ("v8", "cranelift"):
        with InferenceSession(model, style=style) as session:
            names = [argument.name for argument in session.get_outputs()]
            for item, found in zip(feeds, run.outputs, strict=True):
                assert list(found) == names
                assert same_bits(session.run(None, item), list(found.values())), style
    return run.facts


def test_digits(model_file: ModelFile, tmp_path: Path) -> None:
    # covers R11 R33
    model = model_file("digits")
    bundle = compiled(model, tmp_path)
    feeds = [sample_inputs.digits(seed, batch) for seed, batch in enumerate((1, 4, 1, 7))]
    facts = check_bits(model, bundle, feeds, tmp_path)
    assert (facts["programs"], facts["plans"]) == (1, 3)
    with InferenceSession(model) as session:
        for ours, theirs in zip(facts["inputs"], session.get_inputs(), strict=True):  # type: ignore[call-overload]
            assert (ours["name"], ours["shape"]) == (theirs.name, theirs.shape)
            assert (ours["type"], theirs.type) == ("float32", "tensor(float)")


def test_orientation(model_file: ModelFile, tmp_path: Path) -> None:
    model = model_file("orientation")
    feeds = [sample_inputs.orientation(seed, batch) for seed, batch in ((0, 1), (1, 2))]
    check_bits(model, compiled(model, tmp_path), feeds, tmp_path)


def test_text_lines_of_three_widths_with_one_compile(model_file: ModelFile, tmp_path: Path) -> None:
    # covers R14 R33
    model = model_file("ppocr_rec")
    feeds = [sample_inputs.ppocr_rec(seed, 1, width) for seed, width in enumerate((320, 97, 200))]
    facts = check_bits(model, compiled(model, tmp_path), feeds, tmp_path)
    assert (facts["programs"], facts["plans"]) == (1, 3)


def test_a_voice_model_for_both_rates(model_file: ModelFile, tmp_path: Path) -> None:
    # covers R14 R33
    model = model_file("silero_vad")
    bundle = compiled(model, tmp_path, "--value", "sr=16000", "--value", "sr=8000")
    order = (16000, 8000, 16000, 8000)
    feeds = [sample_inputs.silero_vad(seed, 1, rate) for seed, rate in enumerate(order)]
    facts = check_bits(model, bundle, feeds, tmp_path)
    assert (facts["programs"], facts["plans"]) == (2, 2)
    manifest = json.loads((bundle / "manifest.json").read_text())
    used = [set(variant_digests(bundle, row["program"])) for row in manifest["variants"]]
    assert used[0] | used[1] == set(manifest["weights"]["constants"])


def variant_digests(bundle: Path, program: str) -> list[str]:
    return [row[0] for row in json.loads((bundle / program).read_text())["uploads"]]


@pytest.mark.parametrize("style", ["v8", "cranelift"])
def test_either_style_runs_in_node(model_file: ModelFile, tmp_path: Path, style: str) -> None:
    model = model_file("digits")
    bundle = compiled(model, tmp_path, "--style", style)
    feeds = [sample_inputs.digits(3, 2), {"image": np.full((1, 1, 8, 8), 0.5, np.float32)}]
    check_bits(model, bundle, feeds, tmp_path)
    assert style in (bundle / "manifest.json").read_text()
