"""The CUDA targets: limits and features by architecture, as data.

Figures from the CUDA C++ Programming Guide, table of technical specifications per compute
capability. What the real device and a compiled kernel say (``gpu_workers/cuda``) comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.compile.targets.target import Memory, Rates
from rlx_edge.ir.errors import RlxError

ADDRESS_UNIT = 64
"""Bytes of one step of an address word."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one architecture. Bytes of shared memory, 32-bit registers, threads."""

    shared_block: int
    """Shared memory of a block, beyond which a kernel must ask for more."""
    shared_processor: int
    registers_processor: int
    registers_thread: int
    threads_block: int
    threads_processor: int
    blocks_processor: int
    half: bool = True
    bfloat16: bool = False
    asynchronous_copy: bool = False
    clusters: bool = False
    """Whether workgroups of a cluster can read each other's shared memory."""


ARCHITECTURES: Mapping[str, Limits] = {
    "sm_70": Limits(49152, 98304, 65536, 255, 1024, 2048, 32),
    "sm_75": Limits(49152, 65536, 65536, 255, 1024, 1024, 16),
    "sm_80": Limits(49152, 167936, 65536, 255, 1024, 2048, 32, True, True, True),
    "sm_86": Limits(49152, 102400, 65536, 255, 1024, 1536, 16, True, True, True),
    "sm_89": Limits(49152, 102400, 65536, 255, 1024, 1536, 24, True, True, True),
    "sm_90": Limits(49152, 233472, 65536, 255, 1024, 2048, 32, True, True, True, True),
}


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """CUDA C++ for one architecture, f32 with one rounding an operation.

    A newer architecture than the table knows is served as the newest one in it that is not newer.
    """

    arch: str = "sm_80"

    def __post_init__(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise RlxError(
                "target.arch",
                "unknown CUDA architecture",
                found=self.arch,
                allowed=list(ARCHITECTURES),
            )

    @staticmethod
    def for_capability(major: int, minor: int) -> CudaTarget:
        """The target for a device's compute capability; ``RlxError`` ``target.arch`` below 7.0."""
        wanted = 10 * major + minor
        fitting = [name for name in ARCHITECTURES if int(name[3:]) <= wanted]
        return CudaTarget(fitting[-1] if fitting else f"sm_{wanted}")

    @property
    def kind(self) -> str:
        return "cuda"

    @property
    def name(self) -> str:
        """The record's text, part of a program."""
        return f"cuda-{self.arch}"

    @property
    def limits(self) -> Limits:
        return ARCHITECTURES[self.arch]

    @property
    def memory(self) -> Memory:
        """64-bit addresses from 32-bit words; 32-bit element indices."""
        return Memory(ADDRESS_UNIT << 32, ADDRESS_UNIT, (1 << 31) - 1)

    @property
    def rates(self) -> Rates:
        """Of the order of an A100: segments of some milliseconds."""
        return Rates(template=5000, loop=1000)
