"""Digests: what binds IR, kernels, plans and weights together. Always ``sha256:`` and hex."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rlx_edge.ir.core import Module
from rlx_edge.ir.messages import failure
from rlx_edge.ir.printer import print_module

PREFIX = "sha256:"


def bytes_digest(data: bytes | Iterable[bytes]) -> str:
    """The digest of bytes, or of chunks one after another."""
    state = hashlib.sha256()
    for chunk in (data,) if isinstance(data, bytes) else data:
        state.update(chunk)
    return PREFIX + state.hexdigest()


def module_digest(module: Module) -> str:
    """The digest of the canonical text in UTF-8. Weights count by the digests in the text."""
    return bytes_digest(print_module(module).encode("utf-8", "surrogatepass"))


def check_digest(what: str, expected: str, found: str, *, where: str | None = None) -> None:
    """``DigestError`` ``digest.mismatch`` with both digests unless they are the same."""
    if expected != found:
        raise failure("digest.mismatch", where=where, what=what, found=found, expected=expected)
