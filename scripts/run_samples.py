"""Runs two models on sample inputs and writes down what the compiler made of them.

Prints, for each model, the class of every sample with its probability, the time per run, and
where the IR text, the DOT picture and the plan lie. Ends with 1 when a sample that has a known
answer gets another one.

usage: python scripts/run_samples.py [--output DIR] [--device DEVICE]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession, RlxError
from rlx_edge.model_store import DATA, MODELS, model_path

Array = npt.NDArray[Any]

# Of each colour channel, as the orientation network was trained.
CHANNEL_MEAN = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
CHANNEL_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)

RUNS = 5


@dataclass(frozen=True)
class Sample:
    """A batch for the model's only input, the names of its classes, and the right answers."""

    model: str
    batch: Array
    classes: tuple[str, ...]
    answers: tuple[int, ...]


def orientation() -> Sample:
    """One page of text, upright and turned by a quarter three times."""
    with np.load(DATA / "page_sample.npz") as file:
        page = file["page"].astype(np.float32) / np.float32(255)
    turned = [np.rot90(page, -quarter) for quarter in range(4)]
    batch = np.stack([(image - CHANNEL_MEAN) / CHANNEL_DEVIATION for image in turned])
    return Sample("orientation", batch, ("0°", "90°", "180°", "270°"), (0, 1, 2, 3))


def digits() -> Sample:
    """Held-out handwritten digits, with the labels that people gave them."""
    with np.load(DATA / "digits_samples.npz") as file:
        answers = tuple(int(label) for label in file["label"])
        return Sample("digits", file["image"], tuple("0123456789"), answers)


def run_sample(sample: Sample, device: str) -> int:
    """Runs and prints one sample; returns how many of its answers were wrong."""
    started = time.perf_counter()
    session = InferenceSession(str(model_path(sample.model)), providers=[device])
    compiled = time.perf_counter() - started
    [name] = [value.name for value in session.get_inputs()]
    feeds = {name: sample.batch}
    [probabilities] = session.run(None, feeds)
    seconds = statistics.median(timed(lambda: session.run(None, feeds)) for _ in range(RUNS))
    wrong = 0
    for row, answer in zip(probabilities, sample.answers, strict=True):
        guess = int(row.argmax())
        wrong += guess != answer
        note = "" if guess == answer else f"   (expected {sample.classes[answer]})"
        print(f"  {sample.classes[guess]:>5}  p = {row[guess]:.3f}{note}")
    print(f"  session ready after {compiled:.2f} s")
    print(f"  {seconds * 1e3:.2f} ms a run for a batch of {len(sample.batch)}, median of {RUNS}")
    return wrong


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def write_documents(name: str, folder: Path) -> None:
    """IR text, DOT picture and plan, each made by the command that a user would type."""
    folder.mkdir(parents=True, exist_ok=True)
    model = str(model_path(name))
    text, picture, plan = (folder / f"{name}.{end}" for end in ("rlx", "dot", "plan"))
    rlx("ir", "import", model, "-o", str(text))
    picture.write_text(rlx("ir", "dump", "--format", "dot", str(text)), encoding="utf-8")
    rlx("plan", model, "-o", str(plan))
    for title, path in (("IR text", text), ("picture", picture), ("plan", plan)):
        print(f"  {title:8} {path} ({path.stat().st_size} bytes)")


def rlx(*arguments: str) -> str:
    """Runs the command line of this installation and returns what it printed."""
    command = [str(Path(sys.executable).with_name("rlx")), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"rlx {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("build/samples"))
    parser.add_argument("--device", default="wasm:0")
    options = parser.parse_args(arguments)
    wrong = 0
    for sample in (orientation(), digits()):
        print(f"{sample.model}: {MODELS[sample.model].title}, on {options.device}")
        try:
            wrong += run_sample(sample, options.device)
        except RlxError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        write_documents(sample.model, options.output)
    if wrong:
        print(f"error: {wrong} samples got another class than they should", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
