"""A compiled program: everything an executor needs, bound to its IR by digests.

``Program`` = code of one target + plan program + command lists + what to upload. It holds no
weights: ``uploads`` name constants by digest and the byte address they are copied to.

A launch record in the parameter block is the index of a kernel, for targets with workgroups their
number, then the kernel's words: an address a buffer, in the target's address unit, and the
arguments. A WebAssembly module walks the records itself; for other code the host does, and
``entries`` say what it needs to know of each kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.ir.commands import Command
from rlx_edge.ir.core import Binding, Guard
from rlx_edge.ir.plan import PlanProgram
from rlx_edge.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Port:
    """A graph input or output: public name and (symbolic) type."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class EdgePort:
    """This device's end of a transfer: the edge, which end, the value's name and type."""

    edge: int
    is_send: bool
    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Upload:
    """Constant ``digest`` (``nbytes`` bytes) is copied to byte ``address`` before ``prepare``."""

    digest: str
    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """What launch ``i`` is, for traces and explanations: op name, result value, kernel index.

    ``waits``: whether it needs what launches before it left behind; else it may run beside all
    that were started since the last one that waits.
    """

    op: str
    value: str
    kernel: int
    phase: str
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel of code that the host launches: its name there, ``threads`` a workgroup, ``words``
    of its record after kernel index and workgroup count. ``library`` names a routine of the host's
    instead, and what it may do: ``cublas:tf32``, or ``cudnn:tf32:3x3:2x2:1x1:2:5`` with taps,
    strides, dilations, the place of the weights' address and the number of addresses."""

    name: str
    threads: int
    words: int
    library: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Launches of which a unit runs one way: way i is ``starts[i]`` … ``starts[i + 1] - 1``.

    All ways fill the same buffers from the same buffers. Way 0 is kernels of the code alone.
    ``key`` is the same where ways are the same but for sizes, which are the last ``sizes`` words
    of each record: what is measured once serves again.
    """

    starts: tuple[int, ...]
    key: str
    sizes: int

    def way(self, number: int) -> range:
        """The launches of one way."""
        return range(self.starts[number], self.starts[number + 1])

    @property
    def ways(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True)
class Program:
    """``code`` is a WebAssembly module whose ``run(block, begin, end, thread)`` executes launches
    (see ``kernel.py``), or what ``target`` says, with one of ``entries`` for each kernel.

    ``prepare`` runs once after the uploads (phase ``compile``), ``execute`` once an inference.
    """

    ir_digest: str
    """Of the placed IR that was lowered."""
    source_digest: str
    """Of the IR that was given to the compiler: the same where that was placed already."""
    target: str
    kernels_digest: str
    code: bytes
    plan: PlanProgram
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    uploads: tuple[Upload, ...]
    prepare: tuple[Command, ...]
    execute: tuple[Command, ...]
    launches: tuple[LaunchInfo, ...]
    bindings: tuple[Binding, ...]
    guards: tuple[Guard, ...]
    resident: int
    """Bytes at the bottom of memory that survive between runs: block, weights, packed weights."""
    entries: tuple[Entry, ...] = ()
    device: str = ""
    """The role whose part of the IR this is; ``""`` where it is all of it."""
    graph_digest: str = ""
    """Of the task graph that a part belongs to."""
    choices: tuple[Choice, ...] = ()
    """Launches between which the unit decides; none where all values are defined to the bit."""
    transfers: tuple[EdgePort, ...] = ()
    """What a part exchanges with others, in the order of the IR."""
