"""`rlx compile`: the folder, its variants, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlx_edge.cli.compile import alternatives, runtime_files, variant_inputs
from rlx_edge.cli.main import main
from tests.runtime import hand_made

# covers R33 R36

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return hand_made.write_files(tmp_path)[0]


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def one_line(capsys: Capture, *words: str) -> None:
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("rlx: error: ") and found.err.count("\n") == 1
    for word in words:
        assert word in found.err


def test_a_bundle_is_complete_and_the_same_every_time(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    folders = [tmp_path / "a", tmp_path / "deep" / "b"]
    for folder in folders:
        assert main(["compile", str(model), "-o", str(folder)]) == 0
    first, second = map(content, folders)
    assert first == second
    assert {"manifest.json", "index.html", "example.js", "runtime/index.js"} <= set(first)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a", "deep", "hand.program", "hand.rlx", "hand.weights.bin", "hand.weights.json"),
    ]
    text = b"".join(data for name, data in first.items() if not name.startswith("weights-"))
    assert str(tmp_path).encode() not in text and str(ROOT).encode() not in text
    shown = capsys.readouterr().out
    for word in ("runtime", "kernels", "program", "weights", "all but weights", "k < 100"):
        assert word in shown


def test_json_says_what_was_written(model: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "bundle"
    assert main(["compile", str(model), "-o", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["variants"][0]["guards"] == ["k < 100"]
    found = content(folder)
    assert sum(part["bytes"] for part in report["parts"].values()) == sum(map(len, found.values()))
    assert report["parts"]["weights"] == {"files": 1, "bytes": 16}
    small = [size for key, size in report["parts"]["runtime"].items() if key not in ("files",)]
    assert len(small) == 2 and 0 < min(small) < max(small)


def test_an_earlier_bundle_is_replaced_and_nothing_else(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    command = ["compile", str(model), "-o", str(folder)]
    assert main(command) == 0
    (folder / "stale.bin").write_bytes(b"")
    assert main(command) == 0
    assert not (folder / "stale.bin").exists()
    capsys.readouterr()
    (folder / "manifest.json").write_text("{}")
    assert main(command) == 1
    one_line(capsys, str(folder), "something else than a bundle")
    file = tmp_path / "file"
    file.write_text("text")
    assert main(["compile", str(model), "-o", str(file)]) == 1
    one_line(capsys, "something else than a bundle")
    assert main(["compile", str(model), "-o", str(file / "below")]) == 1
    one_line(capsys, "cannot write the bundle")


def test_a_failure_leaves_nothing_behind(tmp_path: Path, capsys: Capture) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_text("These are notes.\n")
    assert main(["compile", str(bad), "-o", str(tmp_path / "bundle")]) == 1
    one_line(capsys, "bad.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.onnx"]


def test_values_make_variants() -> None:
    values = alternatives([{"sr": (1,)}, {"sr": (2,)}, {"sr": (1,)}, {"k": (5, 6)}])
    assert values == {"sr": [(1,), (2,)], "k": [(5, 6)]}
    shapes = alternatives([{"x": (1, 4)}, {"x": (2, 4)}])
    assert list(variant_inputs(values, shapes)) == [
        ({"sr": (1,), "k": (5, 6)}, {"x": (1, 4)}),
        ({"sr": (1,), "k": (5, 6)}, {"x": (2, 4)}),
        ({"sr": (2,), "k": (5, 6)}, {"x": (1, 4)}),
        ({"sr": (2,), "k": (5, 6)}, {"x": (2, 4)}),
    ]
    assert list(variant_inputs({}, {})) == [({}, {})]


def test_equal_variants_are_one(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    flags = ["--value", "k=3", "--value", "k=4"]
    assert main(["compile", str(model), "-o", str(folder), *flags]) == 0
    assert len(json.loads((folder / "manifest.json").read_text())["variants"]) == 1


def test_the_runtime_is_all_there() -> None:
    files = runtime_files()
    scripts = sorted((ROOT / "web" / "runtime").glob("*.js"))
    assert {f"runtime/{path.name}" for path in scripts} <= set(files)
    assert all(name.startswith("runtime/") or "/" not in name for name in files)
    assert not any("test" in name for name in files)
