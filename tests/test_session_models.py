"""Whole models through the compiler in a session, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper

from rlx_edge import InferenceSession
from rlx_edge.ir.errors import GuardError, InputError, LimitError
from rlx_edge.ir.module_file import save_module
from rlx_edge.ir.onnx.importer import import_model
from tests import sample_inputs
from tests.oracles import Comparison, Oracle, same_bits

Feeds = dict[str, npt.NDArray[np.generic]]
ModelFile = Callable[[str], Path]


def compare(session: InferenceSession, oracle: Oracle, feeds: list[Feeds]) -> None:
    names = [argument.name for argument in session.get_outputs()]
    comparison = Comparison()
    for item in feeds:
        found = dict(zip(names, session.run(None, item), strict=True))
        comparison.add(found, oracle.run(item))
    comparison.require()


def test_arguments_are_those_of_onnxruntime(model_file: ModelFile) -> None:
    for name in ("digits", "orientation", "ppocr_rec", "silero_vad"):
        session, oracle = InferenceSession(model_file(name)), Oracle(model_file(name))
        for ours, theirs in (
            (session.get_inputs(), oracle.session.get_inputs()),
            (session.get_outputs(), oracle.session.get_outputs()),
        ):
            assert [(a.name, a.type, len(a.shape)) for a in ours] == [
                (a.name, a.type, len(a.shape)) for a in theirs
            ]
        for ours_in, theirs_in in zip(
            session.get_inputs(), oracle.session.get_inputs(), strict=True
        ):
            assert ours_in.shape == theirs_in.shape


def test_widths_cost_one_compile(model_file: ModelFile) -> None:
    # covers R14
    path = model_file("ppocr_rec")
    session = InferenceSession(path)
    widths = (320, 96, 320, 200)
    feeds = [sample_inputs.ppocr_rec(seed, 1, width) for seed, width in enumerate(widths)]
    compare(session, Oracle(path), feeds)
    assert (session.compile_count, session.plan_count) == (1, 3)


def test_a_value_gives_a_variant(model_file: ModelFile) -> None:
    # covers R14
    path = model_file("silero_vad")
    session = InferenceSession(path)
    assert session.compile_count == 0  # nothing says which way the model goes
    order = (16000, 8000, 16000, 8000)
    feeds = [sample_inputs.silero_vad(seed, 1, rate) for seed, rate in enumerate(order)]
    compare(session, Oracle(path), feeds)
    assert session.compile_count == 2
    assert len(session.programs) == 2


def test_a_hint_compiles_early(model_file: ModelFile) -> None:
    session = InferenceSession(model_file("silero_vad"), value_hint={"sr": 8000})
    assert session.compile_count == 1
    session.run(None, sample_inputs.silero_vad(0, 1, 8000))
    assert session.compile_count == 1
    session.run(None, sample_inputs.silero_vad(0, 1, 16000))
    assert session.compile_count == 2


def test_mistakes_before_the_first_variant(model_file: ModelFile) -> None:
    session = InferenceSession(model_file("silero_vad"))
    good = sample_inputs.silero_vad(0, 1, 16000)
    for feeds, code in (
        ({**good, "sr": np.float32(1)}, "input.dtype"),
        ({**good, "state": np.zeros((2, 1, 64), np.float32)}, "input.shape"),
        ({"sr": good["sr"]}, "input.name"),
    ):
        with pytest.raises(InputError) as caught:
            session.run(None, feeds)
        assert caught.value.code == code
    assert session.compile_count == 0


@pytest.mark.parametrize("device", ["cpu:0", "wasm:0"])
def test_text_bytes_and_path_give_the_same_bits(
    model_file: ModelFile, tmp_path: Path, device: str
) -> None:
    path = model_file("digits")
    save_module(import_model(path), tmp_path / "digits.rlx")
    feeds = sample_inputs.digits(3, 2)
    results = [
        InferenceSession(model, providers=[device]).run(None, feeds)
        for model in (path, str(path), path.read_bytes(), tmp_path / "digits.rlx")
    ]
    assert all(same_bits(results[0], other) for other in results[1:])


def test_styles_give_the_same_bits(model_file: ModelFile) -> None:
    # covers R11
    feeds = sample_inputs.orientation(5, 1)
    results = [
        InferenceSession(model_file("orientation"), style=style).run(None, feeds)
        for style in ("v8", "cranelift")
    ]
    assert same_bits(*results)


def test_a_program_saves_the_compile(model_file: ModelFile) -> None:
    first = InferenceSession(model_file("digits"))
    (program,) = first.programs
    second = InferenceSession(model_file("digits"), program=program)
    feeds = sample_inputs.digits(1, 3)
    assert same_bits(first.run(None, feeds), second.run(None, feeds))
    assert (first.compile_count, second.compile_count) == (1, 0)


def test_machine_code_is_kept(
    model_file: ModelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        session = InferenceSession(model_file("digits"), cache=tmp_path / "cwasm")
        session.run(None, sample_inputs.digits(0, 1))
    assert len(list((tmp_path / "cwasm").glob("*.cwasm"))) == 1
    InferenceSession(model_file("digits"), cache=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["cwasm"]


# ---- small models ----------------------------------------------------------------------------


def model(
    nodes: list[object],
    inputs: list[tuple[str, int, list[int | str]]],
    outputs: list[tuple[str, int, list[int | str]]],
    weights: dict[str, np.ndarray] | None = None,
) -> bytes:
    from onnx import numpy_helper

    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(*item) for item in inputs],
        [helper.make_tensor_value_info(*item) for item in outputs],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString())


FLOAT = TensorProto.FLOAT


def test_outputs_that_are_inputs_or_constants() -> None:
    data = model(
        [
            helper.make_node("Identity", ["x"], ["same"]),
            helper.make_node("Identity", ["w"], ["fixed"]),
            helper.make_node("Reshape", ["x", "s"], ["flat"]),
            helper.make_node("Relu", ["x"], ["y"]),
        ],
        [("x", FLOAT, ["n", 4])],
        [
            ("same", FLOAT, ["n", 4]),
            ("fixed", FLOAT, [3]),
            ("flat", FLOAT, ["m"]),
            ("y", FLOAT, ["n", 4]),
        ],
        {"w": np.array([1, 2, 3], np.float32), "s": np.array([-1], np.int64)},
    )
    session = InferenceSession(data)
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        same, fixed, flat, y = session.run(None, {"x": x})
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(fixed, [1, 2, 3])
        np.testing.assert_array_equal(flat, x.ravel())
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        fixed[:] = 0
        same[:] = 9
        assert x[0, 0] != 9
    assert session.run(["fixed"], {"x": x})[0].tolist() == [1, 2, 3]


def test_inputs_with_unusual_names() -> None:
    data = model(
        [helper.make_node("Add", ["input.1:0", "in/put"], ["out put"])],
        [("input.1:0", FLOAT, ["n"]), ("in/put", FLOAT, ["n"])],
        [("out put", FLOAT, ["n"])],
    )
    session = InferenceSession(data)
    x = np.arange(5, dtype=np.float32)
    (y,) = session.run(["out put"], {"input.1:0": x, "in/put": x})
    np.testing.assert_array_equal(y, 2 * x)


def test_more_memory_than_webassembly_has() -> None:
    data = model(
        [
            helper.make_node("Transpose", ["x"], ["row"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "row"], ["square"]),
            helper.make_node("Softmax", ["square"], ["weights"], axis=1),
            helper.make_node("MatMul", ["weights", "x"], ["y"]),
        ],
        [("x", FLOAT, ["n", 1])],
        [("y", FLOAT, ["n", 1])],
    )
    session = InferenceSession(data)
    before = session.run(None, {"x": np.ones((4, 1), np.float32)})
    with pytest.raises(LimitError, match="4294967296"):
        session.run(None, {"x": np.ones((50_000, 1), np.float32)})
    assert same_bits(before, session.run(None, {"x": np.ones((4, 1), np.float32)}))


def test_a_size_that_decides_gives_a_variant(tmp_path: Path) -> None:
    """``If`` on ``n == 1``: one variant for 1, one for every other size."""
    then = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["a"])],
        "then",
        [],
        [helper.make_tensor_value_info("a", FLOAT, ["n"])],
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["b"])],
        "else",
        [],
        [helper.make_tensor_value_info("b", FLOAT, ["n"])],
    )
    data = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Equal", ["s", "one"], ["c"]),
            helper.make_node("Squeeze", ["c"], ["d"]),
            helper.make_node("If", ["d"], ["y"], then_branch=then, else_branch=other),
        ],
        [("x", FLOAT, ["n"])],
        [("y", FLOAT, ["n"])],
        {"one": np.array([1], np.int64)},
    )
    session = InferenceSession(data)
    assert session.run(None, {"x": np.array([3, -4], np.float32)})[0].tolist() == [3, 4]
    assert session.compile_count == 1
    assert session.run(None, {"x": np.array([3], np.float32)})[0].tolist() == [-3]
    assert session.run(None, {"x": np.array([-5, 1, 1], np.float32)})[0].tolist() == [5, 1, 1]
    assert session.compile_count == 2
    text = tmp_path / "general.rlx"
    save_module(import_model(data), text)
    with pytest.raises(GuardError, match="n != 1"):
        InferenceSession(text).run(None, {"x": np.array([3], np.float32)})
