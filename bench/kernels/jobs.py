"""One measured kernel: a module that runs it once a call, and what its memory holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from bench.reference_loop import build
from rlx_edge.compile.codegen.wasm.encoder import Limits
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.templates.contraction import Tile
from rlx_edge.compile.templates.conv2d import Conv2d, Geometry
from rlx_edge.compile.templates.depthwise import Depthwise
from rlx_edge.compile.templates.finish import BLOCKED, PLANES
from rlx_edge.compile.templates.matmul import Matmul, packed_bytes
from rlx_edge.ir.types import F32, tensor_type

PAGE = 65536
ARGS = 1024
FIRST_BUFFER = 65536
REFERENCE_ITERATIONS = 200_000


@dataclass(frozen=True)
class Job:
    """A module exporting `run()` and `memory`.

    Attributes:
        name: what is measured.
        wasm: the module.
        operations: floating-point operations of one call.
        fills: (byte address, count) of f32 buffers to fill before the run.
        result: (byte address, count) of the f32 result, whose checksum all variants share.
    """

    name: str
    wasm: bytes
    operations: int
    fills: tuple[tuple[int, int], ...] = ()
    result: tuple[int, int] = (0, 0)


def reference(fused: bool) -> Job:
    """The register loop with relaxed multiply-add, or with a multiplication and an addition."""
    wasm, operations = build(fused, REFERENCE_ITERATIONS)
    return Job("FMA loop" if fused else "mul+add loop", wasm, operations)


def relu_bias(body: FunctionBuilder, acc: int, loads: Sequence[Callable[[], None]]) -> None:
    """`relu(acc + bias)`, the usual epilogue."""
    body.local_get(acc)
    loads[0]()
    body.f32x4_add().f32x4_const((0, 0, 0, 0)).f32x4_pmax()


def gemm_job(m: int, n: int, k: int, tile: Tile) -> Job:
    """`[m, k] x [k, n]` with B packed beforehand and no epilogue."""
    kernel = Matmul(tile)
    scratch = kernel.scratch_bytes(k).value
    return _job(
        f"{m}x{n}x{k} {tile.name}",
        kernel.emit,
        [m * n, m * k, packed_bytes(n, k).value // 4, scratch // 4],
        [dim.value for dim in kernel.arguments(m, n, k)],
        2 * m * n * k,
    )


@dataclass(frozen=True)
class Layer:
    """A square convolution with same padding, bias and ReLU."""

    channels: int
    side: int
    kernel: int
    out: int
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        """Text such as `64@56 3x3 64`."""
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return f"{self.channels}@{self.side} {self.kernel}x{self.kernel} {self.out}{stride}"


def conv_job(layer: Layer, tile: Tile) -> Job:
    """One layer in NCHW4c; an input with fewer than four channels is NCHW."""
    half = layer.kernel // 2
    geometry = Geometry(
        (layer.kernel, layer.kernel), (layer.stride,) * 2, (1, 1), (half,) * 4, layer.groups
    )
    out_side = (layer.side + 2 * half - layer.kernel) // layer.stride + 1
    planes = layer.channels % 4 != 0
    x = Physical(
        tensor_type(F32, 1, layer.channels, layer.side, layer.side),
        "NCHW" if planes else "NCHW4c",
        (half,) * 4,
    )
    out = Physical(tensor_type(F32, 1, layer.out, out_side, out_side), "NCHW4c")
    depth = layer.channels // layer.groups
    taps = layer.kernel**2
    operations = 2 * out_side**2 * layer.out * depth * taps
    elements = [out.elements.value, x.elements.value]
    if layer.groups == layer.channels:
        depthwise = Depthwise.for_geometry(geometry, ("channel",))
        return _job(
            f"{layer.name} depthwise",
            lambda module: depthwise.emit(module, relu_bias),
            [
                *elements,
                layer.out * taps,
                layer.out,
                depthwise.scratch_bytes(_kernel(layer)).value // 4,
            ],
            [dim.value for dim in depthwise.arguments(x, out, geometry)],
            operations,
        )
    conv = Conv2d(tile, PLANES if planes else BLOCKED, BLOCKED, ("channel",))
    return _job(
        f"{layer.name} {tile.name}",
        lambda module: conv.emit(module, relu_bias),
        [
            *elements,
            layer.out * depth * taps,
            layer.out,
            conv.scratch_bytes(depth, _kernel(layer)).value // 4,
        ],
        [dim.value for dim in conv.arguments(x, out, geometry)],
        operations,
    )


def _kernel(layer: Layer) -> tuple[int, int]:
    return (layer.kernel, layer.kernel)


def _job(
    name: str,
    emit: Callable[[ModuleBuilder], int],
    elements: Sequence[int],
    parameters: Sequence[int],
    operations: int,
) -> Job:
    """Buffers of `elements` f32 in slot order (output first), the words behind `ARGS`."""
    module = ModuleBuilder(name)
    address, addresses = FIRST_BUFFER, []
    for count in elements:
        addresses.append(address)
        # An odd number of cache lines between buffers keeps them off each other's cache sets.
        address += (4 * count + 63) // 64 * 64 + 64 * 5
    pages = address // PAGE + 1
    module.memory(Limits(pages, pages))
    module.export_memory("memory")
    kernel = emit(module)
    body = module.function("run")
    body.i32_const(ARGS).i32_const(0).call(kernel)
    module.export_function("run", body.index)
    words = [*addresses, *parameters]
    module.data(ARGS, b"".join(word.to_bytes(4, "little", signed=word < 0) for word in words))
    fills = tuple(zip(addresses[1:], elements[1:], strict=True))
    assert prod(elements) > 0
    return Job(name, module.encode(False), operations, fills, (addresses[0], elements[0]))
