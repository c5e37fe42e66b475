"""The committed digits network recognizes held-out digits."""

from __future__ import annotations

import numpy as np

from rlx_edge.model_store import DATA, model_path
from scripts.train_digits import SAMPLES, load_split
from tests.oracles import Oracle


def test_accuracy_on_held_out_images() -> None:
    split = load_split()
    result = Oracle(model_path("digits")).run({"image": split.test_images})["probabilities"]
    assert result.shape == (len(split.test_labels), 10)
    np.testing.assert_allclose(result.sum(axis=1), 1.0, atol=1e-5)
    assert (result.argmax(axis=1) == split.test_labels).mean() >= 0.97


def test_samples_are_held_out_images() -> None:
    split = load_split()
    with np.load(DATA / "digits_samples.npz") as samples:
        np.testing.assert_array_equal(samples["image"], split.test_images[:SAMPLES])
        np.testing.assert_array_equal(samples["label"], split.test_labels[:SAMPLES])
