"""Texts of the errors that every runtime raises alike, in Python and in JavaScript.

A key is the error's code, followed by ``:`` and a word where one code has several texts. Words in
braces are filled in by whoever raises it; lists are joined with commas. ``make docs`` writes the
same table for JavaScript (``web/runtime/messages.js``), so a text is changed here only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx_edge.ir.errors import (
    DeviceError,
    DigestError,
    GuardError,
    InputError,
    LimitError,
    ModelError,
    PeerError,
    RlxError,
)


@dataclass(frozen=True, slots=True)
class Message:
    """The kind of an error and its templates; an empty one says nothing."""

    kind: type[RlxError]
    what: str
    found: str = ""
    allowed: str = ""
    hint: str = ""


MESSAGES: dict[str, Message] = {
    # ---- plans -------------------------------------------------------------------------------
    "plan.guard": Message(
        GuardError,
        "these sizes need another variant: {text} does not hold",
        found="{left} and {right}",
    ),
    "plan.memory": Message(
        LimitError,
        "the model needs more memory than 32-bit addresses reach at these sizes",
        found="{nbytes} bytes",
        allowed="at most {limit} bytes",
    ),
    "plan.division": Message(GuardError, "a size divides by zero", found="{symbols}"),
    "plan.range": Message(LimitError, "a size or address exceeds 32 bits", found="{symbols}"),
    "plan.shape": Message(GuardError, "'{name}' would be empty", found="{shape}"),
    "plan.place": Message(
        LimitError,
        "the plan places '{name}' outside its memory",
        found="{nbytes} bytes at {address}",
        allowed="0 to {peak}",
    ),
    "plan.align": Message(
        LimitError,
        "the plan places '{name}' across an element boundary",
        found="{address}",
        allowed="a multiple of {size}",
    ),
    # ---- command lists -----------------------------------------------------------------------
    "commands.run": Message(RlxError, "not a launch range", found="{begin} {end}"),
    "commands.edge": Message(RlxError, "edge begun twice", found="{edge}"),
    "commands.wait": Message(
        RlxError,
        "waits for an edge that nothing before it sends or receives",
        found="{edge}",
        allowed="{begun}",
    ),
    "commands.free": Message(RlxError, "freed twice", found="{buffer}"),
    "executor.event": Message(RlxError, "unexpected event: {why}", found="{event}"),
    # ---- programs ----------------------------------------------------------------------------
    "graph.syntax": Message(
        ModelError, "{field} of a task graph cannot be this", found="{found}", allowed="{allowed}"
    ),
    "program.syntax": Message(
        ModelError, "{field} cannot be this", found="{found}", allowed="{allowed}"
    ),
    "program.value": Message(
        ModelError, "{field} cannot be this", found="{found}", allowed="{allowed}"
    ),
    "program.constant": Message(
        DigestError,
        "the program needs a constant that is not there",
        found="{found}",
        allowed="{digest} with {nbytes} bytes",
    ),
    "program.target": Message(
        DeviceError, "the program is for another device", found="{target}", allowed="{allowed}"
    ),
    "program.launches": Message(
        DeviceError,
        "the command list runs launches that the program does not have",
        found="{begin} to {end}",
        allowed="0 to {count}",
    ),
    "program.transport": Message(
        DeviceError,
        "the command list sends to another device, and there is only this one",
        found="{command}",
    ),
    "edge.unknown": Message(
        InputError, "this program does not wait for the edge", found="{edge}", allowed="{known}"
    ),
    "edge.bytes": Message(
        InputError,
        "edge {edge} (%{name}) has a payload of the wrong length",
        found="{found} bytes",
        allowed="{expected} bytes",
    ),
    "link.stalled": Message(
        DeviceError, "parts of the program wait for edges that nobody sends", found="{devices}"
    ),
    "run.unfinished": Message(
        DeviceError, "outputs are there when a run has finished", found="{state}"
    ),
    "digest.mismatch": Message(
        DigestError, "{what} do not belong together", found="{found}", allowed="{expected}"
    ),
    "weights.digest": Message(
        DigestError,
        "the weights are not the ones that the IR names",
        found="{found}",
        allowed="{expected}",
    ),
    # ---- frames and peers --------------------------------------------------------------------
    "frame.magic": Message(PeerError, "not a frame of rlx-edge", found="{found}"),
    "frame.version": Message(
        PeerError, "unsupported version of the protocol", found="{found}", allowed="{allowed}"
    ),
    "frame.kind": Message(PeerError, "unknown kind of frame", found="{found}", allowed="{allowed}"),
    "frame.length": Message(
        PeerError, "a frame of another length than it states", found="{found}", allowed="{allowed}"
    ),
    "frame.limit": Message(
        LimitError, "a frame is too long", found="{found} bytes", allowed="at most {allowed} bytes"
    ),
    "frame.websocket": Message(PeerError, "the peer breaks WebSocket", found="{found}"),
    "frame.control": Message(
        PeerError, "the control part of {kind} cannot be read", found="{found}", allowed="{allowed}"
    ),
    "peer.state": Message(
        PeerError, "this frame cannot come now", found="{found}", allowed="{allowed}"
    ),
    "peer.version": Message(
        PeerError,
        "no version of the protocol that both sides know",
        found="{found}",
        allowed="{allowed}",
    ),
    "peer.silent": Message(
        PeerError, "nothing was heard from the peer", found="{seconds} seconds",
        allowed="less than {allowed}",
    ),
    "peer.slow": Message(
        LimitError, "the peer does not read what it asked for", found="{found} bytes waiting",
        allowed="at most {allowed}",
    ),
    "peer.origin": Message(PeerError, "pages of this origin may not ask", found="{found}"),
    "peer.token": Message(PeerError, "the token is absent or wrong"),
    "peer.clients": Message(
        LimitError, "too many clients", found="{found}", allowed="at most {allowed}"
    ),
    "peer.id": Message(PeerError, "no such {what}, or it is known already", found="{found}"),
    "peer.device": Message(
        PeerError, "the gateway has no such device", found="{found}", allowed="{allowed}"
    ),
    "peer.digest": Message(
        PeerError, "not digests", found="{found}", allowed="sha256: and 64 hexadecimal digits"
    ),
    "peer.closing": Message(PeerError, "the gateway is being stopped"),
    "peer.lost": Message(PeerError, "the connection was lost", found="{reason}"),
    "queue.full": Message(
        LimitError, "too much is waiting already", found="{found}", allowed="at most {allowed}"
    ),
    "upload.limit": Message(
        LimitError,
        "more bytes than a client may upload",
        found="{found}",
        allowed="at most {allowed}",
    ),
    "upload.unasked": Message(PeerError, "nobody asked for these bytes", found="{found}"),
    "upload.order": Message(
        PeerError, "the pieces of {what} do not follow each other", found="{found}",
        allowed="{allowed}",
    ),
    "tensor.missing": Message(PeerError, "no tensor is stored under this id", found="{found}"),
    "compile.timeout": Message(
        LimitError, "compiling takes too long", allowed="at most {seconds} seconds"
    ),
    "compile.memory": Message(
        LimitError, "compiling needs too much memory", allowed="at most {nbytes} bytes"
    ),
    "compile.text": Message(PeerError, "the IR is not text in UTF-8", found="{found}"),
    "compile.failed": Message(
        DeviceError, "the compiler process ended without an answer", found="{reason}"
    ),
    "run.cancelled": Message(DeviceError, "the run was cancelled"),
    "engine.internal": Message(DeviceError, "the engine failed", found="{reason}"),
    "run.timeout": Message(
        LimitError, "the run takes too long", allowed="at most {seconds} seconds"
    ),
    # ---- devices -----------------------------------------------------------------------------
    "memory.limit": Message(
        LimitError,
        "more memory than the device can give",
        found="{nbytes} bytes",
        allowed="at most {limit} bytes",
    ),
    "memory.limit:weights": Message(
        LimitError,
        "the weights need more memory than 32-bit addresses reach",
        found="{nbytes} bytes",
        allowed="at most {limit} bytes",
    ),
    "memory.exhausted": Message(
        LimitError, "the gateway has no memory left for this", found="{reason}"
    ),
    "memory.grow": Message(
        LimitError, "the system or the module refuses that much memory", found="{nbytes} bytes"
    ),
    "memory.range": Message(
        DeviceError,
        "access outside the device's memory",
        found="{nbytes} bytes at {address}",
        allowed="0 to {size}",
    ),
    "unit.closed": Message(DeviceError, "the unit was closed and cannot be used any more"),
    "unit.failed": Message(
        DeviceError, "a launch failed; the unit's memory cannot be trusted any more"
    ),
    "wasm.invalid": Message(DeviceError, "not a usable WebAssembly module", found="{reason}"),
    "wasm.instance": Message(
        DeviceError, "the module cannot be instantiated", found="{reason}"
    ),
    "wasm.interface": Message(
        DeviceError, "the module does not export the {kind} '{name}'", found="{exports}"
    ),
    "wasm.trap": Message(DeviceError, "a kernel trapped", found="{reason}"),
    # ---- feeds and sessions ------------------------------------------------------------------
    "input.feeds": Message(
        InputError, "feeds must be a mapping from input names to arrays", found="{found}"
    ),
    "input.name": Message(InputError, "no such input", found="'{name}'", allowed="{names}"),
    "input.name:missing": Message(
        InputError, "no array for the input '{name}'", found="{found}", allowed="{names}"
    ),
    "input.array": Message(
        InputError, "input '{name}' must be a {holder}", found="{found}", hint="use {call}"
    ),
    "input.dtype": Message(
        InputError,
        "input '{name}' has the wrong element type",
        found="{found}",
        allowed="{expected} ({type})",
    ),
    "input.rank": Message(
        InputError,
        "input '{name}' has the wrong number of axes",
        found="{rank} (shape [{shape}])",
        allowed="{expected} ({type})",
    ),
    "input.shape:empty": Message(
        InputError,
        "input '{name}' has the wrong shape: axis {axis} is empty",
        found="{shape}",
        allowed="{type}",
    ),
    "input.shape:axis": Message(
        InputError,
        "input '{name}' has the wrong shape: axis {axis} must be {expected}",
        found="{shape}",
        allowed="{type}",
    ),
    "input.shape:same": Message(
        InputError,
        "axis {axis} of input '{name}' and axis {other_axis} of input '{other}' "
        "must both be '{symbol}'",
        found="{size} and {other_size}",
    ),
    "input.value": Message(
        InputError,
        "the model reads element {position} of input '{name}'",
        found="{count} elements",
    ),
    "input.symbol": Message(
        InputError,
        "no input says how large this is",
        found="{symbol}",
        allowed="a size that stands alone on some axis of an input",
    ),
    "input.symbol:axis": Message(
        InputError,
        "axis {axis} of input '{name}' is {dim}, and no input says what that is",
        allowed="a size that stands alone on some axis of an input",
    ),
    "output.names": Message(
        InputError, "output names must be a list", found="{found}", allowed="[name]"
    ),
    "output.name": Message(InputError, "no such output", found="'{name}'", allowed="{names}"),
    "session.guard": Message(
        GuardError,
        "the model does not cover these inputs",
        found="{symbols}",
        allowed="{guard}",
    ),
    "session.closed": Message(
        DeviceError, "the session was closed and cannot be used any more"
    ),
    # ---- what only the page meets ------------------------------------------------------------
    "session.cancelled": Message(RlxError, "cancelled while the model {doing}"),
    "session.model": Message(
        InputError, "not a model that can be run", found="{found}", allowed="{allowed}"
    ),
    "session.variant": Message(
        GuardError,
        "no compiled variant covers these inputs",
        found="{symbols}",
        allowed="{guards}",
        hint="compile the bundle with a --value or --shape for them as well",
    ),
    "session.option": Message(
        InputError, "the option '{name}' cannot be this", found="{found}", allowed="{allowed}"
    ),
    "tensor.type": Message(
        InputError, "a tensor cannot have this element type", found="{found}", allowed="{allowed}"
    ),
    "tensor.data": Message(
        InputError,
        "the data of a {type} tensor are of another kind",
        found="{found}",
        allowed="{allowed}",
    ),
    "tensor.dims": Message(
        InputError,
        "the sizes of a tensor are whole numbers from 0",
        found="{found}",
    ),
    "tensor.size": Message(
        InputError,
        "the data do not fill a tensor of {dims}",
        found="{found} elements",
        allowed="{expected} elements",
    ),
    "tensor.disposed": Message(InputError, "the tensor was disposed of"),
    "bundle.fetch": Message(ModelError, "the file cannot be fetched", found="{reason}"),
    "bundle.html": Message(
        ModelError,
        "the server sent a web page in place of {what}",
        found="{found}",
        hint="is the file there, and does the server answer missing files with a page?",
    ),
    "bundle.syntax": Message(
        ModelError, "not the manifest of a bundle", found="{found}", allowed="{allowed}"
    ),
    "weights.short": Message(
        ModelError,
        "the weights are cut short",
        found="{found} bytes",
        allowed="{expected} bytes",
    ),
    "weights.source": Message(
        InputError, "weights cannot be read from this", found="{found}", allowed="{allowed}"
    ),
    "digest.unavailable": Message(
        DigestError,
        "digests cannot be checked here",
        found="no crypto.subtle, which a browser offers to secure pages only",
        allowed="https, localhost, or the option verify: false",
    ),
}  # fmt: skip

_HOLE = re.compile(r"\{(\w+)\}")


def failure(key: str, *, where: str | None = None, **values: object) -> RlxError:
    """The error of ``MESSAGES[key]`` with its holes filled, to be raised."""
    message = MESSAGES[key]
    return message.kind(
        key.partition(":")[0],
        _filled(message.what, values),
        found=_filled(message.found, values) or None,
        allowed=_filled(message.allowed, values) or None,
        where=where,
        hint=_filled(message.hint, values) or None,
    )


def _filled(template: str, values: dict[str, object]) -> str:
    return _HOLE.sub(lambda hole: shown(values[hole.group(1)]), template)


def shown(value: object) -> str:
    """A value as messages show it: the items of a list with commas between them."""
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(item) for item in value)
    return str(value)
