"""Exit codes and what stderr says, whatever goes wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlx_edge import __version__
from rlx_edge.cli import devices
from rlx_edge.cli import main as main_module
from rlx_edge.cli.main import main
from rlx_edge.ir.errors import ParseError, RlxError


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def execute(_: object) -> int:
        raise error

    monkeypatch.setattr(devices, "execute", execute)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["--version"], ["run", "--help"], ["ir", "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 0
    assert f"rlx-edge {__version__}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["fly"], ["run"], ["ir"], ["ir", "fly"], ["devices", "--fast"], ["models"]]
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: rlx" in capsys.readouterr().err


def test_a_users_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, RlxError("x.y", "it is\nwrong", found="a\x07b"))
    assert main(["devices"]) == 1
    assert capsys.readouterr().err == "rlx: error: it is wrong; found a b\n"


def test_an_excerpt_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, ParseError("p", "no", where="f:1:3", excerpt="  x ]\n    ^"))
    assert main(["devices"]) == 1
    assert capsys.readouterr().err == "rlx: error: f:1:3: no\n  x ]\n    ^\n"


def test_a_mistake_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, KeyError("x"))
    monkeypatch.delenv("RLX_DEBUG", raising=False)
    assert main(["devices"]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "KeyError" in error and "RLX_DEBUG=1" in error
    monkeypatch.setenv("RLX_DEBUG", "1")
    assert main(["devices"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_interruption_and_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert main(["devices"]) == 130
    fail_with(monkeypatch, MemoryError())
    assert main(["devices"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    code = "import sys; from rlx_edge.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "ir", "dump", _digits()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == main_module.BROKEN_PIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("words", [["devices"], ["ir", "dump"]])
def test_an_output_that_is_full(words: list[str]) -> None:
    code = "import sys; from rlx_edge.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words, *([_digits()] if "ir" in words else [])]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b"rlx: error: No space left on device\n"
    assert done.returncode == main_module.USER_ERROR


def test_what_the_system_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, PermissionError(13, "Permission denied", "there"))
    assert main(["devices"]) == main_module.USER_ERROR
    assert capsys.readouterr().err == "rlx: error: there: Permission denied\n"


def test_an_interrupt_ends_a_long_run(tmp_path: Path) -> None:
    code = "import sys; from rlx_edge.cli.main import main; sys.exit(main())"
    words = ["--input", "image=random:1x1x8x8", "--repeat", "100000000", "--output"]
    command = [sys.executable, "-c", code, "run", _digits(), *words, str(tmp_path / "out.npz")]
    # Jobs in the background of a shell ignore interrupts, and their children inherit that.
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.npz.*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b"rlx: interrupted\n"
        assert process.wait(timeout=60) == main_module.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_only_the_chosen_command_is_loaded() -> None:
    code = (
        "import sys; from rlx_edge.cli.main import main; main(['models', 'list']);"
        "print('wasmtime' in sys.modules, 'rlx_edge.compile' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "False False\n"


def _digits() -> str:
    from rlx_edge.model_store import model_path

    return str(model_path("digits"))
