"""Buffers and launches: the lowered form of a placed function, before addresses exist."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.kernel import Kernel
from rlx_edge.ir.types import TensorType

PREPARE = "compile"
EXECUTE = "execute"
BORDER = "border"
"""The operator of a launch that writes the border of a result."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage of ``nbytes`` bytes. ``kind``: ``input``, ``constant``, ``value`` or ``scratch``.

    ``source`` is the parameter index of an input or the digest of a constant.
    """

    name: str
    nbytes: Dim
    kind: str
    source: int | str = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel call: buffer numbers in slot order, then argument dims in parameter order."""

    kernel: Kernel
    buffers: tuple[int, ...]
    arguments: tuple[Dim, ...]
    op: str
    value: str
    time: Dim
    """Expected nanoseconds (``cost.py``)."""
    groups: Dim | None = None
    """Workgroups, the word after the kernel's index, for targets that have them."""
    choice: tuple[int, int] | None = None
    """Which choice this is part of, and of which of its ways."""


@dataclass(frozen=True, slots=True)
class LoweredTransfer:
    """Transfer ``edge`` of ``buffer``, in front of launch ``position`` of ``execute``."""

    edge: int
    is_send: bool
    buffer: int
    position: int
    name: str
    type: TensorType


@dataclass(slots=True)
class Lowered:
    """Everything a function needs to run: ``prepare`` once, ``execute`` each time, in order."""

    buffers: list[Buffer] = field(default_factory=list)
    prepare: list[Launch] = field(default_factory=list)
    execute: list[Launch] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    transfers: list[LoweredTransfer] = field(default_factory=list)
    choices: int = 0
    """How many operations have several ways to their result."""

    def add_buffer(self, buffer: Buffer) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def stage(self, phase: str) -> list[Launch]:
        return self.prepare if phase == PREPARE else self.execute
