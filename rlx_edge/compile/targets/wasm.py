"""The WebAssembly target: what the emitter may use and for which engine it tunes."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.targets.target import Memory, Rates
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.plan import MEMORY_LIMIT

STYLES = ("v8", "cranelift")


@dataclass(frozen=True, slots=True)
class WasmTarget:
    """Fixed-width SIMD on one thread; ``style`` is the engine family that kernels are tuned for.

    They differ in the tiles of contractions (``templates/tiles.py``). Both give the same bits.
    """

    style: str = "cranelift"

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise RlxError("target.style", "unknown emit style", found=self.style, allowed=STYLES)

    @property
    def kind(self) -> str:
        return "wasm"

    @property
    def memory(self) -> Memory:
        """Byte addresses of a 32-bit memory."""
        return Memory(MEMORY_LIMIT)

    @property
    def rates(self) -> Rates:
        """Seen on one core of a small server."""
        return Rates(template=30, loop=2)

    @property
    def name(self) -> str:
        """The record's text, part of the kernels digest."""
        return f"wasm32-simd128-{self.style}"
