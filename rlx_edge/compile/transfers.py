"""Transfers among launches: which buffers stay alive for them, and the command list.

A received buffer is reserved from its ``receive`` on, which stands where its ``comm::recv`` does,
and awaited in front of the first launch that reads it. A sent buffer keeps its bytes to the end of
the run: the link may still be reading it while later launches run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_edge.compile.launches import Lowered
from rlx_edge.ir.commands import Command, Receive, Run, Send, Wait

Segments = Callable[[int, int], Sequence[Run]]
"""Cuts the launches ``begin`` to ``end`` of ``execute`` into runs."""


def transfer_uses(lowered: Lowered) -> list[tuple[int, int]]:
    """``(buffer, place)``: numbers of launches of ``execute`` at which buffers must be theirs."""
    end = len(lowered.execute)
    return [
        (item.buffer, place)
        for item in lowered.transfers
        for place in ((item.position, end) if item.is_send else (item.position,))
    ]


def weave(lowered: Lowered, segments: Segments) -> tuple[Command, ...]:
    """The commands of ``execute``: runs, and the transfers between them."""
    end = len(lowered.execute)
    commands: list[Command] = []
    pending: dict[int, int] = {}
    """Received buffer → its edge, until it is waited for."""
    done = 0
    for position in range(end + 1):
        here = [item for item in lowered.transfers if item.position == position]
        reads_pending = position < end and any(
            buffer in pending for buffer in lowered.execute[position].buffers
        )
        if (here or reads_pending or position == end) and position > done:
            commands += segments(done, position)
            done = position
        for item in here:
            if not item.is_send:
                commands.append(Receive(item.edge))
                pending[item.buffer] = item.edge
                continue
            if item.buffer in pending:
                commands.append(Wait(pending.pop(item.buffer)))
            commands.append(Send(item.edge))
        read = lowered.execute[position].buffers if position < end else tuple(pending)
        for buffer in dict.fromkeys(read):
            if buffer in pending:
                commands.append(Wait(pending.pop(buffer)))
    return tuple(commands)
