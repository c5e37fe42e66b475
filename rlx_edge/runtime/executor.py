"""The interpreter of command lists, without I/O: events go in, actions come out.

::

            Started             every command done, nothing in flight
    idle ───────────▶ active ─────────────────────────────────────▶ finished
                        │ Cancelled, Failed
                        ▼
                     stopping ──▶ stopped       (a running segment ends first)

An action is a command record for the driver to carry out, in order, or one of the two ends.
``Run`` is followed by ``SegmentDone``, ``Send`` by ``SendDone``; ``Arrived`` says that the bytes of
an edge are at hand, before or after its ``Receive``. ``Wait`` is told only when it blocks. Whoever
drives the machine opens sockets, reads clocks and launches kernels; no policy lives here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rlx_edge.ir.commands import Command, Free, Receive, Run, Send, Wait
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure


@dataclass(frozen=True, slots=True)
class Started:
    """Begin; exactly once."""


@dataclass(frozen=True, slots=True)
class SegmentDone:
    """The segment of the last ``Run`` has ended."""


@dataclass(frozen=True, slots=True)
class SendDone:
    """The bytes of ``edge`` have left; its buffer may be reused."""

    edge: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """The bytes of ``edge`` are at hand."""

    edge: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The user wants no result any more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An action could not be carried out; a running segment counts as ended."""

    reason: str


Event: TypeAlias = Started | SegmentDone | SendDone | Arrived | Cancelled | Failed


@dataclass(frozen=True, slots=True)
class Finished:
    """Everything is done; the outputs are valid."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing more will be asked for; the outputs are not valid."""

    reason: str


Action: TypeAlias = Command | Finished | Stopped


class State(Enum):
    """Where the machine is; the values are what messages show."""

    IDLE = "idle"
    ACTIVE = "active"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"


CANCELLED = "cancelled"


def check_commands(commands: Sequence[Command]) -> None:
    """``RlxError`` ``commands.run``, ``.edge``, ``.wait`` or ``.free`` for a list that cannot work:

    launch ranges are forward and not empty, an edge is sent or received once, a wait names an
    edge that was begun before, and a buffer is freed once.
    """
    begun: set[int] = set()
    freed: set[int] = set()
    for position, command in enumerate(commands):
        where = f"command {position}"
        match command:
            case Run(begin, end):
                if not 0 <= begin < end:
                    raise failure("commands.run", where=where, begin=begin, end=end)
            case Send(edge) | Receive(edge):
                if edge in begun:
                    raise failure("commands.edge", where=where, edge=edge)
                begun.add(edge)
            case Wait(edge):
                if edge not in begun:
                    known = sorted(begun) or "none"
                    raise failure("commands.wait", where=where, edge=edge, begun=known)
            case Free(buffer):
                if buffer in freed:
                    raise failure("commands.free", where=where, buffer=buffer)
                freed.add(buffer)


class Executor:
    """One pass over ``commands``, which ``check_commands`` accepts."""

    __slots__ = (
        "_arrived",
        "_awaited",
        "_blocked",
        "_commands",
        "_next",
        "_reason",
        "_running",
        "_sending",
        "state",
    )

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = commands
        self._next = 0
        self._running = False
        self._blocked = False
        self._sending: set[int] = set()
        self._awaited = {command.edge for command in commands if isinstance(command, Receive)}
        self._arrived: set[int] = set()
        self._reason = ""
        self.state = State.IDLE

    def handle(self, event: Event) -> list[Action]:
        """The actions that follow from ``event``, in order.

        ``RlxError`` ``executor.event`` for an event that cannot happen now. After a cancel or a
        failure, events of transfers that are still under way are taken and ignored.
        """
        match event:
            case Started():
                self._expect(event, State.IDLE)
                self.state = State.ACTIVE
            case SegmentDone():
                self._expect(event, State.ACTIVE, State.STOPPING)
                if not self._running:
                    raise self._unexpected(event, "no segment is running")
                self._running = False
            case SendDone(edge) | Arrived(edge):
                if self.state in (State.STOPPING, State.STOPPED):
                    return []
                self._expect(event, State.ACTIVE)
                self._end_transfer(event, edge)
            case Cancelled():
                return self._stop(CANCELLED)
            case Failed(reason):
                self._running = False
                return self._stop(reason)
        return self._advance()

    def _end_transfer(self, event: SendDone | Arrived, edge: int) -> None:
        if isinstance(event, SendDone):
            if edge not in self._sending:
                raise self._unexpected(event, "this edge is not being sent")
            self._sending.discard(edge)
        elif edge not in self._awaited:
            raise self._unexpected(event, "this edge is not awaited")
        else:
            self._awaited.discard(edge)
            self._arrived.add(edge)

    def _advance(self) -> list[Action]:
        if self.state is State.STOPPING:
            return self._stop(self._reason)
        actions: list[Action] = []
        while not self._running and self._next < len(self._commands):
            command = self._commands[self._next]
            if isinstance(command, Wait) and self._is_pending(command.edge):
                if not self._blocked:
                    self._blocked = True
                    actions.append(command)
                return actions
            self._blocked = False
            self._next += 1
            if isinstance(command, Run):
                self._running = True
            elif isinstance(command, Send):
                self._sending.add(command.edge)
            if not isinstance(command, Wait):
                actions.append(command)
        if not (self._running or self._sending or self._awaited):
            self.state = State.FINISHED
            actions.append(Finished())
        return actions

    def _is_pending(self, edge: int) -> bool:
        return edge in self._sending or edge in self._awaited

    def _stop(self, reason: str) -> list[Action]:
        if self.state in (State.FINISHED, State.STOPPED):
            return []
        self._reason = self._reason or reason
        if self._running:
            self.state = State.STOPPING
            return []
        self.state = State.STOPPED
        return [Stopped(self._reason)]

    def _expect(self, event: Event, *allowed: State) -> None:
        if self.state not in allowed:
            raise self._unexpected(event, f"the executor is {self.state.value}")

    def _unexpected(self, event: Event, why: str) -> RlxError:
        return failure("executor.event", why=why, event=event)
