"""Words about the code for a device, where none is made or the device has no such code."""

from __future__ import annotations

import pytest

from rlx_edge.cli.main import main
from rlx_edge.model_store import model_path
from tests.cli.test_commands import Capture, one_line

# covers R36


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_precision_that_the_device_does_not_offer(command: str, capsys: Capture) -> None:
    words = [command, str(model_path("digits")), "--device", "wasm:0", "--precision", "tf32"]
    given = ["--input", "image=random:1x1x8x8"] if command == "run" else []
    assert main([*words, *given]) != 0
    one_line(capsys, "does not offer this precision", "found tf32", "allowed: fixed")


@pytest.mark.parametrize(
    ("command", "device"),
    [
        (["ir", "run"], ["--device", "interpreter"]),
        (["run"], ["--gateway", "http://127.0.0.1:1", "--token", "secret"]),
    ],
    ids=["interpreter", "gateway"],
)
@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["--precision", "tf32"], "allowed: fixed"),
        (["--vulkan-driver", "adreno"], "allowed: --device vulkan:N"),
    ],
    ids=["precision", "driver"],
)
def test_words_that_would_be_ignored(
    command: list[str], device: list[str], words: list[str], allowed: str, capsys: Capture
) -> None:
    given = ["--input", "image=random:1x1x8x8", *device, *words]
    assert main([*command, str(model_path("digits")), *given]) == 1
    one_line(capsys, allowed)
