"""Matrix product: `out[s, m, n] = epilogue(sum over k of a[s, m, k] * b[s, k, n])`.

B is packed in panels (`packing.PanelPack`). Slices are batch entries; a stride of 0 broadcasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.templates.driver import Contraction, emit_driver, scratch_bytes
from rlx_edge.compile.templates.finish import BATCH_CHANNEL, ROWS, EmitEpilogue, Output
from rlx_edge.compile.templates.offsets import STRIDE
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES, Tile
from rlx_edge.compile.templates.words import Words
from rlx_edge.ir.dims import Dim, DimLike, as_dim, ceildiv
from rlx_edge.ir.ops.contraction import CHAIN

_CONSTANTS: Mapping[str, int] = {
    "images": 1,
    "height": 1,
    "a_origin": 0,
    "a_image": 0,
    "a_row": 0,
    "out_origin": 0,
    "out_image": 0,
    "out_row": 0,
    "chain": CHAIN,
}


@dataclass(frozen=True, slots=True)
class Matmul:
    """Baked configuration of a matmul kernel.

    Attributes:
        tile: shape and form of the micro-kernels.
        extras: kinds of the extra operands: `full` (rows like the output's), `channel` (one value
            a column), `batch_channel` (one value a slice and column), `scalar`.
    """

    tile: Tile
    extras: tuple[str, ...] = ()

    @property
    def contraction(self) -> Contraction:
        """What the driver is generated for."""
        return Contraction("matmul", self.tile, STRIDE, Output(ROWS, self.extras))

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the buffer slots, in order."""
        return ("out", "a", "b", *self.contraction.output.slots, "scratch")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the words after the slots, in order: counts, then strides in bytes.

        `slices`, `width` (rows m), `n`, `k`; `a_slice`, `a_pixel` (row of A), `a_step` (one k);
        `b_slice` (packed); `out_slice`, `out_pixel` (row of the output); the extras'.
        """
        return (
            *("slices", "width", "n", "k", "a_slice", "a_pixel", "a_step", "b_slice"),
            *("out_slice", "out_pixel"),
            *self.contraction.output.words,
        )

    def arguments(
        self,
        m: DimLike,
        n: DimLike,
        k: DimLike,
        slices: DimLike = 1,
        a_broadcast: bool = False,
        b_broadcast: bool = False,
    ) -> tuple[Dim, ...]:
        """Parameter dims for row-major operands and a row-major output, f32.

        Full extras have the output's shape; per-slice extras are `[slices, 1, n]`.
        """
        m, n, k, slices = (as_dim(value) for value in (m, n, k, slices))
        values: dict[str, Dim] = {
            "slices": slices,
            "width": m,
            "n": n,
            "k": k,
            "a_slice": as_dim(0) if a_broadcast else m * k * 4,
            "a_pixel": k * 4,
            "a_step": as_dim(4),
            "b_slice": as_dim(0) if b_broadcast else packed_bytes(n, k),
            "out_slice": m * n * 4,
            "out_pixel": n * 4,
        }
        for slot, kind in zip(self.contraction.output.slots, self.extras, strict=True):
            values[f"{slot}_slice"] = n * 4 if kind == BATCH_CHANNEL else m * n * 4
            values[f"{slot}_pixel"] = n * 4
        return tuple(values[name] for name in self.parameters)

    def scratch_bytes(self, k: DimLike) -> Dim:
        """Bytes of the scratch buffer."""
        return scratch_bytes(self.contraction, k)

    def emit(self, module: ModuleBuilder, epilogue: EmitEpilogue | None = None) -> int:
        """Function index of the kernel in a module."""
        words = Words((*self.slots, *self.parameters), _CONSTANTS)
        return emit_driver(module, self.contraction, words, epilogue)


def packed_bytes(n: DimLike, k: DimLike) -> Dim:
    """Bytes of one slice of B packed in panels."""
    return ceildiv(n, LANES) * k * VECTOR_BYTES


def flops(m: DimLike, n: DimLike, k: DimLike, slices: DimLike = 1) -> Dim:
    """Floating-point operations: a multiplication and an addition for each element of a chain."""
    return as_dim(slices) * m * n * k * 2
