"""The comparison itself: it must notice what it is there to notice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import Comparison, assert_close, same_bits

REFERENCE = np.array([4.0, -2.0, 0.5], np.float32)


def test_difference_is_relative_to_the_largest_reference() -> None:
    off = REFERENCE + np.float32(3e-5)
    comparison = Comparison()
    comparison.add({"y": off}, {"y": REFERENCE})
    assert comparison.worst == pytest.approx(3e-5 / 4.0, rel=0.01)
    comparison.require()


def test_maximum_is_over_all_inputs() -> None:
    comparison = Comparison()
    comparison.add({"y": REFERENCE}, {"y": REFERENCE})
    small = REFERENCE / 1000
    comparison.add({"y": small + np.float32(2e-5)}, {"y": small})
    assert comparison.inputs == 2
    comparison.require()
    with pytest.raises(AssertionError, match="of max"):
        assert_close(small + np.float32(2e-5), small)


def test_one_bad_output_is_enough() -> None:
    good = {"a": REFERENCE, "b": REFERENCE}
    bad = {"a": REFERENCE, "b": REFERENCE * np.float32(1.001)}
    with pytest.raises(AssertionError, match=r"^b: "):
        assert_close(bad, good)


@pytest.mark.parametrize(
    "actual",
    [
        REFERENCE[:2],
        REFERENCE.astype(np.float64),
        np.array([4.0, np.nan, 0.5], np.float32),
        np.array([4.0, np.inf, 0.5], np.float32),
    ],
)
def test_shape_dtype_and_finiteness_must_agree(actual: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        assert_close(actual, REFERENCE)


def test_nan_and_infinity_must_stand_in_the_same_places() -> None:
    reference = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert_close(reference.copy(), reference)
    with pytest.raises(AssertionError):
        assert_close(reference[[0, 2, 1, 3]], reference)


def test_integers_must_be_equal() -> None:
    with pytest.raises(AssertionError):
        assert_close(np.array([1_000_001]), np.array([1_000_000]))


def test_names_must_agree_and_something_must_be_compared() -> None:
    with pytest.raises(AssertionError):
        assert_close({"a": REFERENCE}, {"b": REFERENCE})
    with pytest.raises(AssertionError, match="nothing was compared"):
        Comparison().require()


def test_same_bits_tells_zeros_apart_and_not_nans() -> None:
    zero, nan = np.array([0.0], np.float32), np.array([np.nan], np.float32)
    other_nan = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert same_bits([zero, nan], [zero, other_nan])
    assert not same_bits([zero], [-zero])
    assert not same_bits([zero], [zero.astype(np.float64)])
    assert not same_bits([zero], [])
