"""Pipeline strings, the pass table and the checks between passes."""

from __future__ import annotations

import dataclasses

import pytest

from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.compile.pipeline import (
    NATIVE_PIPELINE,
    PASSES,
    Step,
    make_pass,
    parse_pipeline,
    run_passes,
)
from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module

TEXT = """rlx.module version = "1.0"

func @f(%x: f32[n, 4]) -> (f32[n, 4]) {
  %y = rlxc::softmax(%x) { axis = 1 } : f32[n, 4]
  return %y
}
"""


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_frozen_and_carry_their_name(name: str) -> None:
    item = make_pass(Step(name))
    assert item.name == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.name = "other"  # type: ignore[misc]


def test_steps_print_as_they_are_read() -> None:
    text = "canonicalize,place{device=cpu:0@gateway},layout{nominal=8}"
    steps = parse_pipeline(text)
    assert steps == (
        Step("canonicalize"),
        Step("place", (("device", "cpu:0@gateway"),)),
        Step("layout", (("nominal", "8"),)),
    )
    assert ",".join(map(str, steps)) == text
    assert parse_pipeline(" canonicalize , layout { nominal = 8 } ")[1] == steps[2]
    assert parse_pipeline("") == ()


def test_options_reach_the_pass() -> None:
    (step,) = parse_pipeline("layout{nominal=8}")
    assert getattr(make_pass(step), "nominal") == 8  # noqa: B009


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("canonicalise", "pipeline.pass", "canonicalise"),
        ("fold,,fuse", "pipeline.syntax", "',fuse'"),
        ("fold{", "pipeline.syntax", "'fold{'"),
        ("place{device}", "pipeline.syntax", "'device'"),
        ("place{name=x}", "pipeline.option", "name"),
        ("place{devices=wasm:0}", "pipeline.option", "devices"),
        ("layout{nominal=big}", "pipeline.option", "'big'"),
        ("place{device=toaster:0}", "device.kind", None),
    ],
)
def test_wrong_pipelines_are_named(text: str, code: str, found: str | None) -> None:
    with pytest.raises(RlxError) as caught:
        run_passes(parse_module(TEXT), text)
    assert caught.value.code == code
    if found is not None:
        assert caught.value.found == found


def test_native_pipeline_places_every_operation() -> None:
    module = parse_module(TEXT)
    placed = run_passes(module, NATIVE_PIPELINE.format(device="cpu:1"), check=True)
    assert all(op.attrs["target_device_set"] == ("cpu:1",) for op in placed.function.ops)
    assert print_module(module) == TEXT


@dataclasses.dataclass(frozen=True)
class Break:
    """A pass that leaves a wrong type behind."""

    name: str = "break"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module.function.ops[0].attrs["axis"] = 7
        return module


def test_check_verifies_between_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSES, "break", f"{__name__}:Break")
    monkeypatch.setattr("rlx_edge.compile.pipeline.make_pass", lambda step: Break())
    with pytest.raises(RlxError, match="after pass break") as caught:
        run_passes(parse_module(TEXT), "break", check=True)
    assert caught.value.code == "pass.invalid"
    run_passes(parse_module(TEXT), "break", check=False)
    monkeypatch.setenv("RLX_CHECK", "1")
    with pytest.raises(RlxError, match="after pass break"):
        run_passes(parse_module(TEXT), "break")
    monkeypatch.setenv("RLX_CHECK", "0")
    run_passes(parse_module(TEXT), "break")


def test_log_says_what_was_done() -> None:
    log: list[Applied] = []
    run_passes(parse_module(TEXT), "decompose,fuse", log=log)
    assert [entry.rule for entry in log] == ["expand_decomposition", "fuse"]
    assert log[1].before == "%sub = rlxc::sub(%x, %reduce_max); %exp = rlxc::exp(%sub)"
    assert str(log[1]).endswith("=>  %exp = rlxc::fused_sub_exp(%x, %reduce_max)")
