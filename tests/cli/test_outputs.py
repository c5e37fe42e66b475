"""Output files: refused early, complete or absent, the same bytes for the same arrays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.cli.outputs import OutputFile, check_output
from rlx_edge.ir.errors import InputError

ARRAYS = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "file": np.array(True)}


def test_arrays_come_back_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    with OutputFile(str(path)) as output:
        output.write_arrays(ARRAYS)
        assert not path.exists()
    with np.load(path) as found:
        assert sorted(found.files) == ["a/b", "file"]
        assert (found["a/b"] == ARRAYS["a/b"]).all() and found["file"].shape == ()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.npz"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_equal_arrays_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with OutputFile(str(tmp_path / name)) as output:
            output.write_arrays(ARRAYS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_text("old")
    with pytest.raises(KeyError), OutputFile(str(path)) as output:
        output.write_arrays(ARRAYS)
        raise KeyError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.npz"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with OutputFile(str(tmp_path / "link")) as output:
        output.write(b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("where", ["no/such/folder/out.npz", ".", "file/out.npz"])
def test_paths_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    for attempt in (lambda p: OutputFile(p).__enter__(), check_output):
        with pytest.raises(InputError) as caught:
            attempt(str(tmp_path / where))
        assert caught.value.code == "cli.output" and str(tmp_path) in str(caught.value)


def test_checking_leaves_nothing(tmp_path: Path) -> None:
    check_output(str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_devices_are_written_to(tmp_path: Path) -> None:
    with OutputFile("/dev/null") as output:
        output.write_arrays(ARRAYS)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device() -> None:
    with pytest.raises(InputError) as caught, OutputFile("/dev/full") as output:
        output.write(bytes(1 << 20))
    assert caught.value.code == "cli.output"
