"""Definitions to loop nests: layouts, borders, merging and splitting keep what is computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.loops import LoweredNest, border_kernels, fill_kernels, lower_expression
from rlx_edge.compile.physical import Physical
from rlx_edge.ir.dims import ZERO, Dim, dim_max, dim_min, symbol
from rlx_edge.ir.expression import Expr, index, load, select, walk
from rlx_edge.ir.kernel import LoopKernel, generalize
from rlx_edge.ir.types import F32, TensorType, tensor_type
from tests.kernel_oracle import evaluate_kernel

LAYOUTS = ("NCHW", "NCHW4c")
BORDERS = st.tuples(*[st.integers(0, 2)] * 4)
I = tuple(symbol(f"_i{axis}") for axis in range(4))  # noqa: E741


def store(array: np.ndarray, storage: Physical, fill: float) -> np.ndarray:
    """The bytes of a value in its layout; border and pad lanes hold `fill`."""
    extents = tuple(dim.value for dim in storage.extents)
    out = np.full(extents, fill, np.float32)
    top, left = storage.border[:2]
    _, c, h, w = array.shape
    for channel in range(c):
        plane = array[:, channel]
        if storage.is_blocked:
            out[:, channel // 4, top : top + h, left : left + w, channel % 4] = plane
        else:
            out[:, channel, top : top + h, left : left + w] = plane
    return out


def run(nests: list[LoweredNest], out: np.ndarray, operands: list[np.ndarray]) -> np.ndarray:
    """All nests in order, each through its generic kernel with the sizes put back."""
    for nest in nests:
        generic, arguments = generalize(nest.kernel)
        sizes: dict[str, Dim | int | str] = {f"p{i}": dim for i, dim in enumerate(arguments)}
        concrete = substitute_kernel(generic, sizes)
        out = evaluate_kernel(concrete, [out, *(operands[slot] for slot in nest.slots)])
    return out


def substitute_kernel(kernel: LoopKernel, sizes: dict[str, Dim | int | str]) -> LoopKernel:
    from dataclasses import replace

    from rlx_edge.ir.expression import substitute

    return replace(
        kernel,
        loops=tuple(replace(loop, extent=loop.extent.substitute(sizes)) for loop in kernel.loops),
        offset=kernel.offset.substitute(sizes),
        value=substitute(kernel.value, sizes),
    )


@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4)),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 3),
    borders=st.tuples(BORDERS, BORDERS, BORDERS),
)
def test_any_layouts_and_borders_give_the_same_elements(
    shape: tuple[int, int, int, int],
    layouts: tuple[str, str, str],
    borders: tuple[tuple[int, int, int, int], ...],
) -> None:
    """x * scale + y with scale [N, C, 1, 1]: pad lanes become +0, the border stays as it was."""
    kind = tensor_type(F32, *shape)
    result = Physical(kind, layouts[0], borders[0])
    x, y = (Physical(kind, layouts[k], borders[k]) for k in (1, 2))
    scale = Physical(tensor_type(F32, *shape[:2], 1, 1))
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
    factors = rng.standard_normal((*shape[:2], 1, 1)).astype(np.float32)
    value = load(0, F32, I) * load(1, F32, (*I[:2], ZERO, ZERO)) + load(2, F32, I)
    stored = (store(arrays[0], x, np.inf), factors, store(arrays[1], y, np.inf))
    # Pad lanes may read three elements past an operand; every buffer has that slack.
    slack = np.full(3, np.nan, np.float32)
    operands = [np.concatenate([array.reshape(-1), slack]) for array in stored]
    before = np.full(tuple(dim.value for dim in result.extents), 7, np.float32)
    after = run(lower_expression(value, result, [x, scale, y]), before, operands)
    expected = store(arrays[0] * factors + arrays[1], result, 7)
    if result.is_blocked and shape[1] % 4:
        top, left = result.border[:2]
        expected[:, -1, top : top + shape[2], left : left + shape[3], shape[1] % 4 :] = 0
    np.testing.assert_array_equal(after, expected)


def test_contiguous_loops_and_axes_of_one_are_merged() -> None:
    kind = tensor_type(F32, "n", 1, "h", "w")
    (nest,) = lower_expression(load(0, F32, I) + 1.0, Physical(kind), [Physical(kind)])
    assert [str(loop.extent) for loop in nest.kernel.loops] == ["h * n * w"]
    bordered = Physical(kind, border=(1, 1, 1, 1))
    (nest,) = lower_expression(load(0, F32, I) + 1.0, bordered, [Physical(kind)])
    assert [str(loop.extent) for loop in nest.kernel.loops] == ["n", "h", "w"]


def test_channels_from_blocks_are_walked_as_blocks_and_lanes() -> None:
    kind = tensor_type(F32, "n", 8, "h", "w")
    (nest,) = lower_expression(load(0, F32, I), Physical(kind), [Physical(kind, "NCHW4c")])
    assert [str(loop.extent) for loop in nest.kernel.loops] == ["2 * n", "4", "h * w"]
    dims = [node.attr for node in walk(nest.kernel.value) if node.op == "index"]
    assert [str(dim) for dim in dims] == ["4 * _v0 * h * w + _v1 + 4 * _v2"]


def concatenation(at: Dim, first: TensorType, second: TensorType) -> Expr:
    """[first, second] along the last axis, reads clamped into their operand."""
    split = first.shape[1]
    return select(
        index(at) < index(split),
        load(0, F32, (I[0], dim_max(dim_min(at, split - 1), 0))),
        load(1, F32, (I[0], dim_max(dim_min(at - split, second.shape[1] - 1), 0))),
    )


def test_a_condition_on_a_loop_variable_splits_the_nest() -> None:
    first, second = tensor_type(F32, "n", "a"), tensor_type(F32, "n", 5)
    result = Physical(tensor_type(F32, "n", "a + 5"))
    nests = lower_expression(
        concatenation(I[1], first, second), result, [Physical(first), Physical(second)]
    )
    assert [nest.slots for nest in nests] == [(0,), (1,)]
    for nest in nests:
        kinds = {node.op for node in walk(nest.kernel.value)}
        assert kinds == {"load", "index"}
        assert not any(
            atom.op in ("max", "min")
            for node in walk(nest.kernel.value)
            if node.op == "index" and isinstance(node.attr, Dim)
            for mono, _ in node.attr.terms
            for atom in mono
        )


@given(n=st.integers(1, 3), a=st.integers(1, 6), b=st.integers(1, 6))
def test_split_nests_write_every_element(n: int, a: int, b: int) -> None:
    first, second = tensor_type(F32, n, a), tensor_type(F32, n, b)
    result = Physical(tensor_type(F32, n, a + b))
    x = np.arange(n * a, dtype=np.float32).reshape(n, a)
    y = 100 + np.arange(n * b, dtype=np.float32).reshape(n, b)
    nests = lower_expression(
        concatenation(I[1], first, second), result, [Physical(first), Physical(second)]
    )
    out = run(nests, np.full((n, a + b), np.nan, np.float32), [x, y])
    np.testing.assert_array_equal(out, np.concatenate([x, y], axis=1))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@given(border=BORDERS, h=st.integers(1, 4), w=st.integers(1, 4), c=st.integers(1, 6))
def test_border_kernels_write_zero_there_and_nowhere_else(
    layout: str, merged: bool, border: tuple[int, int, int, int], h: int, w: int, c: int
) -> None:
    storage = Physical(tensor_type(F32, 2, c, h, w), layout, border)
    before = store(np.full((2, c, h, w), 7, np.float32), storage, 7)
    after = run(border_kernels(storage, merged), before, [])
    top, left = border[:2]
    inside = np.zeros(before.shape, bool)
    inside[:, :, top : top + h, left : left + w] = True
    np.testing.assert_array_equal(after, np.where(inside, before, 0))


def test_fills_cover_the_value() -> None:
    storage = Physical(tensor_type(F32, 2, 5, 2, 3), "NCHW4c")
    after = run(fill_kernels(storage, 2.5), np.full((2, 2, 2, 3, 4), 9, np.float32), [])
    expected = store(np.full((2, 5, 2, 3), 2.5, np.float32), storage, 0)
    np.testing.assert_array_equal(after, expected)


def test_equal_computations_of_other_sizes_share_a_kernel() -> None:
    def kernel(*shape: int | str) -> LoopKernel:
        kind = tensor_type(F32, *shape)
        blocked = Physical(kind, "NCHW4c", (1, 1, 1, 1))
        value = load(0, F32, I) * load(0, F32, I)
        (nest,) = lower_expression(value, blocked, [Physical(kind, "NCHW4c")])
        return generalize(nest.kernel)[0]

    assert kernel(1, 16, 7, 9) == kernel("n", 64, "h", "w") == kernel("n", 32, 56, 14)
