"""One measured kernel: a module that runs it once a call, and what its memory holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.reference_loop import build
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.codegen.wasm.sections import Limits
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.select import Geometry
from rlx_edge.compile.templates.conv2d import Conv2d
from rlx_edge.compile.templates.depthwise import Depthwise
from rlx_edge.compile.templates.finish import BLOCKED, PLANES
from rlx_edge.compile.templates.matmul import Matmul, packed_bytes
from rlx_edge.compile.templates.packing import ChannelPack, PanelPack, WeightPack
from rlx_edge.compile.templates.tiles import Tile
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.types import F32, tensor_type

PAGE = 65536
ARGS = 1024
PACK_ARGS = 2048
FIRST_BUFFER = 65536
REFERENCE_ITERATIONS = 200_000


@dataclass(frozen=True)
class Job:
    """A module exporting `run()`, `memory` and, to pack the second operand, `prepare()`.

    Attributes:
        name: what is measured.
        wasm: the module.
        operations: floating-point operations of one call.
        fills: (byte address, count) of f32 buffers to fill first.
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
    kernel, pack = Matmul(tile), PanelPack(tile.columns)
    return _job(
        f"{m}x{n}x{k} {tile.name}",
        Launch(kernel.emit, kernel.arguments(m, n, k)),
        Launch(pack.emit, pack.arguments(n, k)),
        [m * n, m * k, packed_bytes(n, k).value // 4],
        kernel.scratch_bytes(k).value,
        k * n,
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
    weights = layer.out * depth * taps
    if layer.groups == layer.channels:
        depthwise = Depthwise.for_geometry(geometry, ("channel",))
        packer = ChannelPack()
        return _job(
            f"{layer.name} depthwise",
            Launch(
                lambda module: depthwise.emit(module, relu_bias),
                depthwise.arguments(x, out, geometry),
            ),
            Launch(packer.emit, packer.arguments(layer.out, geometry.kernel)),
            [*elements, packer.packed_bytes(layer.out, geometry.kernel).value // 4, layer.out],
            depthwise.scratch_bytes(geometry.kernel).value,
            weights,
            operations,
        )
    conv = Conv2d(tile, PLANES if planes else BLOCKED, BLOCKED, ("channel",))
    pack = WeightPack(tile.columns, not planes)
    sizes = (layer.groups, layer.out // layer.groups, depth, geometry.kernel)
    return _job(
        f"{layer.name} {tile.name}",
        Launch(lambda module: conv.emit(module, relu_bias), conv.arguments(x, out, geometry)),
        Launch(pack.emit, pack.arguments(*sizes)),
        [*elements, pack.packed_bytes(*sizes).value // 4, layer.out],
        conv.scratch_bytes(depth, geometry.kernel).value,
        weights,
        operations,
    )


@dataclass(frozen=True)
class Launch:
    """A kernel and its parameters."""

    emit: Callable[[ModuleBuilder], int]
    parameters: tuple[Dim, ...]


def _job(
    name: str,
    kernel: Launch,
    pack: Launch,
    elements: Sequence[int],
    scratch_bytes: int,
    weights: int,
    operations: int,
) -> Job:
    """Buffers of `elements` f32 in slot order (output first), then scratch and plain weights.

    Slot 2 is packed from the weights by `prepare`. The kernel's words lie at `ARGS`.
    """
    module = ModuleBuilder(name)
    sizes = [*elements, scratch_bytes // 4, weights]
    address, addresses = FIRST_BUFFER, []
    for count in sizes:
        addresses.append(address)
        # An odd number of cache lines between buffers keeps them off each other's cache sets.
        address += (4 * count + 63) // 64 * 64 + 64 * 5
    pages = address // PAGE + 1
    module.memory(Limits(pages, pages))
    module.export_memory("memory")
    launches = (
        ("run", kernel, addresses[:-1], ARGS),
        ("prepare", pack, [addresses[2], addresses[-1]], PACK_ARGS),
    )
    for export, launch, slots, at in launches:
        function = launch.emit(module)
        body = module.function(export)
        body.i32_const(at).i32_const(0).call(function)
        module.export_function(export, body.index)
        words = [*slots, *(dim.value for dim in launch.parameters)]
        module.data(at, b"".join(word.to_bytes(4, "little", signed=word < 0) for word in words))
    filled = [number for number in range(1, len(sizes)) if number != 2]
    fills = tuple((addresses[number], sizes[number]) for number in filled)
    return Job(name, module.encode(False), operations, fills, (addresses[0], elements[0]))
