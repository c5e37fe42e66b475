"""A program under wasmtime: results, views, traps, limits, and use after close."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from rlx_edge.ir.errors import DeviceError, LimitError
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import F32, I32
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.wasm_runtime.unit import WasmUnit
from tests.runtime import hand_made

RUN = '(func (export "run") (param i32 i32 i32 i32)'
MEMORY = '(memory (export "memory") 1)'


@pytest.fixture
def unit() -> Iterator[WasmUnit]:
    unit = WasmUnit()
    unit.load(hand_made.PROGRAM)
    yield unit
    unit.close()


def test_results() -> None:
    context = DeviceContext("wasm:0")
    runner = ProgramRunner(hand_made.PROGRAM, hand_made.constants(), WasmUnit(), context)
    checker = FeedChecker(hand_made.PROGRAM.inputs, hand_made.PROGRAM.bindings)
    for n, k in ((1, 0), (5, 3), (20_000, -7), (5, 3), (2, 50)):
        feeds = hand_made.feeds(n, k, seed=n)
        bound = checker.bind(feeds)
        (y,) = runner.run(bound.arrays, bound.symbols)
        np.testing.assert_array_equal(y, hand_made.expected(feeds["x"], k))
    assert runner.plan_count == 4
    runner.close()
    context.close()


@pytest.mark.parametrize(
    "x",
    [
        np.arange(48, dtype=np.float32).reshape(4, 12).T,
        np.arange(96, dtype=np.float32).reshape(24, 4)[::-2],
        np.arange(48, dtype=">f4").reshape(12, 4),
        np.broadcast_to(np.float32(3), (12, 4)),
    ],
    ids=["transposed", "negative strides", "big-endian", "broadcast"],
)
def test_any_strides_and_byte_order(x: np.ndarray) -> None:
    runner = ProgramRunner(
        hand_made.PROGRAM, hand_made.constants(), WasmUnit(), DeviceContext("wasm:0")
    )
    (y,) = runner.run((x, np.array([1])), {"n": 12, "k": 1})
    np.testing.assert_array_equal(y, hand_made.expected(x.astype(np.float32), 1))


def test_views_share_memory_and_survive_growth(unit: WasmUnit) -> None:
    view = unit.bytes_at(4096, 8)
    unit.upload(4096, np.array([1, 2], np.int32))
    assert view.view("<i4").tolist() == [1, 2]
    unit.grow(3 << 20)
    assert unit.size == 3 << 20
    unit.upload(4096, np.array([3, 4], np.int32))
    assert view.view("<i4").tolist() == [3, 4]
    assert unit.download((3 << 20) - 4, I32, (1,)).tolist() == [0]


def test_growing_by_less_is_no_change(unit: WasmUnit) -> None:
    unit.grow(65537)
    assert unit.size == 2 << 16
    unit.grow(1)
    assert unit.size == 2 << 16


def test_ranges_are_checked(unit: WasmUnit) -> None:
    size = unit.size
    for address, nbytes in ((size - 4, 8), (-1, 4), (0, size + 1), (1 << 40, 1), (4, -4)):
        with pytest.raises(DeviceError) as caught:
            unit.bytes_at(address, nbytes)
        assert caught.value.code == "memory.range"
    with pytest.raises(DeviceError):
        unit.upload(size - 4, np.zeros(2, np.float32))
    with pytest.raises(DeviceError):
        unit.download(size - 4, F32, (2,))


def test_four_gigabytes_and_not_more(unit: WasmUnit) -> None:
    unit.grow(1 << 32)
    assert unit.size == 1 << 32
    unit.upload((1 << 32) - 8, np.array([5.0, 6.0], np.float32))
    assert unit.download((1 << 32) - 4, F32, ()).item() == 6.0
    with pytest.raises(LimitError) as caught:
        unit.grow((1 << 32) + 1)
    assert caught.value.code == "memory.limit" and "4294967296" in str(caught.value)


def test_a_module_with_a_maximum_of_its_own() -> None:
    unit = WasmUnit()
    unit.load(hand_made.with_wasm(f'(module (memory (export "memory") 1 2) {RUN}))'))
    with pytest.raises(LimitError) as caught:
        unit.grow(3 << 16)
    assert caught.value.code == "memory.grow"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("unreachable", ("unreachable",)),
        ("(drop (i32.load (i32.const 0x7fffffff)))", ("out of bounds",)),
        ("(drop (i32.div_s (local.get 1) (i32.const 0)))", ("division",)),
        ("(call $deep (local.get 0))", ("stack",)),
    ],
)
def test_traps_are_named_and_final(body: str, words: tuple[str, ...]) -> None:
    unit = WasmUnit()
    deep = "(func $deep (param i32) (call $deep (local.get 0)) (call $deep (local.get 0)))"
    unit.load(hand_made.with_wasm(f"(module {MEMORY} {deep} {RUN} {body}))"))
    with pytest.raises(DeviceError) as caught:
        unit.launch(0, 1)
    assert caught.value.code == "wasm.trap"
    for word in words:
        assert word in str(caught.value)
    with pytest.raises(DeviceError) as caught:
        unit.launch(0, 1)
    assert caught.value.code == "unit.failed"


def test_a_trap_says_which_launches() -> None:
    program = hand_made.with_wasm(f'(module (memory (export "memory") 1 9) {RUN} unreachable))')
    runner = ProgramRunner(program, hand_made.constants(), WasmUnit(), DeviceContext("wasm:0"))
    with pytest.raises(DeviceError) as caught:
        runner.run((np.zeros((1, 4), np.float32), np.array([1])), {"n": 1, "k": 1})
    assert caught.value.code == "wasm.trap"
    assert "%doubled rlxc::mul" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"(module {RUN}))", "wasm.interface"),
        (f"(module {MEMORY})", "wasm.interface"),
        (f'(module {MEMORY} (func (export "run") (param i32 i32)))', "wasm.interface"),
        (f'(module {MEMORY} (func (export "run") (param i32 i32 i32 i64)))', "wasm.interface"),
        (f"(module {MEMORY} {RUN[:-1]}) (result i32) (i32.const 0)))", "wasm.interface"),
        (f'(module {MEMORY} (global (export "run") i32 (i32.const 0)))', "wasm.interface"),
        (f'(module (import "env" "f" (func)) {MEMORY} {RUN}))', "wasm.instance"),
        (f"(module {MEMORY} {RUN}) (func $s unreachable) (start $s))", "wasm.trap"),
    ],
)
def test_modules_of_another_shape(text: str, code: str) -> None:
    with pytest.raises(DeviceError) as caught:
        WasmUnit().load(hand_made.with_wasm(text))
    assert caught.value.code == code


def test_bytes_that_are_no_module() -> None:
    from dataclasses import replace

    program: Program = replace(hand_made.PROGRAM, code=b"\0asm\1\0\0\0junk")
    with pytest.raises(DeviceError) as caught:
        WasmUnit().load(program)
    assert caught.value.code == "wasm.invalid"
    assert "\n" not in str(caught.value)


def test_after_close_everything_says_so(unit: WasmUnit) -> None:
    unit.close()
    unit.close()
    for use in (
        lambda: unit.size,
        lambda: unit.launch(0, 1),
        lambda: unit.grow(1 << 20),
        lambda: unit.bytes_at(0, 1),
        lambda: unit.load(hand_made.PROGRAM),
        unit.synchronize,
    ):
        with pytest.raises(DeviceError) as caught:
            use()
        assert caught.value.code == "unit.closed"
        assert "wasm:0" in str(caught.value)


def test_before_and_beside_load() -> None:
    unit = WasmUnit("cpu:0")
    with pytest.raises(DeviceError) as caught:
        unit.launch(0, 1)
    assert caught.value.code == "unit.empty" and "cpu:0" in str(caught.value)
    unit.load(hand_made.PROGRAM)
    with pytest.raises(DeviceError) as caught:
        unit.load(hand_made.PROGRAM)
    assert caught.value.code == "unit.loaded"


def test_a_view_outlives_its_unit() -> None:
    unit = WasmUnit()
    unit.load(hand_made.PROGRAM)
    unit.grow(8 << 20)
    view = unit.bytes_at(1 << 20, 4 << 20)
    view[:] = 7
    unit.close()
    del unit
    gc.collect()
    assert int(view.sum()) == 7 * (4 << 20)


def test_units_do_not_share_memory(unit: WasmUnit) -> None:
    other = WasmUnit()
    other.load(hand_made.PROGRAM)
    unit.upload(2048, np.array([1], np.int32))
    assert other.download(2048, I32, (1,)).tolist() == [0]


def test_launches_release_the_interpreter_lock() -> None:
    spin = """
      (local $i i32)
      (loop $next
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (i32.store (i32.const 64) (local.get $i))
        (br_if $next (i32.lt_u (local.get $i) (i32.const 400000000))))
    """
    unit = WasmUnit()
    unit.load(hand_made.with_wasm(f"(module {MEMORY} {RUN} {spin}))"))
    ended = threading.Event()

    def work() -> None:
        unit.launch(0, 1)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    steps = 0
    while not ended.is_set():
        steps += 1
        time.sleep(0)
    thread.join()
    assert steps > 100


def test_a_call_takes_microseconds(unit: WasmUnit) -> None:
    unit2 = WasmUnit()
    unit2.load(hand_made.with_wasm(f"(module {MEMORY} {RUN}))"))
    best = min(_seconds(unit2) for _ in range(20))
    assert best < 20e-6  # the checked call of the binding takes over 30 µs


def _seconds(unit: WasmUnit) -> float:
    start = time.perf_counter()
    for _ in range(200):
        unit.launch(0, 1)
    return (time.perf_counter() - start) / 200
