"""The commands themselves, in this process, over files made by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.cli.main import main
from rlx_edge.ir.module_file import load_module
from rlx_edge.model_store import MODELS, model_path
from tests.runtime import hand_made

# covers R36

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    hand_made.write_files(tmp_path)
    np.savez(tmp_path / "in.npz", **hand_made.feeds(3, 7))
    return tmp_path


def run_hand(files: Path, *words: str) -> int:
    program = ["--program", str(files / "hand.program")]
    return main(["ir", "run", str(files / "hand.rlx"), *program, *words])


def one_line(capsys: Capture, *words: str) -> None:
    """stderr is one error line with these words, stdout is empty."""
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("rlx: error: ") and found.err.count("\n") == 1
    for word in words:
        assert word in found.err


# ---- rlx ir run ----------------------------------------------------------------------------------


def test_run_writes_outputs(files: Path, capsys: Capture) -> None:
    output = files / "out.npz"
    assert run_hand(files, "--input", str(files / "in.npz"), "--output", str(output)) == 0
    with np.load(output) as found:
        expected = hand_made.expected(hand_made.feeds(3, 7)["x"], 7)
        np.testing.assert_array_equal(found["y"], expected)
    shown = capsys.readouterr().out
    assert "y  float32 3x4" in shown and str(output) in shown


def test_run_reports_json(files: Path, capsys: Capture) -> None:
    words = ["--input", "x=random:5x4", "--input", "k=value:3", "--repeat", "4", "--json"]
    assert run_hand(files, *words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["compile_count"] == 0 and report["plan_count"] == 1
    assert len(report["seconds"]["runs"]) == 4
    assert report["inputs"]["x"] == {"dtype": "float32", "shape": [5, 4]}
    assert report["outputs"]["y"]["shape"] == [5, 4]
    assert report["outputs"]["y"]["min"] < report["outputs"]["y"]["max"]
    assert report["outputs"]["y"]["not_finite"] == 0


def test_infinite_outputs_are_still_json(files: Path, capsys: Capture) -> None:
    np.save(files / "x.npy", np.full((1, 4), np.inf, np.float32))
    words = ["--input", f"x={files / 'x.npy'}", "--input", "k=value:0", "--json"]
    assert run_hand(files, *words) == 0
    found = json.loads(capsys.readouterr().out)["outputs"]["y"]
    assert (found["min"], found["not_finite"]) == (None, 4)


def test_seeds(files: Path) -> None:
    results = []
    for seed in ("1", "1", "2"):
        output = files / "out.npz"
        words = ["--input", "x=random:2x4", "--input", "k=value:1", "--seed", seed]
        assert run_hand(files, *words, "--output", str(output)) == 0
        results.append(output.read_bytes())
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "x=random:2x4"], ("'k'",)),
        (["--input", "picture=random:2x4"], ("'picture'", "x, k")),
        (["--input", "x=random:2x5", "--input", "k=value:1"], ("'x'", "f32[n, 4]")),
        (["--input", "x=random:2x4x1", "--input", "k=value:1"], ("'x'", "f32[n, 4]")),
        (["--input", "x=random:2x4", "--input", "k=value:100"], ("k < 100", "a small k")),
        (["--input", "x=nowhere.npy", "--input", "k=value:1"], ("nowhere.npy",)),
        (["--input", "x=random", "--input", "k=value:1"], ("n", "x=random:SHAPE")),
        (["--device", "abacus:0"], ("abacus:0", "wasm")),
        (["--device", "cuda:99"], ("cuda:99", "no such NVIDIA GPU")),
        (["--output", "no/folder/out.npz"], ("no/folder/out.npz",)),
        (["--output", "."], ("folder",)),
    ],
)
def test_mistakes_of_a_run(
    files: Path,
    words: list[str],
    said: tuple[str, ...],
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files)
    assert run_hand(files, *words) == 1
    one_line(capsys, *said)
    assert not (files / "out.npz").exists()


def test_more_memory_than_webassembly_has(files: Path, capsys: Capture) -> None:
    big = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 28, 4), (0, 0))
    assert big.nbytes == 1 << 32
    from rlx_edge import InferenceSession
    from rlx_edge.ir.errors import LimitError

    with (
        InferenceSession(files / "hand.rlx", program=hand_made.program()) as session,
        pytest.raises(LimitError, match="4294967296"),
    ):
        session.run(None, {"x": big, "k": np.array([1])})
    capsys.readouterr()


# ---- digests -------------------------------------------------------------------------------------


def test_text_that_was_changed_is_refused_with_both_digests(files: Path, capsys: Capture) -> None:
    # covers R10
    text = files / "hand.rlx"
    text.write_text(text.read_text().replace("guard k < 100", "guard k < 101"))
    output = files / "out.npz"
    words = ["--input", str(files / "in.npz"), "--output", str(output)]
    assert run_hand(files, *words) == 1
    found = capsys.readouterr().err
    assert found.count("sha256:") == 2 and hand_made.program().ir_digest in found
    assert not output.exists()


@pytest.mark.parametrize("damage", ["digit", "truncated", "binary", "missing"])
def test_programs_that_are_none(files: Path, damage: str, capsys: Capture) -> None:
    program = files / "hand.program"
    data = program.read_bytes()
    if damage == "digit":
        program.write_bytes(data.replace(b'"resident": 1184', b'"resident": 1185'))
    elif damage == "truncated":
        program.write_bytes(data[: len(data) // 2])
    elif damage == "binary":
        program.write_bytes(b"\xff\xfe" + data)
    else:
        program.unlink()
    assert run_hand(files, "--input", str(files / "in.npz")) == 1
    one_line(capsys, "hand.program")


def test_the_interpreter_takes_no_program(files: Path, capsys: Capture) -> None:
    assert run_hand(files, "--device", "interpreter") == 1
    one_line(capsys, "interpreter")


# ---- import, validate, dump ----------------------------------------------------------------------


def test_import_validate_dump(tmp_path: Path, capsys: Capture) -> None:
    text = tmp_path / "digits.rlx"
    assert main(["ir", "import", str(model_path("digits")), "-o", str(text)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "digits.weights.json"),
        str(text),
    ]
    assert main(["ir", "validate", "--strict", str(text)]) == 0
    shown = capsys.readouterr().out
    assert "valid" in shown and "sha256:" in shown
    assert main(["ir", "dump", str(text)]) == 0
    assert capsys.readouterr().out == text.read_text()
    assert main(["ir", "dump", str(model_path("digits"))]) == 0
    assert capsys.readouterr().out == text.read_text()
    assert main(["ir", "dump", "--format", "json", str(text)]) == 0
    assert json.loads(capsys.readouterr().out)["function"] == "digits"
    picture = tmp_path / "digits.dot"
    assert main(["ir", "dump", "--format", "dot", str(text), "-o", str(picture)]) == 0
    assert picture.read_text().startswith("digraph")


def test_validate_without_weights(files: Path, capsys: Capture) -> None:
    (files / "hand.weights.json").unlink()
    assert main(["ir", "validate", str(files / "hand.rlx")]) == 0
    assert main(["ir", "validate", "--strict", str(files / "hand.rlx")]) == 1
    assert "hand.weights.json" in capsys.readouterr().err


def test_strict_reads_every_weight(files: Path, capsys: Capture) -> None:
    binary = files / "hand.weights.bin"
    binary.write_bytes(bytes(len(binary.read_bytes())))
    assert main(["ir", "validate", str(files / "hand.rlx")]) == 0
    capsys.readouterr()
    assert main(["ir", "validate", "--strict", str(files / "hand.rlx")]) == 1
    one_line(capsys, "sha256:")


def test_findings_come_with_their_lines(files: Path, capsys: Capture) -> None:
    text = files / "hand.rlx"
    text.write_text(text.read_text().replace("rlxc::mul", "rlxc::mull"))
    assert main(["ir", "validate", str(text)]) == 1
    shown = capsys.readouterr().err
    assert "hand.rlx:8:" in shown and "^" in shown and "rlxc::mul" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ir", "import", "nowhere.onnx", "-o", "x.rlx"], ("nowhere.onnx",)),
        (["ir", "import", "hand.rlx", "-o", "no/folder/x.rlx"], ("no/folder",)),
        (["ir", "validate", "nowhere.rlx"], ("nowhere.rlx",)),
        (["ir", "validate", "in.npz"], ("in.npz", "rlx.module")),
        (["ir", "dump", "nowhere.rlx"], ("nowhere.rlx",)),
        (["ir", "dump", "hand.rlx", "-o", "no/folder/x"], ("no/folder",)),
        (["plan", "nowhere.onnx"], ("nowhere.onnx",)),
        (["plan", "hand.rlx", "-o", "no/folder/x"], ("no/folder",)),
        (["plan", "hand.rlx", "--shape", "x"], ("NAME=1x3x48x320",)),
        (["plan", "hand.rlx", *2 * ("--shape", "x=1x3")], ("'x' is given twice",)),
        (["plan", "hand.rlx", *2 * ("--value", "x=1")], ("'x' is given twice",)),
        (["plan", "hand.rlx", "--value", "k=many"], ("k=many", "INTEGER")),
        (["models", "fetch", "gpt"], ("gpt", "digits")),
    ],
)
def test_mistakes(
    files: Path,
    words: list[str],
    said: tuple[str, ...],
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files)
    assert main(words) == 1
    one_line(capsys, *said)


def test_a_value_that_decides_is_asked_for(tmp_path: Path, capsys: Capture) -> None:
    text = tmp_path / "vad.rlx"
    model = str(model_path("silero_vad"))
    assert main(["ir", "import", model, "-o", str(text)]) == 1
    one_line(capsys, "'sr'", "--value")
    assert main(["ir", "import", model, "-o", str(text), "--value", "sr=16000"]) == 0
    assert load_module(text).function.guards


# ---- whole models --------------------------------------------------------------------------------


def test_file_text_program_and_interpreter_give_the_same_bits(
    tmp_path: Path, capsys: Capture
) -> None:
    model, text = str(model_path("digits")), str(tmp_path / "digits.rlx")
    program, seen = str(tmp_path / "digits.program"), []
    assert main(["ir", "import", model, "-o", text]) == 0
    assert main(["plan", text, "-o", program]) == 0
    for command in (
        ["run", model],
        ["run", text],
        ["ir", "run", text],
        ["ir", "run", text, "--program", program],
        ["ir", "run", text, "--device", "interpreter"],
    ):
        output = tmp_path / "out.npz"
        words = ["--input", "image=random:2x1x8x8", "--seed", "3", "--output", str(output)]
        assert main([*command, *words]) == 0
        seen.append(output.read_bytes())
    assert len(set(seen)) == 1
    capsys.readouterr()


def test_a_stride_changed_by_hand_is_refused(tmp_path: Path, capsys: Capture) -> None:
    # covers R10
    text, program = tmp_path / "digits.rlx", str(tmp_path / "digits.program")
    output = tmp_path / "out.npz"
    assert main(["ir", "import", str(model_path("digits")), "-o", str(text)]) == 0
    assert main(["plan", str(text), "-o", program]) == 0
    capsys.readouterr()
    command = ["ir", "run", str(text), "--program", program, "--input", "image=random:1x1x8x8"]
    assert main(command) == 0
    capsys.readouterr()
    lines = text.read_text().splitlines(keepends=True)
    pool = next(number for number, line in enumerate(lines) if "max_pool2d" in line)
    lines[pool] = lines[pool].replace("ceil_mode = false", "ceil_mode = true")
    text.write_text("".join(lines))
    assert main([*command, "--output", str(output)]) == 1
    found = capsys.readouterr().err
    assert found.count("\n") == 1 and len(set(re.findall("sha256:[0-9a-f]{64}", found))) == 2
    assert not output.exists()


def test_plan_shows_memory(tmp_path: Path, capsys: Capture) -> None:
    model = str(model_path("digits"))
    assert main(["plan", model]) == 0
    assert "depends on batch" in capsys.readouterr().out
    assert main(["plan", model, "--explain", "--shape", "image=4x1x8x8"]) == 0
    shown = capsys.readouterr().out
    assert "at batch = 4" in shown and "rlxc::fused_conv2d_relu" in shown
    sizes = []
    for batch in (1, 16):
        assert main(["plan", model, "--json", "--shape", f"image={batch}x1x8x8"]) == 0
        found = json.loads(capsys.readouterr().out)
        sizes.append(found["memory_bytes"])
        assert found["symbols"] == {"batch": batch}
        assert found["guards"] and found["code_bytes"] > 0
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("shape", ["1x2x8x8", "1x8x8"])
def test_plan_refuses_shapes_that_do_not_fit(shape: str, capsys: Capture) -> None:
    assert main(["plan", str(model_path("digits")), "--shape", f"image={shape}"]) == 1
    one_line(capsys, "image", "f32[batch, 1, 8, 8]")


def test_plan_refuses_sizes_beyond_webassembly(capsys: Capture) -> None:
    words = ["--shape", "image=100000000x1x8x8"]
    assert main(["plan", str(model_path("digits")), *words]) == 1
    one_line(capsys, "memory", "4294967296")


def test_placed_text_is_used_as_it_is(tmp_path: Path, capsys: Capture) -> None:
    model, placed = str(model_path("digits")), str(tmp_path / "placed.rlx")
    assert main(["ir", "dump", "--stage", "placed", model, "-o", placed]) == 0
    again = tmp_path / "again.rlx"
    assert main(["ir", "dump", "--stage", "placed", placed, "-o", str(again)]) == 0
    assert again.read_text() == Path(placed).read_text()
    assert main(["ir", "validate", placed]) == 0
    results = []
    for command in (["run", model], ["ir", "run", placed], ["ir", "run", str(again)]):
        output = tmp_path / "out.npz"
        assert main([*command, "--input", "image=random:3x1x8x8", "--output", str(output)]) == 0
        results.append(output.read_bytes())
    assert results[0] == results[1] == results[2]
    capsys.readouterr()


def test_dump_without_weights(files: Path, capsys: Capture) -> None:
    (files / "hand.weights.json").unlink()
    assert main(["ir", "dump", str(files / "hand.rlx")]) == 0
    assert capsys.readouterr().out == hand_made.IR_TEXT


# ---- devices and models --------------------------------------------------------------------------


def test_devices(capsys: Capture) -> None:
    assert main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("wasm:0") and "wasmtime" in lines[0]
    assert any(line.startswith("browser:0") and "not available" in line for line in lines)
    assert main(["devices", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    available = [item["name"] for item in document["devices"] if item["available"]]
    assert available[:2] == ["wasm:0", "cpu:0"] and "vulkan:0" in available
    assert document["cuda_architectures"]["sm_90"]["registers_processor"] == 65536
    (row, *_) = document["vulkan"]["devices"]
    offered = ["fixed", "relaxed", *["fp16"] * bool(row["limits"]["matrices"])]
    assert row["precisions"] == offered
    limits = row["limits"]
    assert limits["invocations"] >= 128 and limits["shared"] >= 16384


def test_vulkan_driver(files: Path, capsys: Capture) -> None:
    command = ["run", str(files / "hand.rlx"), "--input", "x=random:2x2"]
    assert main([*command, "--vulkan-driver", "adreno"]) == 1
    assert "--vulkan-driver is for Vulkan devices" in capsys.readouterr().err


def test_models(capsys: Capture) -> None:
    assert main(["models", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["models"]
    assert [item["name"] for item in found] == list(MODELS)
    assert main(["models", "list"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main(["models", "fetch", "digits"]) == 0
    assert str(model_path("digits")) in capsys.readouterr().out
