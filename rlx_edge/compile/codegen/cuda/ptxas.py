"""What ``ptxas -v`` says of compiled kernels, and what a processor can hold of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlx_edge.compile.targets.cuda import Limits
from rlx_edge.ir.program import Entry

WARP = 32
REGISTER_UNIT = 256
"""Registers are handed out to a warp in steps of so many."""
SHARED_UNIT = 128
SHARED_RESERVED = 1024
"""Bytes of shared memory that the system takes for a block (compute capability 8.0 on)."""
LEAST_OCCUPANCY = 1 / 8
"""Below this share of resident threads nothing hides the latency of memory."""
ARGUMENT_BYTES = 4096
"""Of a kernel's parameters: the arena's base and the words of its record."""


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """Of one kernel: registers a thread, bytes of its stack frame and of what it spills, static
    shared memory of a block."""

    name: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    def excess(self, limits: Limits, threads: int) -> str:
        """Why the kernel is not fit for these limits, empty where it is."""
        if self.registers > limits.registers_thread:
            return f"needs {self.registers} registers a thread of {limits.registers_thread}"
        if threads > limits.threads_block:
            return f"needs {threads} threads a block of {limits.threads_block}"
        if self.spill_stores or self.spill_loads:
            return f"spills {self.spill_stores} bytes of registers"
        if self.shared > limits.shared_block:
            return f"needs {self.shared} bytes of shared memory of {limits.shared_block}"
        if self.registers * threads > limits.registers_processor:
            return f"needs {self.registers * threads} registers of {limits.registers_processor}"
        if self.occupancy(limits, threads) < LEAST_OCCUPANCY:
            occupancy = self.occupancy(limits, threads)
            return (
                f"fills {occupancy:.1%} of a processor's threads, less than {LEAST_OCCUPANCY:.1%}"
            )
        return ""

    def blocks(self, limits: Limits, threads: int) -> int:
        """Blocks that a processor holds at a time."""
        warps = -(-threads // WARP)
        registers = -(-self.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT * warps
        shared = -(-self.shared // SHARED_UNIT) * SHARED_UNIT + SHARED_RESERVED
        return min(
            limits.blocks_processor,
            limits.threads_processor // (warps * WARP),
            limits.registers_processor // max(registers, 1),
            limits.shared_processor // shared,
        )

    def occupancy(self, limits: Limits, threads: int) -> float:
        """Resident threads as a share of what the processor can hold."""
        return self.blocks(limits, threads) * threads / limits.threads_processor


_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '[^']+'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_ptxas(text: str) -> tuple[KernelFigures, ...]:
    """The figures of every entry in the output of ``nvcc -Xptxas -v`` or of NVRTC with
    ``--ptxas-options=-v``, in the order of the text."""
    return tuple(_figures(text))


def _figures(text: str) -> Iterator[KernelFigures]:
    name, stack = "", (0, 0, 0)
    for line in text.splitlines():
        entry, frame, used = _ENTRY.search(line), _STACK.search(line), _USED.search(line)
        if entry:
            name, stack = entry[1], (0, 0, 0)
        elif frame and name:
            stack = (int(frame[1]), int(frame[2]), int(frame[3]))
        elif used and name:
            shared = _SHARED.search(line)
            yield KernelFigures(name, int(used[1]), *stack, int(shared[1]) if shared else 0)
            name = ""


def argument_excess(entries: Sequence[Entry]) -> dict[int, str]:
    """Kernels whose parameters are too many, by number; no assembler takes them."""
    sizes = {number: 8 + 4 * entry.words for number, entry in enumerate(entries) if entry.threads}
    return {
        number: f"needs {nbytes} bytes of arguments of {ARGUMENT_BYTES}"
        for number, nbytes in sizes.items()
        if nbytes > ARGUMENT_BYTES
    }


def unfit(entries: Sequence[Entry], ask: Callable[[], str], limits: Limits) -> dict[int, str]:
    """Kernels that do not fit ``limits``, by number, and why; ``ask`` gives the assembler's words
    where they are needed."""
    found = argument_excess(entries)
    if found:
        return found
    numbers = {entry.name: number for number, entry in enumerate(entries)}
    for figures in parse_ptxas(ask()):
        number = numbers.get(figures.name)
        if number is None:
            continue
        reason = figures.excess(limits, entries[number].threads)
        if reason:
            found[number] = reason
    return found
