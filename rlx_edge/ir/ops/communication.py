"""``comm::`` operators: a value leaves one device set and arrives at another.

A ``comm::send`` and the ``comm::recv`` of the same ``edge`` are one transfer. Each stands among the
operations of its own device set (``target_device_set``) and names the other one. What travels is
the tensor in row-major order without a border, so a transfer changes no value.
"""

from __future__ import annotations

from rlx_edge.ir.opdef import Data, InferContext, OpDef
from rlx_edge.ir.ops.signature import ANY, attribute, operand
from rlx_edge.ir.types import TensorType

SEND = "comm::send"
RECV = "comm::recv"

PROTOCOLS = ("memcpy", "shared_memory", "PCIe_DMA", "NVLink", "websocket", "http", "RDMA")
TRANSPORTS = ("memcpy", "websocket", "http")
"""Protocols that something carries; a schedule refuses the others."""
BULK_BYTES = 256 << 10
"""Payloads of more bytes than this go by the bulk protocol unless the text says otherwise."""


def _stated(ctx: InferContext) -> TensorType:
    raise ctx.error("has no inferable type; the result type must be stated")


OPS = (
    OpDef(
        SEND,
        (operand("x", ANY),),
        (
            attribute("edge", "int"),
            attribute("to_device_set", "strings"),
            attribute("protocol", "string", *PROTOCOLS),
            attribute("bulk_protocol", "string", *PROTOCOLS),
            attribute("bulk_bytes", "int"),
        ),
        _stated,
        Data(),
        results=0,
        doc=(
            "``x`` travels to ``to_device_set`` as transfer ``edge``: by ``protocol``, or by "
            "``bulk_protocol`` where it has more than ``bulk_bytes`` bytes. It has no result."
        ),
    ),
    OpDef(
        RECV,
        (),
        (attribute("edge", "int"), attribute("from_device_set", "strings")),
        _stated,
        Data(),
        doc="The value that ``comm::send`` of the same ``edge`` sent from ``from_device_set``.",
    ),
)
