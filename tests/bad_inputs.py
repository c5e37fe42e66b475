"""Mistakes that users make with files, inputs and devices, as command lines with what is answered.

`cases(folder)` writes the spoiled files into `folder` and returns one row a mistake. Every row
must end with a non-zero exit code and one clear line on stderr; for IR text the line is followed
by the source with a caret.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from rlx_edge.ir.module_file import save_module
from rlx_edge.ir.onnx.importer import import_model
from rlx_edge.model_store import model_path


@dataclass(frozen=True)
class Case:
    """A mistake: the command after `rlx`, and words that the answer must contain."""

    name: str
    command: tuple[str, ...]
    words: tuple[str, ...]
    caret: bool = False


@dataclass(frozen=True)
class Answer:
    """What the command did; `problems` is empty when it behaved."""

    code: int
    stderr: str
    problems: tuple[str, ...]


def cases(folder: Path) -> list[Case]:
    digits = str(model_path("digits"))
    good = f"image={_array(folder, 'image', np.zeros((1, 1, 8, 8), np.float32))}"

    def run(model: str, *inputs: str, device: str = "wasm:0") -> tuple[str, ...]:
        flags = [word for item in inputs for word in ("--input", item)]
        return ("run", model, *flags, "--output", str(folder / "out.npz"), "--device", device)

    truncated = folder / "truncated.onnx"
    truncated.write_bytes(model_path("digits").read_bytes()[:20_000])
    text = folder / "notes.onnx"
    text.write_text("These are notes about a model, and not the model.\n" * 20)
    empty = folder / "empty.onnx"
    empty.write_bytes(b"")
    wide = _array(folder, "wide", np.zeros((1, 3, 8, 8), np.float32))
    flat = _array(folder, "flat", np.zeros((64,), np.float32))
    double = _array(folder, "double", np.zeros((1, 1, 8, 8), np.float64))
    return [
        Case("truncated ONNX", run(str(truncated), good), ("truncated.onnx",)),
        Case("text file as ONNX", run(str(text), good), ("notes.onnx",)),
        Case("empty file as ONNX", run(str(empty), good), ("empty.onnx",)),
        Case("missing file", run(str(folder / "nowhere.onnx"), good), ("nowhere.onnx",)),
        Case("wrong input name", run(digits, good.replace("image", "picture", 1)), ("picture",)),
        Case("missing input", run(digits), ("image",)),
        Case("wrong shape", run(digits, f"image={wide}"), ("image", "3", "1")),
        Case("wrong rank", run(digits, f"image={flat}"), ("image", "64")),
        Case("wrong dtype", run(digits, f"image={double}"), ("image", "f")),
        Case("wrong random shape", run(digits, "image=random:1x2x8x8"), ("image",)),
        Case("missing input file", run(digits, f"image={folder / 'no.npy'}"), ("no.npy",)),
        Case(
            "unsupported operator",
            run(_save(folder, "det", _unary("Det", "linear_algebra")), "x=random:2x3x3"),
            ("Det", "linear_algebra", "17"),
        ),
        Case(
            "operator of an unknown domain",
            run(_save(folder, "custom", _unary("Warp", "bend", "org.example")), "x=random:2x3x3"),
            ("Warp", "bend", "org.example"),
        ),
        Case("corrupted IR text", ("ir", "validate", _bad_ir(folder)), ("error:", "^"), caret=True),
        Case("unknown device", run(digits, good, device="abacus:0"), ("abacus:0", "wasm")),
        Case("malformed device", run(digits, good, device="wasm"), ("wasm",)),
        Case("device that is absent", run(digits, good, device="cuda:99"), ("cuda:99",)),
        Case(
            "tensor range beyond the file",
            run(_short_external(folder), "x=random:1x4"),
            ("weights.bin",),
        ),
        Case(
            "weights of IR text beyond their file",
            ("ir", "run", _short_sidecar(folder), "--input", good),
            ("digits.onnx", "26286"),
        ),
        Case(
            "more memory than WASM has",
            run(_save(folder, "outer", _outer_product()), "x=random:50000x1"),
            ("memory", "4294967296"),
        ),
    ]


def ask(case: Case) -> Answer:
    """Runs the installed `rlx` and says in what respects its answer is not as it should be."""
    command = [str(Path(sys.executable).with_name("rlx")), *case.command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    problems = [f"no '{word}'" for word in case.words if word not in done.stderr]
    if done.returncode == 0:
        problems.append("exit code 0")
    if "Traceback" in done.stderr + done.stdout:
        problems.append("a traceback")
    if not lines or (len(lines) != 1 and not case.caret):
        problems.append(f"{len(lines)} lines")
    return Answer(done.returncode, done.stderr, tuple(problems))


def _array(folder: Path, name: str, value: np.ndarray) -> Path:
    path = folder / f"{name}.npy"
    np.save(path, value)
    return path


def _save(folder: Path, name: str, model: ModelProto) -> str:
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def _model(
    nodes: Sequence[NodeProto],
    x: Sequence[int | str],
    y: Sequence[int | str],
    weights: Sequence[TensorProto] = (),
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "sample",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(y))],
        list(weights),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def _unary(op: str, node: str, domain: str = "") -> ModelProto:
    return _model(
        [helper.make_node(op, ["x"], ["y"], name=node, domain=domain)], ["n", 3, 3], ["n"]
    )


def _outer_product() -> ModelProto:
    """[n, 1] to [n, n] and back to [n, 1]: 10 GB in between at n = 50000."""
    model = _model(
        [
            helper.make_node("Transpose", ["x"], ["row"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "row"], ["square"]),
            helper.make_node("Softmax", ["square"], ["weights"], axis=1),
            helper.make_node("MatMul", ["weights", "x"], ["y"]),
        ],
        ["n", 1],
        ["n", 1],
    )
    checker.check_model(model, full_check=True)
    return model


def _short_external(folder: Path) -> str:
    """A weight of 4 x 4 whose external file ends after half of it."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    set_external_data(weight, "weights.bin", offset=0, length=64)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    (folder / "weights.bin").write_bytes(bytes(32))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return _save(folder, "external", _model([node], ["n", 4], ["n", 4], [weight]))


def _short_sidecar(folder: Path) -> str:
    """IR text of the digits network whose first weight is said to lie behind the model's end."""
    text = folder / "moved.rlx"
    save_module(import_model(model_path("digits")), text)
    sidecar = folder / "moved.weights.json"
    places = json.loads(sidecar.read_text())
    next(iter(places["constants"].values()))["offset"] = 26280
    sidecar.write_text(json.dumps(places))
    return str(text)


def _bad_ir(folder: Path) -> str:
    path = folder / "bad.rlx"
    path.write_text(
        'rlx.module version = "1.0"\n'
        "\n"
        "func @bad(%x: f32[batch, 10]) -> (f32[batch, 10]) {\n"
        "  %y = rlxc::softmax(%x) { axis = ] } : f32[batch, 10]\n"
        "  return %y\n"
        "}\n"
    )
    return str(path)
