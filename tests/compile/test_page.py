"""What a page gets of the compiler: parts, task graphs and the list of cuts."""

# covers R24, R34

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from rlx_edge.compile import place_module
from rlx_edge.compile.cuts import cuts
from rlx_edge.compile.page import PageModel, compile_for_page
from rlx_edge.compile.passes.split import crossing, cut_position
from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.task_graph import load_task_graph
from tests.network_strategies import networks

ModelFile = Callable[[str], Path]


def compiled(path: Path, device: str = "local", after: str = "") -> PageModel:
    content = path.read_bytes()
    return compile_for_page(
        lambda at, n: content[at : at + n], len(content), "m", device=device, split_after=after
    )


@settings(max_examples=25)
@given(networks(max_ops=10))
def test_cuts_are_the_prefixes_and_what_crosses_them(network: Module) -> None:
    function = place_module(network).function
    found = list(cuts(function))
    assert found[0].after == ""
    running = [op for op in function.ops if op.attrs["phase"] != "compile"]
    assert [cut.after for cut in found[1:]] == [op.results[0].name for op in running]
    for cut in found:
        wanted = crossing(function, cut_position(function, cut.after))
        assert set(cut.values) == set(wanted)
        sizes = dict.fromkeys(cut.nbytes.symbols(), 3)
        assert cut.nbytes.evaluate(sizes) == sum(v.type.nbytes.evaluate(sizes) for v in wanted)


def test_a_split_model(model_file: ModelFile) -> None:
    whole = compiled(model_file("digits"))
    rows = json.loads(whole.cuts)
    assert (whole.peer, whole.task_graph, whole.graph_digest) == ("", "", "")
    assert rows[0] == ["", [["image", "f32[batch, 1, 8, 8]", "256 * batch"]]]
    assert json.loads(whole.program).get("part") is None
    part = compiled(model_file("digits"), "split", rows[3][0])
    graph = load_task_graph(part.task_graph)
    assert graph.digest == part.graph_digest
    assert graph.ir_digest == part.ir_digest == json.loads(part.program)["ir_digest"]
    assert json.loads(part.program)["part"]["device"] == "browser:0"
    assert part.peer == "cpu:0@gateway" in graph.devices
    assert part.cuts == whole.cuts
    assert part.task_dot.startswith("digraph") and part.task_svg.startswith("<svg")
    assert len(graph.edges) == len(rows[3][1]) + 1
    constants = parse_module(part.placed).function.ops
    named = {op.attrs["digest"] for op in constants if op.name == "tensor::const"}
    assert named == set(json.loads(part.constants))


def test_everything_elsewhere_and_nothing_elsewhere(model_file: ModelFile) -> None:
    remote = compiled(model_file("digits"), "remote")
    program = json.loads(remote.program)
    assert program["launches"] == [] and program["uploads"] == []
    assert [row[1] for row in program["part"]["transfers"]] == ["send", "receive"]
    last = json.loads(remote.cuts)[-1]
    assert last[1] == []
    assert compiled(model_file("digits"), "split", last[0]).peer == ""


def test_another_place_is_refused(model_file: ModelFile) -> None:
    with pytest.raises(InputError) as place:
        compiled(model_file("digits"), "elsewhere")
    assert place.value.code == "page.device"
    with pytest.raises(InputError) as cut:
        compiled(model_file("digits"), "split", "nothing")
    assert cut.value.code == "split.after"
