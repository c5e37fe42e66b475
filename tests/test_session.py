"""Sessions as onnxruntime's users know them: over a program made by hand, and what is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.ir.errors import (
    DeviceError,
    DigestError,
    GuardError,
    InputError,
    ModelError,
    RlxError,
)
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.printer import print_module
from tests.runtime import hand_made

# covers R37


@pytest.fixture
def session() -> Iterator[InferenceSession]:
    with InferenceSession(hand_made.module(), program=hand_made.program()) as session:
        yield session


def test_arguments_are_described(session: InferenceSession) -> None:
    x, k = session.get_inputs()
    (y,) = session.get_outputs()
    assert (x.name, x.shape, x.type) == ("x", ["n", 4], "tensor(float)")
    assert (k.name, k.shape, k.type) == ("k", [1], "tensor(int64)")
    assert (y.name, y.shape, y.type) == ("y", ["n", 4], "tensor(float)")
    assert session.get_providers() == ["wasm:0"]


def test_runs_and_counts(session: InferenceSession) -> None:
    for n, k in ((3, 2), (3, 2), (5, 2), (3, 9)):
        feeds = hand_made.feeds(n, k)
        for names in (None, ["y"]):
            (y,) = session.run(names, feeds)
            np.testing.assert_array_equal(y, hand_made.expected(feeds["x"], k))
    assert (session.compile_count, session.plan_count) == (0, 3)
    assert session.memory_size % 65536 == 0
    assert len(session.run([], hand_made.feeds(1))) == 1  # all, as for None
    assert len(session.run(["y", "y"], hand_made.feeds(1))) == 2


def test_the_profile_is_of_the_last_run(session: InferenceSession) -> None:
    assert [event.kind for event in session.last_profile] == ["load"]
    session.run(None, hand_made.feeds(2))
    assert "upload" in [event.kind for event in session.last_profile]
    session.run(None, hand_made.feeds(2))
    kinds = [event.kind for event in session.last_profile]
    assert kinds == ["input", "input", "run", "run", "output"]
    assert {event.device for event in session.last_profile} == {"wasm:0"}


def test_profiling_names_operators() -> None:
    program = hand_made.program()
    with InferenceSession(hand_made.module(), program=program, enable_profiling=True) as session:
        session.run(None, hand_made.feeds(2))
        runs = [event for event in session.last_profile if event.kind == "run"]
    assert [event.name for event in runs] == ["rlxc::mul", "rlxc::mul", "rlxc::add"]
    assert [event.phase for event in runs] == ["compile", "execute", "execute"]


@pytest.mark.parametrize(
    ("names", "code"),
    [("y", "output.names"), (["z"], "output.name"), (["y", "x"], "output.name")],
)
def test_wrong_outputs(session: InferenceSession, names: list[str], code: str) -> None:
    with pytest.raises(InputError) as caught:
        session.run(names, hand_made.feeds(1))
    assert caught.value.code == code
    assert "y" in str(caught.value)


def test_wrong_feeds(session: InferenceSession) -> None:
    good = hand_made.feeds(2)
    for feeds, code in (
        ({**good, "z": good["x"]}, "input.name"),
        ({"x": good["x"]}, "input.name"),
        ({**good, "x": good["x"].astype(np.float64)}, "input.dtype"),
        ({**good, "x": good["x"].tolist()}, "input.array"),
        ({**good, "x": good["x"][:, :3]}, "input.shape"),
    ):
        with pytest.raises(InputError) as caught:
            session.run(None, feeds)
        assert caught.value.code == code
    assert session.run(None, good)[0].shape == (2, 4)


def test_a_guard_that_fails_is_named(session: InferenceSession) -> None:
    with pytest.raises(GuardError) as caught:
        session.run(None, hand_made.feeds(2, k=100))
    assert "k < 100" in str(caught.value) and "k = 100" in str(caught.value)
    assert "a small k" in str(caught.value)
    assert session.compile_count == 0


def test_after_close(session: InferenceSession) -> None:
    session.run(None, hand_made.feeds(2))
    session.close()
    session.close()
    with pytest.raises(DeviceError) as caught:
        session.run(None, hand_made.feeds(2))
    assert caught.value.code == "session.closed"
    assert session.get_outputs()[0].name == "y"
    assert session.memory_size == 0


def test_a_failed_launch_does_not_spoil_the_session() -> None:
    text = hand_made.TEXT.replace(
        "(local $record i32)",
        "(local $record i32) (if (i32.eq (i32.load (i32.const 1080)) (i32.const 13))"
        " (then (i32.store (i32.const 1152) (i32.const 0)) unreachable))",
        1,
    )
    other = hand_made.with_wasm(text)
    program = replace(
        hand_made.program(), code=other.code, kernels_digest="sha256:" + _sha256(other.code)
    )
    with InferenceSession(hand_made.module(), program=program) as session:
        with pytest.raises(DeviceError) as caught:
            session.run(None, hand_made.feeds(2, k=13))
        assert caught.value.code == "wasm.trap"
        feeds = hand_made.feeds(2, k=1)
        (y,) = session.run(None, feeds)
        np.testing.assert_array_equal(y, hand_made.expected(feeds["x"], 1))
        assert session.compile_count == 0


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_threads_take_turns(session: InferenceSession) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for count in range(1, 40):
            feeds = hand_made.feeds(count % 7 + 1, seed, seed)
            (y,) = session.run(None, feeds)
            if not (y == hand_made.expected(feeds["x"], seed)).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_sessions_do_not_disturb_each_other() -> None:
    one = InferenceSession(hand_made.module(), program=hand_made.program())
    two = InferenceSession(hand_made.module(), program=hand_made.program())
    feeds = hand_made.feeds(3, 5)
    first, second = one.run(None, feeds)[0], two.run(None, hand_made.feeds(3, 5))[0]
    one.close()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(two.run(None, feeds)[0], first)
    two.close()


def test_a_session_that_is_dropped_frees_its_memory(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    program, module = hand_made.program(), hand_made.module()
    feeds = {"x": np.ones((200_000, 4), np.float32), "k": np.array([1])}
    sizes = []
    gc.disable()  # memory outside Python's heap does not make the collector run
    try:
        for _ in range(12):
            InferenceSession(module, program=program).run(None, feeds)
            sizes.append(resident())
    finally:
        gc.enable()
    assert sizes[-1] - sizes[3] < 16 << 20  # one run touches 6 MB of linear memory


# ---- programs and digests ------------------------------------------------------------------------


def test_a_program_of_another_ir_is_refused() -> None:
    # covers R10
    other = replace(hand_made.program(), ir_digest="sha256:" + "ab" * 32)
    with pytest.raises(DigestError) as caught:
        InferenceSession(hand_made.module(), program=other)
    assert "sha256:" + "ab" * 32 in str(caught.value)
    assert hand_made.program().ir_digest in str(caught.value)


def test_stale_kernels_are_refused() -> None:
    # covers R10
    other = replace(hand_made.program(), code=hand_made.WASM + b"\0")
    with pytest.raises(DigestError) as caught:
        InferenceSession(hand_made.module(), program=other)
    assert str(caught.value).count("sha256:") == 2


def test_weights_that_were_changed_are_refused(tmp_path: Path) -> None:
    # covers R10
    text, _ = hand_made.write_files(tmp_path)
    assert InferenceSession(text, program=hand_made.program()).run(None, hand_made.feeds(1))
    binary = tmp_path / "hand.weights.bin"
    data = bytearray(binary.read_bytes())
    data[0] ^= 1
    binary.write_bytes(data)
    with pytest.raises(DigestError) as caught:
        InferenceSession(text, program=hand_made.program())
    assert str(caught.value).count("sha256:") >= 2


# ---- what can be a model, and where it can run -----------------------------------------------


def test_text_of_a_module_with_weights_needs_its_file() -> None:
    text = print_module(hand_made.module()).encode()
    for given in (text, bytearray(text), memoryview(text), MemorySource(text, "hand")):
        with pytest.raises(ModelError) as caught:
            InferenceSession(given)
        assert caught.value.code == "session.weights"


def test_text_is_known_by_its_content(tmp_path: Path) -> None:
    text, _ = hand_made.write_files(tmp_path)
    renamed = tmp_path / "hand.txt"
    renamed.write_text("// a comment\n\n" + text.read_text())
    text.unlink()
    with InferenceSession(str(renamed), program=hand_made.program()) as session:
        assert session.run(None, hand_made.feeds(2))[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (b"", "import.empty"),
        (b"just some text about models", None),
        (17, "session.model"),
        ({"x": 1}, "session.model"),
        ("nowhere.onnx", "bytes.missing"),
        ("nowhere.rlx", "file.missing"),
        ("/tmp", "bytes.file"),
        ("a\0b.onnx", "bytes.file"),
    ],
)
def test_what_is_no_model(model: object, code: str | None) -> None:
    with pytest.raises(RlxError) as caught:
        InferenceSession(model)  # type: ignore[arg-type]
    assert code is None or caught.value.code == code


@pytest.mark.parametrize(
    ("providers", "code", "words"),
    [
        (["abacus:0"], "device.kind", ("abacus:0", "wasm")),
        (["wasm"], "device.name", ("wasm:0",)),
        (["cuda:99"], "device.absent", ("cuda:99", "no such NVIDIA GPU", "wasm:0, cpu:0")),
        (["gpu:0"], "device.absent", ("gpu:0",)),
        (["vulkan:99"], "device.absent", ("vulkan:99", "no such Vulkan device")),
        (["wasm:1"], "device.absent", ("wasm:1", "no such index")),
        (["cpu:0@gateway"], "device.absent", ("another host",)),
        (["webgpu:0"], "device.reserved", ("webgpu",)),
        (["CPUExecutionProvider"], "device.provider", ("wasm:0, cpu:0",)),
        ([], "device.count", ("no provider",)),
        (["wasm:0", "cpu:0"], "device.count", ("wasm:0, cpu:0",)),
        ([("wasm:0", {})], "device.name", ("strings",)),
    ],
)
def test_devices(providers: list[str], code: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DeviceError) as caught:
        InferenceSession("nowhere.onnx", providers=providers)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "code"), [({"z": 1}, "input.name"), ({"k": "many"}, "session.hint")]
)
def test_wrong_hints(hint: dict[str, int], code: str) -> None:
    with pytest.raises(InputError) as caught:
        InferenceSession(hand_made.module(), program=hand_made.program(), value_hint=hint)
    assert caught.value.code == code


def test_one_name_is_enough() -> None:
    with InferenceSession(
        hand_made.module(), providers="wasm:0", program=hand_made.program()
    ) as session:
        assert session.get_providers() == ["wasm:0"]
