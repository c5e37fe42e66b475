"""A gateway that lends several devices: clients choose, drivers are opened when one is used."""

# covers R21, R27, R35

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlx_edge import InferenceSession
from rlx_edge.cli.main import main
from rlx_edge.compile import CudaTarget, VulkanTarget, WasmTarget
from rlx_edge.compile.targets.record import target_fields, target_of
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.errors import RlxError
from rlx_edge.lent_devices import find_workers
from rlx_edge.offload import OffloadSession
from tests import sample_inputs
from tests.gateway.live import TOKEN, live_gateway
from tests.oracles import same_bits


def has_loaded(pid: int, library: str) -> bool:
    return library in Path(f"/proc/{pid}/maps").read_text(encoding="ascii", errors="replace")


@pytest.mark.slow
def test_clients_choose_among_devices(model_file: Callable[[str], Path]) -> None:
    path, feeds = str(model_file("digits")), sample_inputs.digits(0, 3)
    with InferenceSession(path) as whole:
        expected = whole.run(None, feeds)
    with live_gateway(workers=("vulkan:0", "cpu:0")) as gateway:
        pid = gateway.process.pid
        for worker, after, role in (
            ("cpu:0", "block1_relu", "cpu:0@gateway"),
            ("", "", "vulkan:0@gateway"),
            ("vulkan:0", "features", "vulkan:0@gateway"),
        ):
            if worker == "cpu:0":
                assert not has_loaded(pid, "libvulkan")
            mode = "split" if after else "remote"
            with OffloadSession(
                path, gateway.url, TOKEN, mode=mode, split_after=after, worker=worker
            ) as parts:
                assert parts.role == role
                assert same_bits(parts.run(None, feeds), expected)
                assert role in {e.device for e in parts.last_profile if e.kind == "run"}
            assert has_loaded(pid, "libvulkan") == (worker != "cpu:0")
        assert not has_loaded(pid, "libcuda.")
        with pytest.raises(RlxError) as caught:
            OffloadSession(path, gateway.url, TOKEN, mode="remote", worker="cuda:0")
        assert caught.value.code == "peer.device" and "vulkan:0@gateway" in str(caught.value)
        assert gateway.stop() == 0
        assert not [line for line in gateway.lines if line["event"] in ("leak", "unstructured")]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["cpu:0", "cpu:0"], "gateway.worker"),
        (["wasm:0"], "gateway.worker"),
        (["browser:0"], "gateway.worker"),
        (["vulkan:9"], "device.absent"),
        (["cpu"], "device.name"),
    ],
)
def test_devices_that_are_not_lent(names: list[str], code: str) -> None:
    with pytest.raises(RlxError) as caught:
        find_workers(names)
    assert caught.value.code == code and "\n" not in str(caught.value)


def test_serving_an_absent_gpu_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    words = ["serve", "--site", str(tmp_path), "--models", "digits", "--offload"]
    assert main([*words, "--worker", "cuda:15"]) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "cuda:15 is not available" in lines[0]


@pytest.mark.parametrize(
    "target",
    [
        WasmTarget("v8"),
        CudaTarget("sm_90"),
        VulkanTarget(addressing="descriptor", denormals="32", driver="adreno"),
    ],
    ids=lambda target: target.kind,
)
def test_targets_travel_as_fields(target: Target) -> None:
    again = target_of(json.loads(json.dumps(target_fields(target))))
    assert again == target and again.name == target.name
    with pytest.raises(RlxError) as caught:
        target_of({"kind": "abacus"})
    assert caught.value.code == "target.kind"
