"""The parts of the site's build that need neither node nor a browser."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from scripts import build_web


def test_the_wheel_lists_bytecode_and_metadata(tmp_path: Path) -> None:
    # covers R39
    path = tmp_path / "wheel.zip"
    build_web.write_zip(path, build_web.wheel_files())
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = f"rlx_edge-{build_web.version()}.dist-info"
        record = wheel.read(f"{info}/RECORD").decode().splitlines()
        assert b"Name: rlx-edge" in wheel.read(f"{info}/METADATA")
    assert "rlx_edge/compile/page.py" in names and "rlx_edge/ir/core.py" in names
    assert not [name for name in names if name.startswith(("rlx_edge/gateway", "rlx_edge/cli"))]
    assert "rlx_edge/compile/page.pyc,," in record
    assert len(record) == len(names)


def test_equal_content_gives_equal_archives(tmp_path: Path) -> None:
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    build_web.write_zip(one, build_web.wheel_files())
    build_web.write_zip(two, build_web.wheel_files())
    assert one.read_bytes() == two.read_bytes()


def test_both_ways_give_the_same_lock_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # covers R39
    pyodide_lock = pytest.importorskip(
        "pyodide_lock", reason="pyodide-lock is installed for Python 3.12 and later"
    )
    source = tmp_path / "source.zip"
    build_web.write_zip(source, build_web.wheel_files())
    wheel = tmp_path / f"rlx_edge-{build_web.version()}-py3-none-any.whl"
    wheel.write_bytes(source.read_bytes() + b"\0")
    info = {
        "abi_version": "2026_0",
        "arch": "wasm32",
        "platform": "emscripten_5_0_3",
        "python": "3.14.2",
    }
    monkeypatch.setattr(build_web, "PYODIDE", tmp_path)
    shipped = {"info": info, "packages": {}, "tool": {}}
    (tmp_path / "pyodide-lock.json").write_text(json.dumps(shipped))
    assert build_web.lock_by_pyodide(wheel, source) == build_web.lock_by_hand(wheel)
    written = tmp_path / "written.json"
    written.write_text(build_web.lock_text(wheel, source))
    lock = pyodide_lock.PyodideLockSpec.from_json(written)
    assert list(lock.packages) == ["rlx-edge"]
    assert lock.packages["rlx-edge"].sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_what_is_missing_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build_web, "MODULES", tmp_path)
    monkeypatch.setattr(build_web, "PYODIDE", tmp_path / "pyodide")
    monkeypatch.setattr("sys.argv", ["build_web"])
    assert build_web.main() == 1
    assert "pyodide; run `npm ci`" in capsys.readouterr().err
