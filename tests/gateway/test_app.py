"""What the gateway answers, by request; the site is a folder made for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rlx_edge.gateway.app import create_app
from rlx_edge.gateway.settings import Model, Settings
from rlx_edge.ir.errors import RlxError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    (root / "runtime").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>page</title>")
    (root / "runtime" / "index.js").write_text("export {};\n")
    (root / "runtime" / "index.js.br").write_bytes(b"ready-made brotli")
    (root / "kernels.0123456789abcdef.wasm").write_bytes(b"\0asm\1\0\0\0")
    (root / "secret.pem").write_text("key")
    (root / ".hidden.js").write_text("no")
    (tmp_path / "outside.js").write_text("no")
    (root / "link.js").symlink_to(tmp_path / "outside.js")
    return root


@pytest.fixture
def client(site: Path, tmp_path: Path) -> Iterator[TestClient]:
    (tmp_path / "digits.onnx").write_bytes(bytes(range(200)))
    models = (Model("digits", "handwritten digits", tmp_path / "digits.onnx", "Apache-2.0"),)
    with TestClient(create_app(Settings(site, models)), base_url="http://127.0.0.1") as client:
        yield client


def test_the_page_is_isolated_and_restricted(client: TestClient) -> None:
    response = client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert response.headers["cross-origin-embedder-policy"] == "require-corp"
    policy = response.headers["content-security-policy"]
    assert "script-src 'self' 'wasm-unsafe-eval';" in policy
    assert "unsafe-inline" not in policy and "default-src 'none'" in policy
    assert response.headers["x-content-type-options"] == "nosniff"


def test_isolation_can_be_left_out(site: Path) -> None:
    app = create_app(Settings(site, isolated=False))
    response = TestClient(app, base_url="http://localhost").get("/")
    assert "cross-origin-embedder-policy" not in response.headers
    assert "content-security-policy" in response.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "", "127.0.0.1.evil.example"]
)
def test_foreign_host_names_are_refused(client: TestClient, host: str) -> None:
    response = client.get("/", headers={"host": host})
    assert response.status_code == 421
    assert "content-security-policy" in response.headers


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8765", "LOCALHOST", "[::1]:80"])
def test_own_host_names_are_served(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/secret.pem",
        "/.hidden.js",
        "/link.js",
        "/../outside.js",
        "/%2e%2e/outside.js",
        "/runtime/..%2f..%2foutside.js",
        "/runtime//index.js",
        "/runtime",
        "/runtime/",
        "/nothing.js",
        "/%00.js",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_brotli_is_sent_to_those_who_take_it(client: TestClient) -> None:
    with client.stream("GET", "/runtime/index.js", headers={"accept-encoding": "br"}) as response:
        assert response.headers["content-encoding"] == "br"
        assert b"".join(response.iter_raw()) == b"ready-made brotli"
        assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    for accepted in ("gzip", "br;q=0", "identity"):
        plain = client.get("/runtime/index.js", headers={"accept-encoding": accepted})
        assert "content-encoding" not in plain.headers
        assert plain.text == "export {};\n"
        assert plain.headers["vary"] == "Accept-Encoding"


def test_files_named_by_digest_are_cached_for_good(client: TestClient) -> None:
    response = client.get("/kernels.0123456789abcdef.wasm")
    assert response.headers["content-type"] == "application/wasm"
    assert "immutable" in response.headers["cache-control"]
    plain = {"accept-encoding": "identity"}
    first = client.get("/runtime/index.js", headers=plain)
    assert first.headers["cache-control"] == "no-cache"
    again = client.get(
        "/runtime/index.js", headers=plain | {"if-none-match": first.headers["etag"]}
    )
    assert again.status_code == 304 and again.content == b""


def test_models_are_listed_and_sent_in_ranges(client: TestClient) -> None:
    (row,) = client.get("/models").json()
    assert row["name"] == "digits" and row["bytes"] == 200 and row["licence"] == "Apache-2.0"
    assert row["digest"].startswith("sha256:")
    assert client.get("/" + row["url"]).content == bytes(range(200))
    part = client.get("/" + row["url"], headers={"range": "bytes=10-19"})
    assert part.status_code == 206 and part.content == bytes(range(10, 20))
    beyond = client.get("/" + row["url"], headers={"range": "bytes=500-"})
    assert beyond.status_code == 416
    missing = client.get("/models/other.onnx")
    assert missing.status_code == 404 and "digits" in missing.text


def test_only_reading_is_allowed(client: TestClient) -> None:
    assert client.post("/index.html").status_code == 405
    assert client.delete("/models/digits.onnx").status_code == 405
    assert client.get("/healthz").json() == {"status": "ok", "models": 1, "workers": []}


def test_settings_say_what_is_wrong(tmp_path: Path, site: Path) -> None:
    with pytest.raises(RlxError, match="run `make web`"):
        Settings(tmp_path)
    with pytest.raises(RlxError, match="not a TCP port"):
        Settings(site, port=70000)
    with pytest.raises(RlxError, match="not a usable model name"):
        Settings(site, (Model("../x", "", site),))
