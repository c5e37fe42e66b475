"""Who may ask: the origin of a page, and the token."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from rlx_edge.gateway.protocol import SUBPROTOCOL, TOKEN_PREFIX
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure


@dataclass(frozen=True, slots=True)
class Access:
    """``origins`` are those of pages that may ask, beside pages of the gateway itself. ``token``
    is what every client has to show; it is never logged."""

    token: str
    origins: frozenset[str] = frozenset()

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """``PeerError`` ``peer.origin``. What is not a page sends no origin; the host was checked
        before (`security.py`), so a page of the gateway's own host is its own page."""
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return
        if origin.partition("://")[2] != headers.get("host", "") or not origin.startswith("http"):
            raise failure("peer.origin", found=origin[:200])

    def shared_with(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What tells a browser that a page of the allow-list may read the answer."""
        origin = headers.get("origin", "")
        if origin not in self.origins:
            return {"vary": "origin"} if self.origins else {}
        return {"vary": "origin", "access-control-allow-origin": origin}

    def check_handshake(self, headers: Mapping[str, str]) -> None:
        """``PeerError`` ``peer.origin`` or ``peer.token`` unless this client may connect."""
        self.check_origin(headers)
        given = bearer(headers) or _offered_token(headers)
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            raise failure("peer.token")


def bearer(headers: Mapping[str, str]) -> str:
    """The token of ``Authorization: Bearer …`` (RFC 6750), or nothing."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def offered(headers: Mapping[str, str]) -> list[str]:
    """The subprotocols that a client offers."""
    return [item.strip() for item in headers.get("sec-websocket-protocol", "").split(",")]


def chosen_subprotocol(headers: Mapping[str, str]) -> str | None:
    """What the gateway answers; the token that was offered is never repeated."""
    return SUBPROTOCOL if SUBPROTOCOL in offered(headers) else None


def token_subprotocol(token: str) -> str:
    """The token as a subprotocol to offer."""
    return TOKEN_PREFIX + base64.urlsafe_b64encode(token.encode()).decode("ascii").rstrip("=")


def _offered_token(headers: Mapping[str, str]) -> str:
    for item in offered(headers):
        if item.startswith(TOKEN_PREFIX):
            text = item.removeprefix(TOKEN_PREFIX)
            try:
                return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8")
            except (binascii.Error, ValueError):
                return ""
    return ""


def status_of(error: RlxError) -> int:
    """The HTTP status of a refusal."""
    return _STATUS.get(error.code, 400)


_STATUS = {
    "peer.origin": 403,
    "peer.token": 401,
    "peer.silent": 408,
    "peer.clients": 503,
    "upload.limit": 413,
}
