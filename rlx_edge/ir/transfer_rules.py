"""The rules about several devices: who may read a value, and what makes a transfer whole.

Every value lies on the devices of its producer. Parameters come from, and results go to, one
caller, whose devices are the *home* of the function: those shared by every operation that reads a
parameter or defines what is returned. An operation reads only what lies on all its own devices;
everything else is carried by a ``comm::send`` and the ``comm::recv`` of the same edge. A ``send``
stands before its ``recv``, so that devices which work through the text in order never wait for
each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlx_edge.ir.core import Function, Op, Value
from rlx_edge.ir.devices import device_set
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.op_rules import Report
from rlx_edge.ir.ops.communication import RECV, SEND

NO_BORDER = (0, 0, 0, 0)

Names = tuple[str, ...]


def devices_of(op: Op) -> Names:
    """The device names of ``target_device_set``; none for an op that is not placed."""
    return _names(op, "target_device_set")


def devices(function: Function) -> Names:
    """Every device that an operation is placed on, in order of appearance."""
    return tuple(dict.fromkeys(name for op in function.ops for name in devices_of(op)))


def home(function: Function) -> Names:
    """The devices that have the parameters and the results; none where nothing can be both."""
    params = dict.fromkeys(function.params)
    touching = [op for op in function.ops if any(operand in params for operand in op.operands)]
    touching += [value.producer for value in function.returns if value.producer is not None]
    if not touching:
        return devices(function)
    first, *others = (devices_of(op) for op in touching)
    return tuple(name for name in first if all(name in names for names in others))


@dataclass(frozen=True, slots=True)
class Transfer:
    """Both ends of an edge, with their positions in the text."""

    edge: int
    send: Op
    recv: Op


def transfers(function: Function) -> tuple[Transfer, ...]:
    """The edges that have both ends, in the order of their sends."""
    receivers = {op.attrs.get("edge"): op for op in function.ops if op.name == RECV}
    return tuple(
        Transfer(edge, op, receivers[edge])
        for op in function.ops
        if op.name == SEND and isinstance(edge := op.attrs.get("edge"), int) and edge in receivers
    )


def transfer_problems(function: Function) -> Iterator[tuple[int, Report]]:
    """What breaks a rule, with the position of the operation that it concerns."""
    has_transfers = any(op.name in (SEND, RECV) for op in function.ops)
    if not has_transfers and len({devices_of(op) for op in function.ops}) < 2:
        return
    if not all(_is_device_set(devices_of(op)) for op in function.ops):
        return  # told where the operation is checked alone
    yield from _edges(function)
    yield from _operands(function)


# ---- edges -----------------------------------------------------------------------------------


def _edges(function: Function) -> Iterator[tuple[int, Report]]:
    seen: dict[tuple[str, int], int] = {}
    for position, op in enumerate(function.ops):
        edge = op.attrs.get("edge")
        if op.name not in (SEND, RECV) or not isinstance(edge, int):
            continue
        part = "attribute edge"
        if edge < 0 or (op.name, edge) in seen:
            what = "an edge is a number of at least 0 with one send and one recv"
            yield position, Report("comm.edge", what, f"{edge} again" if edge >= 0 else edge,
                                   None, part)  # fmt: skip
            continue
        seen[op.name, edge] = position
        for report in _end_problems(op):
            yield position, report
    for (name, edge), position in seen.items():
        other = seen.get((RECV if name == SEND else SEND, edge))
        if other is None:
            what = f"edge {edge} has no {'recv' if name == SEND else 'send'}"
            yield position, Report("comm.edge", what, part="attribute edge")
        elif name == SEND:
            yield from _pair_problems(function, position, other)


def _end_problems(op: Op) -> Iterator[Report]:
    """What is wrong with one end alone: its two device sets, how its value is stored."""
    peer = "to_device_set" if op.name == SEND else "from_device_set"
    own, other = devices_of(op), _names(op, peer)
    if not own:
        yield Report("op.placement", "every transfer says on which device set it stands",
                     None, "target_device_set", "operator")  # fmt: skip
    if not other or set(own) & set(other):
        yield Report("comm.device", "a transfer joins two device sets that share no device",
                     other or "none", "device sets without a common device",
                     f"attribute {peer}")  # fmt: skip
    if op.name == SEND:
        nbytes = op.attrs.get("bulk_bytes")
        if isinstance(nbytes, int) and nbytes < 0:
            yield Report("comm.bulk", "bulk_bytes is a number of bytes", nbytes, "at least 0",
                         "attribute bulk_bytes")  # fmt: skip
        stored = op.operands[0].producer if op.operands else None
    else:
        stored = op
    if stored is not None and not _is_plain(stored):
        yield Report("comm.layout", "what travels is stored as NCHW without a border",
                     f"{stored.attrs.get('memory_layout')} with border "
                     f"{list(_border(stored))}", None, "operator",
                     "insert rlxc::convert_layout")  # fmt: skip


def _pair_problems(function: Function, sent: int, received: int) -> Iterator[tuple[int, Report]]:
    send, recv = function.ops[sent], function.ops[received]
    if received < sent:
        yield received, Report("comm.order", "a recv stands after its send", part="operator")
    if send.operands and recv.results and send.operands[0].type != recv.results[0].type:
        what = "the ends of an edge have different types"
        yield received, Report("comm.type", what, recv.results[0].type, send.operands[0].type)
    for found, wanted, part in (
        (_names(recv, "from_device_set"), devices_of(send), "attribute from_device_set"),
        (devices_of(recv), _names(send, "to_device_set"), "attribute target_device_set"),
    ):
        if found != wanted:
            what = "the ends of an edge name different device sets"
            yield received, Report("comm.device", what, found or "none", wanted or "none", part)


# ---- operands --------------------------------------------------------------------------------


def _operands(function: Function) -> Iterator[tuple[int, Report]]:
    at_home = home(function)
    if not at_home and function.ops:
        what = "parameters are read and results defined on no common device"
        yield len(function.ops) - 1, Report("comm.home", what, part="operator")
        return
    places: dict[Value, Names] = dict.fromkeys(function.params, at_home)
    for position, op in enumerate(function.ops):
        own = devices_of(op)
        for operand in op.operands:
            there = places.get(operand, ())
            missing = [name for name in own if name not in there]
            if missing and operand in places:
                yield (
                    position,
                    Report(
                        "comm.operand",
                        f"{operand} does not lie where this operation runs",
                        there,
                        missing,
                        "operator",
                        "carry it there with comm::send and comm::recv",
                    ),
                )
        places.update(dict.fromkeys(op.results, own))


def _is_device_set(names: Names) -> bool:
    try:
        return device_set(names).names() == names
    except RlxError:
        return False


def _names(op: Op, attribute: str) -> Names:
    value = op.attrs.get(attribute)
    return tuple(str(name) for name in value) if isinstance(value, tuple) else ()


def _border(op: Op) -> tuple[object, ...]:
    border = op.attrs.get("border", NO_BORDER)
    return border if isinstance(border, tuple) else NO_BORDER


def _is_plain(op: Op) -> bool:
    return op.attrs.get("memory_layout", "NCHW") == "NCHW" and _border(op) == NO_BORDER
