"""From the words of ``--input`` to arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlx_edge.cli.inputs import complete, read_specs
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.program import Port
from rlx_edge.ir.types import BOOL, F16, F32, I64, tensor_type

PORTS = (
    Port("image", tensor_type(F32, "batch", 3, 8)),
    Port("mask", tensor_type(BOOL, "batch")),
    Port("rate", tensor_type(I64)),
    Port("size", tensor_type(I64, 2)),
    Port("half", tensor_type(F16, 2, "2 * batch")),
)


def feeds(*specs: str, seed: int = 0) -> dict[str, np.ndarray]:
    return complete(read_specs(specs), PORTS, seed)


def test_files(tmp_path: Path) -> None:
    image, mask = np.ones((2, 3, 8), np.float32), np.zeros(2, np.bool_)
    np.save(tmp_path / "a.npy", image)
    np.savez(tmp_path / "one.npz", whatever=mask)
    np.savez(tmp_path / "all.npz", image=image, mask=mask)
    found = feeds(f"image={tmp_path}/a.npy", f"mask={tmp_path}/one.npz")
    assert found["image"].shape == (2, 3, 8) and found["mask"].dtype == np.bool_
    assert list(feeds(f"{tmp_path}/all.npz")) == ["image", "mask"]
    assert feeds(f"mask={tmp_path}/all.npz")["mask"].shape == (2,)


def test_random_follows_the_seed_and_not_the_order() -> None:
    one = feeds("image=random:2x3x8", "half=random:2x4")
    two = feeds("half=random:2x4", "image=random:2x3x8")
    assert (one["image"] == two["image"]).all() and (one["half"] == two["half"]).all()
    assert one["image"].dtype == np.float32 and one["half"].dtype == np.float16
    assert not (one["image"] == feeds("image=random:2x3x8", seed=1)["image"]).any()


def test_random_takes_open_sizes_from_other_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((5, 3, 8), np.float32))
    found = feeds(f"image={tmp_path}/a.npy", "mask=random", "half=random", "rate=random")
    assert found["mask"].shape == (5,) and found["mask"].dtype == np.bool_
    assert found["half"].shape == (2, 10)
    assert found["rate"].shape == () and found["rate"].item() in (0, 1)


def test_values() -> None:
    assert feeds("rate=value:16000")["rate"].shape == ()
    assert feeds("size=value:3,-4")["size"].tolist() == [3, -4]
    assert feeds("mask=value:0,1")["mask"].tolist() == [False, True]
    assert feeds("half=value:0.5,2")["half"].dtype == np.float16


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ("image", "cli.input", ("'image'", "NAME=FILE.npy")),
        ("=x.npy", "cli.input", ("'=x.npy'",)),
        ("image=", "cli.input", ("'image='",)),
        ("image=" + "x" * 300, "cli.input", ("NAME=FILE.npy",)),
        ("rate=16000", "cli.input", ("'rate=16000'", "NAME=value:V,V,...")),
        ("image=nowhere.npy", "cli.file", ("nowhere.npy", "no such file")),
        ("nowhere.npz", "cli.file", ("nowhere.npz", "no such file")),
        ("image=random:2xx8", "cli.shape", ("image=random:2xx8", "1x3x48x320")),
        ("image=random:9999999999999999999999x3x8", "cli.random", ("no memory", "'image'")),
        ("image=random:0x3x8", "cli.shape", ("image=random:0x3x8",)),
        ("image=random", "cli.random", ("batch", "image=random:SHAPE", "f32[batch, 3, 8]")),
        ("picture=random:2", "input.name", ("'picture'", "image, mask")),
        ("rate=value:16k", "cli.value", ("rate=value:16k", "i64")),
        ("rate=value:99999999999999999999", "cli.value", ("i64",)),
        ("mask=value:2", "cli.value", ("0 and 1",)),
    ],
)
def test_mistakes(
    spec: str, code: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        feeds(spec)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


def test_an_input_given_twice() -> None:
    with pytest.raises(InputError, match="'image' is given twice"):
        feeds("image=random:1x3x8", "image=random:2x3x8")


def test_an_archive_without_the_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
    with pytest.raises(InputError) as caught:
        feeds(f"image={tmp_path}/two.npz")
    assert caught.value.code == "cli.npz"
    assert "'image'" in str(caught.value) and "a, b" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no numpy file", b"PK\x03\x04 no archive"])
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_damaged_files(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        feeds(f"image={tmp_path / name}")
    assert caught.value.code == "cli.file" and name in str(caught.value)


def test_a_truncated_archive_and_python_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.savez(tmp_path / "whole.npz", image=np.zeros((64, 64)))
    np.save(tmp_path / "whole.npy", np.zeros((64, 64)))
    for name in ("whole.npz", "whole.npy"):
        (tmp_path / f"cut_{name}").write_bytes((tmp_path / name).read_bytes()[:500])
    for name in ("objects.npy", "cut_whole.npz", "cut_whole.npy"):
        with pytest.raises(InputError) as caught:
            feeds(f"image={tmp_path / name}")
        assert caught.value.code == "cli.file"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        feeds(f"image={tmp_path}")
    assert caught.value.code == "cli.file"


def test_an_array_file_needs_a_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2))
    with pytest.raises(InputError, match="needs the name of its input"):
        feeds(str(tmp_path / "a.npy"))
