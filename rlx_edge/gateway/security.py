"""Checks and headers that every response of the gateway has.

The policy allows scripts from this origin and compiling WebAssembly, nothing inline, nothing from
elsewhere (Content Security Policy Level 3). COOP and COEP make the page cross-origin isolated
(HTML, "cross-origin isolation").
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self'",
        "connect-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
ISOLATION = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
}


class SecurityMiddleware:
    """Refuses requests for a foreign host name and adds the headers to every response."""

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str], isolated: bool) -> None:
        self.app = app
        self.allowed_hosts = allowed_hosts
        self.headers = HEADERS | (ISOLATION if isolated else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        if host_name(host) not in self.allowed_hosts:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "host not served"})
                return
            refusal = PlainTextResponse("this host name is not served here\n", status_code=421)
            await refusal(scope, receive, self._with_headers(send))
            return
        await self.app(scope, receive, self._with_headers(send))

    def _with_headers(self, send: Send) -> Send:
        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        return wrapped


def host_name(host: str) -> str:
    """The name of a `Host` header without its port, lower case (RFC 9110, section 7.2)."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[: text.find("]") + 1]
    return text.rpartition(":")[0] if ":" in text else text
