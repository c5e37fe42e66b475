"""Real models through the whole pipeline: the placed text, and what is left of the graph."""

# covers R3, R16

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rlx_edge
from rlx_edge.compile.pipeline import NATIVE_PIPELINE, run_passes
from rlx_edge.ir.core import Module
from rlx_edge.ir.onnx.importer import import_model
from rlx_edge.ir.ops import root_name
from rlx_edge.ir.printer import print_module
from tests.conftest import Golden

PIPELINE = NATIVE_PIPELINE.format(device="wasm:0")
DIGITS = Path(rlx_edge.__file__).parent / "data" / "digits.onnx"


def placed(path: Path, **options: dict[str, list[int]]) -> Module:
    return run_passes(import_model(path, **options), PIPELINE, check=True)  # type: ignore[arg-type]


def executed(module: Module) -> Counter[str]:
    """Root operators of the operations that run in every inference, views left out."""
    names = [root_name(op.name) for op in module.function.ops if op.attrs["phase"] == "execute"]
    return Counter(name.removeprefix("rlxc::") for name in names if name != "rlxc::reshape")


def test_digits(golden: Golden) -> None:
    golden.check("native/digits.expected", print_module(placed(DIGITS)))


def test_orientation(model_file: Callable[[str], Path]) -> None:
    kinds = executed(placed(model_file("orientation")))
    # Batch norms, biases and activations are part of the 32 convolutions; only the input is copied.
    assert kinds == {
        "convert_layout": 1,
        "conv2d": 32,
        "global_average_pool": 3,
        "mul": 2,
        "matmul": 1,
        "reduce_max": 1,
        "sub": 1,
        "reduce_sum": 1,
        "div": 1,
    }


def test_text_recognition(model_file: Callable[[str], Path]) -> None:
    kinds = executed(placed(model_file("ppocr_rec")))
    assert kinds["conv2d"] == 38
    assert kinds["matmul"] == 13
    assert kinds["convert_layout"] <= 4
    assert "batch_norm" not in kinds and "relu" not in kinds and "sigmoid" not in kinds


@pytest.mark.parametrize("rate", [8000, 16000])
def test_voice_activity(model_file: Callable[[str], Path], rate: int) -> None:
    module = placed(
        model_file("silero_vad"),
        values={"sr": [rate]},
        shapes={"input": [1, rate // 16000 * 256 + 256]},
    )
    kinds = executed(module)
    assert kinds["conv2d"] == 6
    assert kinds["matmul"] == 2
