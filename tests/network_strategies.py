"""Random small networks of images, sequences and matrices, with their inputs, for pass tests."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Constant, Function, Module, Value
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.tensor import Tensor, from_values
from rlx_edge.ir.types import F32, tensor_type

SPECIAL = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-40, 3e38, -1.0)
SIZES = {"batch": 2, "w": 5}
"""What the symbols of a network stand for."""


@dataclass
class Network:
    """A module under construction and the values that later operations may read."""

    draw: st.DrawFn
    module: Module
    builder: Builder
    random: random.Random
    pool: list[Value] = field(default_factory=list)

    # ---- constants ---------------------------------------------------------------------------

    def constant(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Value:
        type = tensor_type(F32, *shape)
        numbers = [self.random.uniform(low, high) for _ in range(type.size.value)]
        data = struct.pack(f"<{len(numbers)}f", *numbers)
        digest = bytes_digest(data)
        constant = Constant(digest, type, MemorySource(data), 0, len(data))
        self.module.constants.setdefault(digest, constant)
        return self.builder.op("tensor::const", [], {"digest": digest}, hint="k", type=type)

    def splat(self) -> Value:
        number = self.draw(st.sampled_from((0.0, -0.0, 1.0, 2.0, 0.5, 6.0, -3.0)))
        shape = self.draw(st.sampled_from(((), (1,), (1, 1, 1))))
        return self.builder.splat(number, F32, shape)

    # ---- reading -----------------------------------------------------------------------------

    def pick(self, *ranks: int) -> Value | None:
        """A value of one of ``ranks``, most often the newest, so that chains grow."""
        found = [value for value in self.pool if not ranks or value.type.rank in ranks]
        if not found:
            return None
        return found[-1] if self.draw(st.integers(0, 3)) else self.draw(st.sampled_from(found))

    def like(self, value: Value) -> Value:
        return self.draw(st.sampled_from([v for v in self.pool if v.type == value.type]))

    def op(self, name: str, *operands: Value, **attrs: Attribute) -> Value:
        return self.builder.op(f"rlxc::{name}", list(operands), attrs)


def _window(net: Network, kernel: tuple[int, int]) -> dict[str, Attribute]:
    draw = net.draw
    return {
        "stride": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "padding": tuple(draw(st.integers(0, size - 1)) for size in kernel * 2),
        "dilation": (1, 1),
    }


def _convolution(net: Network) -> Value | None:
    x = net.pick(4)
    if x is None or not x.type.shape[1].is_constant:
        return None
    channels = x.type.shape[1].value
    groups = net.draw(st.sampled_from([g for g in (1, 1, 2, channels) if channels % g == 0]))
    out = net.draw(st.sampled_from([1, 3, 4, 8])) * groups if groups < channels else channels
    kernel = (net.draw(st.integers(1, 3)), net.draw(st.sampled_from((1, 3))))
    attrs = {**_window(net, kernel), "groups": groups}
    weight = net.constant(out, channels // groups, *kernel)
    operands = [x, weight, net.constant(out)] if net.draw(st.booleans()) else [x, weight]
    return net.op("conv2d", *operands, **attrs)


def _pool(net: Network) -> Value | None:
    x = net.pick(4)
    if x is None:
        return None
    attrs = {**_window(net, (2, 2)), "kernel": (2, 2), "ceil_mode": False}
    if net.draw(st.booleans()):
        return net.op("max_pool2d", x, **attrs)
    return net.op("average_pool2d", x, **attrs, count_include_pad=net.draw(st.booleans()))


def _global_pool(net: Network) -> Value | None:
    x = net.pick(4)
    return None if x is None else net.op("global_average_pool", x)


def _batch_norm(net: Network) -> Value | None:
    x = net.pick(3, 4)
    if x is None or not x.type.shape[1].is_constant:
        return None
    count = x.type.shape[1].value
    vectors = [net.constant(count) for _ in range(3)]
    return net.op("batch_norm", x, *vectors, net.constant(count, low=0.1), epsilon=1e-05)


def _unary(net: Network) -> Value | None:
    x = net.pick()
    names = ("relu", "sigmoid", "tanh", "neg", "abs", "hard_swish", "copy", "exp")
    return None if x is None else net.op(net.draw(st.sampled_from(names)), x)


def _binary(net: Network) -> Value | None:
    x = net.pick()
    if x is None:
        return None
    name = net.draw(st.sampled_from(("add", "sub", "mul", "div", "max")))
    kind = net.draw(st.sampled_from(("splat", "same", "channels", "row")))
    if kind == "splat":
        other = net.splat()
    elif kind == "same" or x.type.rank < 3 or not x.type.shape[1].is_constant:
        other = net.like(x)
    elif kind == "channels":
        other = net.constant(x.type.shape[1].value, *(1 for _ in x.type.shape[2:]))
    else:
        other = net.op("reduce_sum", x, axes=(x.type.rank - 1,), keepdims=True)
    operands = (other, x) if net.draw(st.booleans()) else (x, other)
    if operands[0].type.rank > x.type.rank or operands[1].type.rank > x.type.rank:
        return None
    return net.op(name, *operands)


def _gate(net: Network) -> Value | None:
    """A value times a function of itself, or of its mean: activations, squeeze and excite."""
    x = net.pick(4)
    if x is None:
        return None
    y = net.op("global_average_pool", x) if net.draw(st.booleans()) else x
    return net.op("mul", x, net.op("hard_sigmoid", y, alpha=0.2, beta=0.5))


def _power(net: Network) -> Value | None:
    x = net.pick()
    if x is None:
        return None
    exponent = net.builder.splat(net.draw(st.sampled_from((2.0, 3.0, 1.0))), F32)
    return net.op("pow", x, exponent)


def _clip(net: Network) -> Value | None:
    x = net.pick()
    if x is None:
        return None
    bounds = [net.builder.splat(-0.5, F32), net.builder.splat(6.0, F32)]
    return net.op("clip", x, *bounds[: net.draw(st.integers(0, 2))])


def _flatten(net: Network) -> Value | None:
    x = net.pick(3, 4)
    if x is None:
        return None
    n, c, *rest = x.type.shape
    tail = as_dim(1)
    for dim in rest:
        tail = tail * dim
    shape = net.draw(
        st.sampled_from(((n, c, tail), (n, c, as_dim(1), tail), (n, c, tail, as_dim(1))))
    )
    return net.op("reshape", x, shape=shape)


def _transpose(net: Network) -> Value | None:
    x = net.pick(3, 4)
    if x is None:
        return None
    return net.op("transpose", x, perm=tuple(net.draw(st.permutations(range(x.type.rank)))))


def _concat(net: Network) -> Value | None:
    x = net.pick(3, 4)
    return None if x is None else net.op("concat", x, net.like(x), axis=net.draw(st.integers(1, 2)))


def _slice(net: Network) -> Value | None:
    x = net.pick(3, 4)
    if x is None:
        return None
    size = x.type.shape[1]
    start = net.draw(st.sampled_from((as_dim(0), size - 1)))
    return net.op("slice", x, axes=(1,), starts=(start,), ends=(size,), steps=(1,))


def _matmul(net: Network) -> Value | None:
    x = net.pick(3, 4)
    if x is None or not x.type.shape[-1].is_constant or x.type.shape[-1].value > 64:
        return None
    return net.op("matmul", x, net.constant(x.type.shape[-1].value, net.draw(st.integers(1, 5))))


def _normalise(net: Network) -> Value | None:
    x = net.pick(3, 4)
    return None if x is None else net.op("softmax", x, axis=x.type.rank - 1)


def _reduce(net: Network) -> Value | None:
    x = net.pick(4)
    if x is None:
        return None
    axes = net.draw(st.sampled_from(((2, 3), (3,), (1,))))
    return net.op(
        net.draw(st.sampled_from(("reduce_mean", "reduce_max"))), x, axes=axes, keepdims=True
    )


def _resize(net: Network) -> Value | None:
    x = net.pick(4)
    if x is None:
        return None
    n, c, h, w = x.type.shape
    return net.op(
        "resize",
        x,
        sizes=(n, c, h * 2, w),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        scales=(),
    )


def _folded(net: Network) -> Value | None:
    """Arithmetic on constants that meets a value."""
    x = net.pick(3, 4)
    if x is None or not x.type.shape[1].is_constant:
        return None
    count = x.type.shape[1].value
    vector = net.op("div", net.constant(count), net.op("sqrt", net.constant(count, low=0.5)))
    column = net.op(
        "reshape", vector, shape=(as_dim(count), *(as_dim(1) for _ in x.type.shape[2:]))
    )
    expanded = net.op("expand", column, shape=x.type.shape) if net.draw(st.booleans()) else column
    return net.op("mul", x, expanded)


STEPS: tuple[Callable[[Network], Value | None], ...] = (
    _convolution, _convolution, _convolution, _pool, _global_pool, _batch_norm, _unary, _unary,
    _binary, _binary, _gate, _power, _clip, _flatten, _transpose, _concat, _slice, _matmul,
    _normalise, _reduce, _resize, _folded,
)  # fmt: skip
MAX_ELEMENTS = 1500


def _is_small(value: Value) -> bool:
    sizes = [dim.evaluate(SIZES) for dim in value.type.shape]
    count = 1
    for size in sizes:
        count *= size
    return count <= MAX_ELEMENTS and min(sizes, default=1) > 0


@st.composite
def networks(draw: st.DrawFn, max_ops: int = 14) -> Module:
    """A network of one image ``x: f32[batch, C, H, w]`` with one to three outputs."""
    channels = draw(st.sampled_from((1, 3, 4, 8, 16)))
    x = Value("x", tensor_type(F32, "batch", channels, draw(st.integers(1, 4)), "w"))
    function = Function("net", [x], [], [])
    module = Module("net", function)
    rng = random.Random(draw(st.integers(0, 2**16)))
    net = Network(draw, module, Builder(function), rng, [x])
    for _ in range(draw(st.integers(4, max_ops))):
        before = len(function.ops)
        try:
            value = draw(st.sampled_from(STEPS))(net)
        except RlxError:  # the drawn operands do not fit the operator
            value = None
        if value is None or not _is_small(value):
            del function.ops[before:]
            continue
        net.pool.append(value)
    made = net.pool[1:] or net.pool
    function.returns = [made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]
    if len(set(function.returns)) < len(function.returns):
        function.output_names = [f"out{position}" for position in range(len(function.returns))]
    return module


def feeds(
    module: Module, seed: int, special: bool = False, sizes: Mapping[str, int] = SIZES
) -> dict[str, Tensor]:
    """Inputs for ``sizes``: small floats, with ``special`` some that are not."""
    rng = random.Random(seed)
    tensors: dict[str, Tensor] = {}
    for param in module.function.params:
        shape = tuple(dim.evaluate(sizes) for dim in param.type.shape)
        count = 1
        for size in shape:
            count *= size
        numbers = [rng.uniform(-2.0, 2.0) for _ in range(count)]
        if special:
            for place in rng.sample(range(count), min(count, 6)):
                numbers[place] = rng.choice(SPECIAL)
        tensors[param.name] = from_values(F32, shape, numbers)
    return tensors
