"""Files of the site as responses: media types, ready-made brotli, ranges, caching.

Compression happens when the site is built: `app.js.br` beside `app.js` is sent to clients that
accept it. A range is answered from the plain file, so that offsets mean the same bytes for all.
Files whose name carries a digest (`name.0123456789abcdef.ext`) never change and are cached for
good; everything else is revalidated by its entity tag.
"""

from __future__ import annotations

import re
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
    ".zip": "application/zip",
    ".whl": "application/zip",
    ".onnx": "application/octet-stream",
    ".bin": "application/octet-stream",
}
"""What the gateway serves at all; a file with another suffix is not found."""

BROTLI = ".br"
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"

_DIGEST_NAME = re.compile(r"\.[0-9a-f]{16,64}\.[a-z]+\Z")


class SiteFiles:
    """ASGI application: the files under a folder; `/` is `index.html`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        path = find_file(self.root, scope.get("root_path", ""), scope["path"])
        if path is None:
            raise HTTPException(404)
        await file_response(path, Headers(scope=scope))(scope, receive, send)


def find_file(root: Path, mount: str, request_path: str) -> Path | None:
    """The file that a request path names, `None` outside the folder or of an unknown kind."""
    relative = request_path.removeprefix(mount).lstrip("/") or "index.html"
    if relative.endswith("/"):
        relative += "index.html"
    parts = relative.split("/")
    if any(part in ("", ".", "..") or part.startswith(".") or "\0" in part for part in parts):
        return None
    path = root.joinpath(*parts)
    if path.suffix not in MEDIA_TYPES or not path.is_file():
        return None
    return path if path.resolve().is_relative_to(root) else None


def file_response(path: Path, headers: Headers) -> Response:
    """A file with its media type, as ready-made brotli where the client takes it."""
    extra = {
        "cache-control": IMMUTABLE if _DIGEST_NAME.search(path.name) else REVALIDATE,
        "vary": "Accept-Encoding",
    }
    ready = path.with_name(path.name + BROTLI)
    served = path
    if "range" not in headers and accepts_brotli(headers) and ready.is_file():
        served = ready
        extra["content-encoding"] = "br"
    response = FileResponse(served, media_type=MEDIA_TYPES[path.suffix], headers=extra)
    stat = served.stat()
    response.headers["etag"] = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    if response.headers["etag"] in headers.get("if-none-match", ""):
        kept = {name: response.headers[name] for name in ("etag", "cache-control", "vary")}
        return Response(status_code=304, headers=kept)
    return response


def accepts_brotli(headers: Headers) -> bool:
    """Whether `Accept-Encoding` lists `br` with a weight above 0 (RFC 9110, section 12.5.3)."""
    for item in headers.get("accept-encoding", "").split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip().lower() == "br":
            weight = parameters.replace(" ", "").lower().removeprefix("q=")
            return not weight or _positive(weight)
    return False


def _positive(weight: str) -> bool:
    try:
        return float(weight) > 0
    except ValueError:
        return False
