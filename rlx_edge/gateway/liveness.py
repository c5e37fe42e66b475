"""Whether a peer is still there, told from what is heard of it. No I/O, no clock of its own.

Whatever comes from a peer counts, a heartbeat's answer no more than a piece of a tensor; so does a
piece of a body that it takes. A peer that moves a large body may have no hands free for heartbeats:
while one is under way it may say nothing for longer, though not for ever. Time in which this side
itself stood still counts against nobody. JavaScript has the same machine; one golden file pins
both.
"""

from __future__ import annotations


class Liveness:
    """Times are of any monotonic clock, all in one unit. ``allowed`` is how long a peer may say
    nothing, ``allowed_in_body`` how long while a body is under way."""

    def __init__(self, now: float, allowed: float, allowed_in_body: float) -> None:
        self.allowed = allowed
        self.allowed_in_body = allowed_in_body
        self.bodies = 0
        """How many are under way, in either direction."""
        self._heard = now

    def heard(self, now: float) -> None:
        """The peer said something, or moved a piece of a body."""
        self._heard = max(self._heard, now)

    def body_begins(self, now: float) -> None:
        """A body is under way, in either direction."""
        self.bodies += 1
        self.heard(now)

    def body_ends(self, now: float) -> None:
        """That body is through, or given up."""
        self.bodies -= 1
        self.heard(now)

    def excuse(self, late: float) -> None:
        """This side stood still for so long: what came meanwhile may not have been seen yet."""
        self._heard += late

    def limit(self) -> float:
        """How long the peer may say nothing as things are."""
        return max(self.allowed, self.allowed_in_body) if self.bodies else self.allowed

    def silence(self, now: float) -> float | None:
        """For how long nothing was heard, where that is longer than the limit."""
        silent = now - self._heard
        return silent if silent > self.limit() else None
