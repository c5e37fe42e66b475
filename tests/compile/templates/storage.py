"""Numpy arrays to and from the storage that `Physical` describes, written out independently."""

from __future__ import annotations

import numpy as np

from rlx_edge.compile.physical import Physical


def store(array: np.ndarray, stored: Physical) -> np.ndarray:
    """The buffer of an NCHW array: blocks of four channels if blocked, border and pads +0."""
    top, left, bottom, right = stored.border
    padded = np.pad(array, ((0, 0), (0, 0), (top, bottom), (left, right)))
    if not stored.is_blocked:
        return padded
    images, channels, height, width = padded.shape
    blocks = -(-channels // 4)
    full = np.zeros((images, blocks * 4, height, width), np.float32)
    full[:, :channels] = padded
    blocked = full.reshape(images, blocks, 4, height, width).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocked)


def load_stored(buffer: np.ndarray, stored: Physical) -> tuple[np.ndarray, np.ndarray]:
    """The NCHW array of a buffer, and what the buffer holds outside it (0 inside)."""
    top, left, bottom, right = stored.border
    rest = buffer.copy()
    if stored.is_blocked:
        images, blocks, height, width, _ = buffer.shape
        rest = rest.transpose(0, 1, 4, 2, 3).reshape(images, blocks * 4, height, width)
    channels = stored.type.shape[1].value
    inside = (
        slice(None),
        slice(0, channels),
        slice(top, rest.shape[2] - bottom),
        slice(left, rest.shape[3] - right),
    )
    array = rest[inside].copy()
    rest[inside] = 0
    return array, rest
