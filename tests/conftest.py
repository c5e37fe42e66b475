"""Fixtures that every test may use: golden files and the fetched models."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from rlx_edge.ir.errors import ModelError
from rlx_edge.model_store import model_path

GOLDEN = Path(__file__).resolve().parent / "golden"

# No deadline: a shared machine makes single examples slow. In continuous integration the examples
# are the same in every run.
settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless",
        action="store_true",
        help="run only the tests with golden files and rewrite those files",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--bless"):
        blessed = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in blessed])
        items[:] = blessed


class Golden:
    """Compares text with the file `tests/golden/NAME`, or writes that file when blessing."""

    def __init__(self, root: Path, bless: bool) -> None:
        self.root = root
        self.bless = bless

    def read(self, name: str) -> str:
        """The text of an input or expected file, exactly as it is stored."""
        return (self.root / name).read_bytes().decode("utf-8")

    def check(self, name: str, actual: str) -> None:
        """Fails when the file is missing or differs from `actual`."""
        path = self.root / name
        if self.bless:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(actual.encode("utf-8"))
        elif not path.is_file():
            pytest.fail(f"tests/golden/{name} is missing; look at the output and run `make bless`")
        else:
            assert actual == self.read(name), f"tests/golden/{name} differs; see `make bless`"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(GOLDEN, request.config.getoption("--bless"))


@pytest.fixture(scope="session")
def model_file() -> Callable[[str], Path]:
    """The path of a model of `rlx_edge.model_store`; a missing one fails the test."""

    def find(name: str) -> Path:
        try:
            return model_path(name)
        except ModelError as error:
            pytest.fail(str(error), pytrace=False)

    return find


@pytest.fixture(scope="session")
def wasm_validate() -> str:
    """The path of the WebAssembly validator; a missing one fails the test."""
    tool = shutil.which("wasm-validate")
    if tool is None:
        pytest.fail("wasm-validate is missing; `make setup` says how to get it", pytrace=False)
    return tool
