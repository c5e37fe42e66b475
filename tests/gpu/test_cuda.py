"""The CUDA unit on a real device."""

# covers R17, R23, R30

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.gpu_workers.cuda.device import open_device
from rlx_edge.gpu_workers.cuda.provider import absent_reason, describe
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.errors import DeviceError, LimitError
from rlx_edge.ir.types import F32
from tests import sample_inputs
from tests.cuda_programs import (
    DEVICE,
    MODEL_VALUES,
    compile_model,
    run_program,
    same_bits,
    wrong_examples,
)
from tests.oracles import Comparison, Oracle

pytestmark = pytest.mark.gpu
ModelFile = Callable[[str], Path]
TOLERANCE = 1e-4
FEEDS = {
    "digits": lambda seed: sample_inputs.digits(seed, 1 + seed),
    "orientation": sample_inputs.orientation,
    "ppocr_rec": lambda seed: sample_inputs.ppocr_rec(seed, 1, 64 * (seed + 1)),
    "silero_vad": sample_inputs.silero_vad,
}


@pytest.fixture(autouse=True)
def device() -> None:
    reason = absent_reason(0)
    if reason:
        pytest.skip(reason)


def test_every_example_has_the_interpreters_bits(tmp_path: Path) -> None:
    assert wrong_examples(lambda _: CudaUnit(DEVICE, tmp_path)) == []


@pytest.mark.parametrize("name", FEEDS)
def test_models_match_onnxruntime(name: str, model_file: ModelFile) -> None:
    comparison, oracle = Comparison(), Oracle(model_file(name))
    hint = MODEL_VALUES.get(name)
    with InferenceSession(model_file(name), [DEVICE], value_hint=hint) as session:
        names = [arg.name for arg in session.get_outputs()]
        for seed in (0, 1, 2, 0):
            feeds = FEEDS[name](seed)
            found = dict(zip(names, session.run(None, feeds), strict=True))
            comparison.add(found, oracle.run(feeds))
        assert session.compile_count == 1
    assert max(item.relative for item in comparison.outputs.values()) <= TOLERANCE


def test_graphs_and_single_launches_agree(model_file: ModelFile) -> None:
    compiled = compile_model("digits", model_file("digits"))
    feeds = sample_inputs.digits(3, 5)
    single = run_program(compiled, CudaUnit(DEVICE, graphs=False), feeds)
    with InferenceSession(model_file("digits"), [DEVICE]) as session:
        for _ in range(4):  # by launches, captured, replayed, replayed
            again = session.run(None, feeds)
            assert all(same_bits(a, b) for a, b in zip(single.values(), again, strict=True))


def test_one_context_however_often_it_is_opened(model_file: ModelFile, tmp_path: Path) -> None:
    compiled = compile_model("digits", model_file("digits"))
    feeds = sample_inputs.digits(0)
    run_program(compiled, CudaUnit(DEVICE, tmp_path), feeds)
    first = open_device(0)
    free = first.free_memory()[0]
    for _ in range(100):
        run_program(compiled, CudaUnit(DEVICE, tmp_path), feeds)
        assert open_device(0) is first
    assert first.free_memory()[0] >= free


def test_memory_is_checked(model_file: ModelFile, tmp_path: Path) -> None:
    program = compile_model("digits", model_file("digits")).program
    unit = CudaUnit(DEVICE, tmp_path)
    unit.load(program)
    unit.grow(1 << 20)
    data = np.arange(100, dtype=np.float32)
    unit.upload(4096, data)
    unit.grow(3 << 20)  # what was there stays
    np.testing.assert_array_equal(unit.download(4096, F32, (100,)), data)
    for address in (-4, (3 << 20) - 4):
        with pytest.raises(DeviceError) as caught:
            unit.upload(address, data)
        assert caught.value.code == "memory.range"
    with pytest.raises(DeviceError) as caught:
        unit.bytes_at(0, 4)
    assert caught.value.code == "memory.host"
    with pytest.raises(LimitError) as limit:
        unit.grow(1 << 50)
    assert limit.value.code == "memory.limit"
    np.testing.assert_array_equal(unit.download(4096, F32, (100,)), data)
    unit.close()
    unit.close()
    with pytest.raises(DeviceError) as caught:
        unit.download(0, F32, (1,))
    assert caught.value.code == "unit.closed"


def test_other_programs_and_bad_code_are_refused(model_file: ModelFile) -> None:
    program = compile_model("digits", model_file("digits")).program
    with pytest.raises(DeviceError) as caught:
        CudaUnit(DEVICE).load(replace(program, target="wasm32-simd128-v8"))
    assert caught.value.code == "program.target"
    with pytest.raises(DeviceError) as caught:
        CudaUnit(DEVICE).load(replace(program, code=b"this is no code"))
    assert caught.value.code == "cuda.compile" and "error" in str(caught.value)
    with pytest.raises(DeviceError) as caught:
        CudaUnit("cuda:99").load(program)
    assert caught.value.code == "cuda.index"


def test_the_table_of_limits() -> None:
    table = describe()
    devices, access = table["devices"], table["peer_access"]
    assert isinstance(devices, list) and isinstance(access, list)
    assert devices[0]["registers_processor"] >= 65536 and devices[0]["target"].startswith("sm_")
    assert all(access[index][index] for index in range(len(devices)))


@pytest.mark.parametrize("precision", ["relaxed", "tf32", "fp16"])
def test_precisions_are_near_the_model_and_keep_their_choice(
    precision: str, model_file: ModelFile, tmp_path: Path
) -> None:
    feeds = sample_inputs.orientation(1)
    expected = Oracle(model_file("orientation")).run(feeds)
    chosen = []
    for _ in range(2):
        with InferenceSession(
            model_file("orientation"), [DEVICE], precision=precision, cache=tmp_path
        ) as session:
            comparison = Comparison()
            names = [arg.name for arg in session.get_outputs()]
            for _ in range(3):  # measured, captured, replayed
                found = dict(zip(names, session.run(None, feeds), strict=True))
                comparison.add(found, expected)
            unit = session._variants[0].runner.unit
            assert isinstance(unit, CudaUnit)
            chosen.append(unit.measurements)
        worst = max(item.relative for item in comparison.outputs.values())
        assert worst <= (TOLERANCE if precision == "relaxed" else 1e-2)
    assert chosen[0] and chosen[0] == chosen[1]
