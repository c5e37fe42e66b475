"""Cuts: any prefix of any network runs on two devices with the bits of one."""

# covers R5, R20, R24, R34

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlx_edge.compile import WasmTarget, compile_part, place_module
from rlx_edge.compile.lower import lower
from rlx_edge.compile.passes.split import Split, crossing
from rlx_edge.compile.program_builder import link
from rlx_edge.compile.schedule import schedule
from rlx_edge.compile.shard import shard
from rlx_edge.ir.commands import Receive, Run, Send, Wait
from rlx_edge.ir.core import Module
from rlx_edge.ir.equality import first_difference
from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.plan import run_instructions
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.program_text import dump_program, load_program
from rlx_edge.ir.task_graph import dump_task_graph, load_task_graph
from rlx_edge.ir.transfer_rules import devices
from rlx_edge.ir.verifier import verify
from rlx_edge.model_source import open_source
from tests import sample_inputs
from tests.compile.parts import bound, cuts, run_cut, run_whole
from tests.compile.passes.test_preserves_values import difference
from tests.network_strategies import feeds, networks
from tests.oracles import same_bits

HOME, GATEWAY = "browser:0", "cpu:0@gateway"


@pytest.fixture(scope="module")
def digits(model_file: Callable[[str], Path]) -> Module:
    return place_module(open_source(str(model_file("digits"))).module({}, {}))


def test_every_cut_of_digits_gives_the_bits_of_one_device(digits: Module) -> None:
    given = bound(digits, sample_inputs.digits(0, batch=2))
    whole = run_whole(digits, given)
    found = list(cuts(digits))
    assert len(found) == 13
    for after, _ in found:
        outputs, traces = run_cut(digits, after, given)
        assert same_bits(whole, outputs), after
        if traces.keys() == {HOME, GATEWAY}:
            kinds = {device: {event.kind for event in trace} for device, trace in traces.items()}
            assert {"send", "receive"} <= kinds[HOME] & kinds[GATEWAY]
            assert "run" in kinds[GATEWAY]


@settings(max_examples=12)
@given(networks(max_ops=8), st.integers(0, 99), st.booleans())
def test_every_cut_of_a_network_gives_the_bits_of_one_device(
    network: Module, seed: int, special: bool
) -> None:
    placed = place_module(network)
    assume(placed.function.ops)
    arrays = {
        name: np.frombuffer(item.tobytes(), np.float32).reshape(item.shape)
        for name, item in feeds(network, seed, special).items()
    }
    given = bound(placed, arrays)
    whole = run_whole(placed, given)
    for after, _ in cuts(placed):
        outputs, _ = run_cut(placed, after, given)
        assert same_bits(whole, outputs), after


@settings(max_examples=15)
@given(networks(max_ops=8), st.integers(0, 99), st.data())
def test_a_cut_keeps_values_and_its_text_reads_back(
    network: Module, seed: int, data: st.DataObject
) -> None:
    placed = place_module(network)
    assume(placed.function.ops)
    after, _ = data.draw(st.sampled_from(list(cuts(placed, 99))))
    module = Split(after=after).run(placed)
    verify(module)
    inputs = feeds(network, seed)
    assert difference(interpret(placed, inputs), interpret(module, inputs)) is None
    text = print_module(module)
    again = parse_module(text)
    assert print_module(again) == text
    assert first_difference(module, again) is None
    graph = schedule(module)
    assert schedule(again).digest == graph.digest
    assert load_task_graph(dump_task_graph(graph)) == graph


@settings(max_examples=15)
@given(networks(max_ops=8), st.data())
def test_parts_cover_the_module_and_agree(network: Module, data: st.DataObject) -> None:
    placed = place_module(network)
    assume(placed.function.ops)
    after, _ = data.draw(st.sampled_from(list(cuts(placed, 99))))
    module = Split(after=after).run(placed)
    parts = [shard(module, device) for device in devices(module.function)]
    covered = {op for part in parts for op in part.module.function.ops}
    assert covered == set(module.function.ops)
    assert sorted(edge for part in parts for edge in part.sends) == sorted(
        edge for part in parts for edge in part.receives
    )
    programs = [compile_part(module, part.device) for part in parts]
    assert len({program.graph_digest for program in programs}) == 1
    assert len({program.ir_digest for program in programs}) == 1
    for program in programs:
        assert load_program(dump_program(program)) == program


def test_commands_of_both_parts(digits: Module) -> None:
    module = Split(after="block1_relu").run(digits)
    first, second = (compile_part(module, device) for device in (HOME, GATEWAY))
    assert [type(item) for item in first.execute] == [Run, Send, Receive, Wait]
    assert [type(item) for item in second.execute] == [Receive, Wait, Run, Send]
    assert second.inputs == () and second.outputs == () and second.bindings == ()
    assert second.plan.symbols == ("batch",)
    assert {upload.digest for upload in first.uploads}.isdisjoint(
        upload.digest for upload in second.uploads
    )


def test_several_values_are_awaited_one_by_one() -> None:
    operation = '{ phase = "execute", target_device_set = ["wasm:0"], sync_mode = "none" }'
    text = f"""rlx.module version = "1.0"

func @several(%x: f32[n, 4]) -> (f32[n, 4]) {{
  %a = rlxc::relu(%x) {operation} : f32[n, 4]
  %b = rlxc::neg(%a) {operation} : f32[n, 4]
  %c = rlxc::neg(%a) {operation} : f32[n, 4]
  %d = rlxc::mul(%c, %c) {operation} : f32[n, 4]
  %e = rlxc::mul(%d, %b) {operation} : f32[n, 4]
  return %e
}}
"""
    module = parse_module(text)
    assert [value.name for value in crossing(module.function, 3)] == ["b", "c"]
    second = compile_part(Split(after="c").run(module), GATEWAY)
    kinds = [type(item) for item in second.execute]
    assert kinds == [Receive, Receive, Wait, Run, Wait, Run, Send]


def test_mistakes() -> None:
    text = print_module(place_module(parse_module(
        'rlx.module version = "1.0"\n\nfunc @f(%x: f32[n]) -> (f32[n]) {\n'
        "  %y = rlxc::relu(%x) : f32[n]\n  return %y\n}\n"
    )))  # fmt: skip
    module = parse_module(text)
    with pytest.raises(InputError, match="%y") as missing:
        Split(after="z").run(module)
    assert missing.value.code == "split.after"
    with pytest.raises(DeviceError) as twice:
        Split(first="cpu:0", second="cpu:0").run(module)
    assert twice.value.code == "split.device"
    cut = Split().run(module)
    with pytest.raises(DeviceError) as again:
        Split(second="cuda:0@gateway").run(cut)
    assert again.value.code == "split.placed"
    with pytest.raises(DeviceError) as foreign:
        shard(cut, "cuda:0")
    assert foreign.value.code == "shard.device"
    with pytest.raises(DeviceError) as carried:
        schedule(Split(protocol="RDMA").run(module))
    assert carried.value.code == "comm.transport"


@settings(max_examples=15)
@given(networks(max_ops=8), st.data())
def test_transferred_buffers_overlap_nothing_that_lives_with_them(
    network: Module, data: st.DataObject
) -> None:
    placed = place_module(network)
    assume(placed.function.ops)
    after, _ = data.draw(st.sampled_from(list(cuts(placed, 99))))
    module = Split(after=after).run(placed)
    for part in [shard(module, device) for device in devices(module.function)]:
        target = WasmTarget()
        lowered = lower(part.module, target, is_home=part.is_home)
        linked = link(part.module.function, lowered, target.memory)
        env = dict.fromkeys(linked.plan.symbols, 3) | {"batch": 2, "w": 5}
        values = run_instructions(linked.plan, env)
        end = len(lowered.prepare) + len(lowered.execute)
        for item in lowered.transfers:
            own = linked.buffers[item.buffer]
            assert own.last == end or not item.is_send, "a sent buffer lives to the end"
            for number, other in enumerate(linked.buffers):
                together = other.first <= own.last and own.first <= other.last
                if number == item.buffer or not together:
                    continue
                (a, b), (c, d) = (
                    (values[x.address], values[x.address] + x.nbytes.evaluate(env))
                    for x in (own, other)
                )
                assert b <= c or d <= a or c == d, f"%{own.name} and %{other.name}"
