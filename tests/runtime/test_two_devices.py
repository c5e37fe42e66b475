"""One fused layer on two devices, the operand of one moved to the other: the same bits."""

# covers R24, R31

from __future__ import annotations

import pytest

from rlx_edge.compile.passes.hold import Hold
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.transfer_rules import transfers
from tests.two_devices import FUSING, PLACING, layer, run_both


def test_each_device_runs_the_layer_once() -> None:
    found = run_both("cpu:0", "vulkan:0")
    assert found.equal
    by_weight, by_input = found.runs
    assert (by_weight.runs_on, by_input.runs_on) == ("cpu:0", "vulkan:0")
    for run, other, name in ((by_weight, "vulkan:0", "w"), (by_input, "cpu:0", "x")):
        (fused,) = (line for line in run.text.splitlines() if "fused_conv2d_relu" in line)
        assert f'target_device_set = ["{run.runs_on}"]' in fused
        computed = [e for e in run.events if e.kind == "run" and e.device == run.runs_on]
        assert computed
        sent = [(e.device, e.name) for e in run.events if e.kind == "send"]
        assert (other, name) in sent
    codes = {run.programs[run.runs_on].target.partition("-")[0] for run in found.runs}
    assert codes == {"wasm32", "vulkan"}
    assert all("us cpu:0" in line or "us vulkan:0" in line for line in list(by_weight.trace())[1:])
    assert by_weight.carriers == {0: "copy"} and by_input.carriers == {0: "copy", 1: "copy"}


def test_both_versions_come_from_one_fused_operation() -> None:
    module, _ = layer()
    fused = run_passes(module, FUSING)
    (op,) = (op for op in fused.function.ops if "fused" in op.name)
    assert op.name == "rlxc::fused_conv2d_relu" and len(op.operands) == 3


def test_held_constants() -> None:
    module, _ = layer()
    placed = run_passes(module, f"{FUSING},{PLACING.format(device='cpu:0')}")
    both = Hold(values="w+b", device="vulkan:0").run(placed)
    assert [item.send.operands[0].name for item in transfers(both.function)] == ["w", "b"]
    for hold, code in (
        (Hold(values="y", device="vulkan:0"), "hold.value"),
        (Hold(values="w", device="cpu:0"), "hold.placed"),
    ):
        with pytest.raises(RlxError) as caught:
            hold.run(placed)
        assert caught.value.code == code
    with pytest.raises(RlxError) as caught:
        Hold(values="w", device="cuda:0").run(both)
    assert caught.value.code == "hold.placed"
