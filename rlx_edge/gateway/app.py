"""The gateway's routes: `/` the site, `/models` the list, `/models/NAME.onnx`, `/healthz`."""

from __future__ import annotations

import hashlib
import logging
from contextlib import asynccontextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from rlx_edge.gateway.assets import SiteFiles, file_response
from rlx_edge.gateway.request_log import RequestLog
from rlx_edge.gateway.security import SecurityMiddleware
from rlx_edge.gateway.settings import Model, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rlx_edge.gateway.offload import Offload

log = logging.getLogger("rlx_edge.gateway")


def create_app(settings: Settings, offload: Offload | None = None) -> Starlette:
    """The ASGI application of a gateway; with `offload` it also runs shards for its clients."""
    models = {model.name: model for model in settings.models}

    async def list_models(request: Request) -> Response:
        return JSONResponse([_describe(model) for model in settings.models])

    async def send_model(request: Request) -> Response:
        model = models.get(request.path_params["name"])
        if model is None or not model.path.is_file():
            raise HTTPException(404, f"no such model; there are: {', '.join(models)}")
        return file_response(model.path, request.headers)

    async def health(request: Request) -> Response:
        workers = offload.workers.roles if offload is not None else ()
        return JSONResponse({"status": "ok", "models": len(models), "workers": workers})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        log.info("serving %d models", len(models))
        async with offload.running() if offload is not None else nullcontext():
            yield
        log.info("stopped")

    return Starlette(
        routes=[
            Route("/healthz", health),
            Route("/models", list_models),
            Route("/models/{name}.onnx", send_model),
            *(offload.routes() if offload is not None else ()),
            Mount("/", SiteFiles(settings.site)),
        ],
        middleware=[
            Middleware(RequestLog),
            Middleware(
                SecurityMiddleware,
                allowed_hosts=settings.allowed_hosts,
                isolated=settings.isolated,
            ),
        ],
        exception_handlers={HTTPException: _plain_error},
        lifespan=lifespan,
    )


def _plain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(
        f"{error.detail}\n", status_code=error.status_code, headers=error.headers
    )


def _describe(model: Model) -> dict[str, object]:
    """A row of the model list; `digest` is of the file's bytes."""
    return {
        "name": model.name,
        "title": model.title,
        "licence": model.licence,
        "url": f"models/{model.name}.onnx",
        "bytes": model.path.stat().st_size,
        "digest": _digest(model.path, model.path.stat().st_mtime_ns),
    }


@cache
def _digest(path: Path, changed: int) -> str:
    del changed  # part of the cache key: a file that changes is read again
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
