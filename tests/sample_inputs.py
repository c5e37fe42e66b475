"""Seeded inputs for the stored models, in the shapes that each of them takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BATCHES = (1, 4)
# Widths of text lines: the usual one, multiples of 8, and sizes that no tile divides.
WIDTHS = (320, 64, 97, 128, 160, 200, 251, 333, 480, 640)
# Samples in one window of the voice detector, context included, by sampling rate.
WINDOWS = {16000: 576, 8000: 288}


def digits(seed: int, batch: int = 1) -> dict[str, Array]:
    """Images f32 [batch, 1, 8, 8] in 0..1."""
    return {"image": np.random.default_rng(seed).random((batch, 1, 8, 8), dtype=np.float32)}


def orientation(seed: int, batch: int = 1) -> dict[str, Array]:
    """Normalized pages f32 [batch, 3, 224, 224]."""
    return {"x": _normal(seed, (batch, 3, 224, 224))}


def ppocr_rec(seed: int, batch: int = 1, width: int = 320) -> dict[str, Array]:
    """Normalized text lines f32 [batch, 3, 48, width], values in -1..1."""
    rng = np.random.default_rng(seed)
    return {"x": rng.uniform(-1.0, 1.0, (batch, 3, 48, width)).astype(np.float32)}


def silero_vad(seed: int, batch: int = 1, rate: int = 16000) -> dict[str, Array]:
    """A window of sound f32 [batch, samples], the rate i64 [], the state f32 [2, batch, 128]."""
    return {
        "input": _normal(seed, (batch, WINDOWS[rate])) * np.float32(0.1),
        "sr": np.array(rate, np.int64),
        "state": _normal(seed + 1_000_000, (2, batch, 128)) * np.float32(0.5),
    }


def _normal(seed: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
