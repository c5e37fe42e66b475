"""What a gateway serves, and to whom."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from rlx_edge.ir.errors import RlxError

DEFAULT_PORT = 8765


@dataclass(frozen=True)
class Model:
    """A model offered to pages: a readable `title` and the file it is served from."""

    name: str
    title: str
    path: Path
    licence: str = ""


@dataclass(frozen=True)
class Settings:
    """Settings of one gateway.

    Attributes:
        site: folder of the built page (`make web`): `index.html` and what it loads.
        models: the models of the list, in order.
        host: address to listen on.
        port: TCP port, 0 for any free one.
        any_port: take a free port where `port` is taken.
        names: further host names under which the gateway may be asked; requests with another
            `Host` are refused, so that a foreign page cannot reach it by rebinding its own name.
        isolated: send COOP and COEP, which shared memory between threads needs.
    """

    site: Path
    models: tuple[Model, ...] = ()
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    any_port: bool = False
    names: tuple[str, ...] = field(default=())
    isolated: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise RlxError("gateway.port", "not a TCP port", found=self.port, allowed="0 to 65535")
        if not (self.site / "index.html").is_file():
            raise RlxError(
                "gateway.site",
                "the page has not been built",
                found=f"no index.html in {self.site.name}/",
                hint="run `make web`",
            )
        seen: set[str] = set()
        for model in self.models:
            if model.name in seen or not model.name.replace("_", "").replace("-", "").isalnum():
                raise RlxError("gateway.model", "not a usable model name", found=repr(model.name))
            seen.add(model.name)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Host names (without port) that a request may carry, lower case."""
        hosts = {"localhost", "127.0.0.1", "[::1]", *(name.lower() for name in self.names)}
        if not _unspecified(self.host):
            hosts.add(self.host.lower())
        return frozenset(hosts)


def _unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
