"""What becomes of a failure on a device: a client is told, memory is released, leaks are named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.runtime.buffers import DeviceContext

log = logging.getLogger("rlx_edge.gateway")


def told(error: Exception) -> RlxError:
    """What a client is told of ``error``: ours as they are, ``memory.exhausted`` where the process
    has no memory left, ``engine.internal`` for what should not happen."""
    if isinstance(error, RlxError):
        return error
    if isinstance(error, MemoryError):
        return failure("memory.exhausted", reason=str(error)[:200] or "MemoryError")
    return failure("engine.internal", reason=repr(error)[:200])


def closed(close: Callable[[], None]) -> None:
    """Close what a failure left behind: a device that is lost may refuse that as well."""
    try:
        close()
    except Exception as error:
        log.warning("close failed", extra={"reason": str(error)[:200]})


def close_contexts(contexts: Iterable[DeviceContext]) -> None:
    """Close all; ``DeviceError`` ``device.leak`` names every buffer that was still held."""
    leaks = [f"{leak} of {context.device}" for context in contexts for leak in context.end()]
    if leaks:
        raise DeviceError(
            "device.leak",
            f"{len(leaks)} buffers were still held when the devices were closed",
            found=leaks,
            allowed="none",
        )
