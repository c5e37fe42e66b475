"""ONNX records: what the onnx package wrote is what the reader returns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.onnx.model import OnnxModel
from rlx_edge.ir.onnx.reader import open_model, read_model
from rlx_edge.ir.onnx.tensors import TensorProto


def model_of(
    nodes: list[onnx.NodeProto],
    initializers: list[onnx.TensorProto] | None = None,
    opset: int = 17,
    **keywords: object,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["batch", 3, None])],
        [helper.make_tensor_value_info("y", T.FLOAT, None)],
        initializers or [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **keywords)


def read(model: onnx.ModelProto) -> OnnxModel:
    return read_model(MemorySource(model.SerializeToString(), "m.onnx"))


def test_graph_nodes_and_values() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="act")
    model = read(model_of([node], producer_name="maker", producer_version="2"))
    assert model.opset == 17
    assert model.producer == "maker 2"
    [value] = model.graph.inputs
    assert (value.name, value.kind, value.data_type) == ("x", "tensor", 1)
    assert value.dims == ("batch", 3, None)
    assert model.graph.outputs[0].dims is None
    [act] = model.graph.nodes
    assert (act.op_type, act.name, act.inputs, act.outputs) == ("Relu", "act", ("x",), ("y",))


def test_every_kind_of_attribute() -> None:
    inner = model_of([helper.make_node("Relu", ["x"], ["y"])]).graph
    node = helper.make_node(
        "Anything",
        ["x", "", "x"],
        ["y"],
        domain="custom",
        f=0.5,
        i=-7,
        s="text",
        t=numpy_helper.from_array(np.arange(3, dtype=np.int64)),
        g=inner,
        floats=[1.0, 2.5],
        ints=[1, -1],
        strings=["a", "b"],
    )
    [found] = read(model_of([node])).graph.nodes
    assert found.inputs == ("x", "", "x")
    values = {name: item.value for name, item in found.attributes.items()}
    assert values["f"] == 0.5
    assert values["i"] == -7
    assert values["s"] == "text"
    assert values["floats"] == (1.0, 2.5)
    assert values["ints"] == (1, -1)
    assert values["strings"] == ("a", "b")
    assert isinstance(values["t"], TensorProto)
    assert values["t"].elements() == (0, 1, 2)
    assert found.attributes["g"].kind == "graph"
    assert values["g"].nodes[0].op_type == "Relu"  # type: ignore[union-attr]


CASES = [
    np.array([[1.5, -2.0], [np.inf, 0.0]], dtype=np.float32),
    np.array([1e300, -0.0], dtype=np.float64),
    np.array([1.5, -65504.0], dtype=np.float16),
    np.array([-128, 127], dtype=np.int8),
    np.array([0, 255], dtype=np.uint8),
    np.array([-32768, 32767], dtype=np.int16),
    np.array([0, 65535], dtype=np.uint16),
    np.array([-(2**31), 2**31 - 1], dtype=np.int32),
    np.array([0, 2**32 - 1], dtype=np.uint32),
    np.array([-(2**63), 2**63 - 1], dtype=np.int64),
    np.array([0, 2**64 - 1], dtype=np.uint64),
    np.array([True, False, True]),
    np.array(3.0, dtype=np.float32),
    np.zeros((0, 4), dtype=np.float32),
]


@pytest.mark.parametrize("value", CASES, ids=lambda value: f"{value.dtype}-{value.shape}")
@pytest.mark.parametrize("raw", [True, False])
def test_tensor_contents_in_raw_and_typed_fields(value: np.ndarray, raw: bool) -> None:
    data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    proto = helper.make_tensor(
        "w", data_type, value.shape, value.tobytes() if raw else value.flatten(), raw=raw
    )
    [tensor] = read(model_of([], [proto])).graph.initializers
    assert tensor.dims == value.shape
    assert tensor.data.read() == value.tobytes()
    assert list(tensor.elements()) == value.flatten().tolist()


def test_bfloat16_is_widened() -> None:
    proto = helper.make_tensor("w", T.BFLOAT16, [2], b"\x80\x3f\x20\xc0", raw=True)
    [tensor] = read(model_of([], [proto])).graph.initializers
    assert tensor.elements() == (1.0, -2.5)


def test_unpacked_floats_and_strings() -> None:
    proto = helper.make_tensor("s", T.STRING, [2], [b"a", b"b"])
    [tensor] = read(model_of([], [proto])).graph.initializers
    assert tensor.strings == (b"a", b"b")
    # float_data (field 4) as two unpacked fixed32 fields.
    item = b"\x08\x02\x10\x01\x25\x00\x00\x80\x3f\x25\x00\x00\x00\x40"
    graph = b"\x2a" + bytes([len(item)]) + item
    data = b"\x08\x08\x42\x02\x10\x11\x3a" + bytes([len(graph)]) + graph
    [tensor] = read_model(MemorySource(data)).graph.initializers
    assert tensor.elements() == (1.0, 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.dims.append(5), "does not fit the shape 2×2×5"),
        (lambda t: t.dims.__setitem__(0, -2), "negative dimension"),
        (lambda t: t.float_data.append(1.0), "more than one field"),
        (lambda t: setattr(t, "data_type", 99), "unknown element type"),
        (lambda t: (t.ClearField("raw_data"), t.int32_data.append(1)), "cannot hold elements"),
        (lambda t: t.ClearField("raw_data"), "found 0 bytes; allowed: 16 bytes"),
    ],
)
def test_contradictory_tensors_are_refused(change: object, message: str) -> None:
    proto = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    change(proto)  # type: ignore[operator]
    with pytest.raises(ModelError, match=message):
        read(model_of([], [proto]))


def external_model(folder: Path, location: str, **entries: object) -> Path:
    proto = onnx.TensorProto(name="w", data_type=T.FLOAT, dims=[2])
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(model_of([], [proto]).SerializeToString())
    return path


def test_external_data_is_a_range_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"xxxx" + np.array([1, 2], np.float32).tobytes())
    path = external_model(tmp_path, "w.bin", offset=4, length=8)
    [tensor] = open_model(path).graph.initializers
    assert (tensor.data.offset, tensor.data.length) == (4, 8)
    assert tensor.elements() == (1.0, 2.0)
    [tensor] = open_model(external_model(tmp_path, "w.bin", offset=4)).graph.initializers
    assert tensor.elements() == (1.0, 2.0)


@pytest.mark.parametrize(
    ("location", "entries", "message"),
    [
        ("w.bin", {"offset": 8, "length": 8}, "tensor range beyond the file 'w.bin'"),
        ("w.bin", {"offset": "x"}, "not a number of bytes"),
        ("absent.bin", {}, "is missing"),
        ("../outside.bin", {}, "outside the folder"),
        ("link.bin", {}, "outside the folder"),
        ("", {}, "without a location"),
        ("w\0.bin", {}, "a place that cannot be"),
        ("x" * 5000, {}, "a place that cannot be"),
        ("ring.bin", {}, "a place that cannot be|is missing"),
    ],
)
def test_bad_external_data(
    tmp_path: Path, location: str, entries: dict[str, object], message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(bytes(12))
    (tmp_path / "outside.bin").write_bytes(bytes(8))
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "ring.bin").symlink_to(folder / "ring.bin")
    with pytest.raises(ModelError, match=message) as caught:
        open_model(external_model(folder, location, **entries))
    assert caught.value.code == "import.external"
    assert "tensor 'w'" in str(caught.value)


def test_an_absolute_path_and_bytes_without_a_folder_are_refused(tmp_path: Path) -> None:
    path = external_model(tmp_path, str(tmp_path / "w.bin"))
    (tmp_path / "w.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match="outside the folder"):
        open_model(path)
    with pytest.raises(ModelError, match="only its bytes were given"):
        read_model(MemorySource(path.read_bytes()))


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"", "import.empty", "the file is empty"),
        (b"hello, this is not a model\n", "import.not_onnx", "it is text.*begins 'hello"),
        (b"<!DOCTYPE html>\n<html>", "import.not_onnx", "it is text"),
        (b"   \n", "import.not_onnx", "it is text"),
        ("größe = 3\n".encode() * 50, "import.not_onnx", "it is text"),
        (b"PK\x03\x04" + bytes(50), "import.not_onnx", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "import.not_onnx", "Git LFS pointer"),
        (b"\x08\x08", "import.malformed", "has no graph"),
    ],
)
def test_files_that_are_not_models(data: bytes, code: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read_model(MemorySource(data, "m.onnx"))
    assert caught.value.code == code
    assert "m.onnx" in str(caught.value)


@pytest.mark.parametrize("opset", [1, 5, 29, 99])
def test_opsets_outside_the_range(opset: int) -> None:
    with pytest.raises(ModelError, match=f"found {opset}; allowed: 6 to 28") as caught:
        read(model_of([], opset=opset))
    assert caught.value.code == "import.opset"


def test_sparse_initializers_are_refused() -> None:
    model = model_of([])
    model.graph.sparse_initializer.add()
    with pytest.raises(ModelError, match="sparse"):
        read(model)


def test_model_functions_keep_references_and_defaults() -> None:
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = body.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT)
    reference.ref_attr_name = "slope"
    function = helper.make_function(
        "local",
        "Leaky",
        ["a"],
        ["b"],
        [body],
        [helper.make_opsetid("", 17)],
        attribute_protos=[helper.make_attribute("slope", 0.25)],
    )
    model = model_of([helper.make_node("Leaky", ["x"], ["y"], domain="local")])
    model.functions.append(function)
    found = read(model).functions[("local", "Leaky", "")]
    assert (found.inputs, found.outputs) == (("a",), ("b",))
    assert found.defaults["slope"].value == 0.25
    assert found.nodes[0].attributes["alpha"].reference == "slope"


def sample_bytes() -> bytes:
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="product"),
        helper.make_node("LeakyRelu", ["t"], ["y"], alpha=0.1),
    ]
    return model_of(nodes, [weights]).SerializeToString()


SAMPLE = sample_bytes()
READ_CODES = (
    "import.empty",
    "import.not_onnx",
    "import.truncated",
    "import.malformed",
    "import.opset",
    "import.tensor",
    "import.external",
    "import.data_type",
    "import.sparse",
)


def test_every_truncation_is_one_clear_error() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(ModelError) as caught:
            read_model(MemorySource(SAMPLE[:length], "m.onnx"))
        assert caught.value.code in READ_CODES
        assert "m.onnx" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_half_a_file_says_that_it_is_truncated() -> None:
    with pytest.raises(ModelError, match="truncated") as caught:
        read_model(MemorySource(SAMPLE[: len(SAMPLE) // 2], "m.onnx"))
    assert caught.value.code == "import.truncated"


@settings(max_examples=300)
@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(position: int, value: int) -> None:
    data = bytearray(SAMPLE)
    data[position] = value
    try:
        read_model(MemorySource(bytes(data)))
    except ModelError as error:
        assert error.code in READ_CODES
