"""Feeds against declared inputs: what is accepted untouched and what is refused, in which words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from rlx_edge.ir.core import Binding
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.program import Port
from rlx_edge.ir.types import BOOL, F32, I64, tensor_type
from rlx_edge.runtime.feeds import FeedChecker

IMAGE = Port("image", tensor_type(F32, "batch", 3, "height", "2 * height"))
MASK = Port("mask", tensor_type(BOOL, "batch"))
RATE = Port("rate", tensor_type(I64))
CHECKER = FeedChecker([IMAGE, MASK, RATE], [Binding("rate", "rate", 0)])


def good(**changes: object) -> dict[str, object]:
    feeds: dict[str, object] = {
        "image": np.zeros((2, 3, 4, 8), np.float32),
        "mask": np.zeros(2, np.bool_),
        "rate": np.array(16000, np.int64),
    }
    return feeds | changes


def test_symbols_come_from_shapes_and_values() -> None:
    bound = CHECKER.bind(good())
    assert bound.symbols == {"batch": 2, "height": 4, "rate": 16000}


def test_arrays_are_not_copied() -> None:
    image = np.zeros((2, 8, 4, 3), np.float32).transpose(0, 3, 2, 1)
    bound = CHECKER.bind(good(image=image))
    assert bound.arrays[0] is image


def test_numpy_scalars_and_foreign_byte_order_are_arrays() -> None:
    bound = CHECKER.bind(good(rate=np.int64(8000), image=np.zeros((2, 3, 4, 8), ">f4")))
    assert bound.symbols["rate"] == 8000


@pytest.mark.parametrize(
    ("feeds", "code", "words"),
    [
        ([np.zeros(3)], "input.feeds", ("mapping", "list")),
        (good(picture=np.zeros(3)), "input.name", ("'picture'", "image, mask, rate")),
        ({"image": good()["image"]}, "input.name", ("'mask'", "image, mask, rate")),
        (good(image=[[1.0]]), "input.array", ("image", "list", "np.float32")),
        (good(rate=16000), "input.array", ("rate", "int", "np.int64")),
        (good(image=np.zeros((2, 3, 4, 8))), "input.dtype", ("float64", "float32")),
        (good(mask=np.zeros(2, np.uint8)), "input.dtype", ("uint8", "bool")),
        (good(image=np.zeros((2, 3, 4), np.float32)), "input.rank", ("3", "4 (f32[batch")),
        (good(image=np.zeros((2, 1, 4, 8), np.float32)), "input.shape", ("axis 1 must be 3",)),
        (good(image=np.zeros((2, 3, 4, 9), np.float32)), "input.shape", ("axis 3 must be 8",)),
        (good(image=np.zeros((0, 3, 4, 8), np.float32)), "input.shape", ("axis 0 is empty",)),
        (
            good(mask=np.zeros(5, np.bool_)),
            "input.shape",
            ("axis 0 of input 'mask'", "axis 0 of input 'image'", "'batch'", "5 and 2"),
        ),
    ],
)
def test_mistakes(feeds: Mapping[str, object], code: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        CHECKER.bind(feeds)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


def test_a_value_beyond_the_array() -> None:
    checker = FeedChecker([Port("k", tensor_type(I64, "n"))], [Binding("k", "k", 2)])
    with pytest.raises(InputError) as caught:
        checker.bind({"k": np.zeros(2, np.int64)})
    assert caught.value.code == "input.value"


def test_a_size_that_nothing_defines() -> None:
    checker = FeedChecker([Port("x", tensor_type(F32, "2 * n"))])
    with pytest.raises(InputError) as caught:
        checker.bind({"x": np.zeros(4, np.float32)})
    assert caught.value.code == "input.symbol"


def test_a_model_without_inputs() -> None:
    assert FeedChecker([]).bind({}).arrays == ()
    with pytest.raises(InputError, match="allowed: none"):
        FeedChecker([]).bind({"x": np.zeros(1)})
