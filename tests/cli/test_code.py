"""``rlx plan --code``: what kernels become on each device, as files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlx_edge.cli.code import FORMS
from rlx_edge.cli.main import main
from rlx_edge.gpu_workers.cuda.nvcc import find_nvcc
from rlx_edge.ir.program_text import load_program
from rlx_edge.model_store import model_path
from tests.cli.test_commands import Capture, one_line

# covers R17, R36

DEVICES = {"wasm": "wasm:0", "cuda": "cuda:0", "vulkan": "vulkan:0"}
BEGINS = {
    ".wasm": rb"\0asm",
    ".dump": rb"0x0+ ",
    ".cu": rb"(?s).*__global__",
    ".ptx": rb"(?s).*\.target sm_90",
    ".cubin": rb"\x7fELF",
    ".spv": rb"\x03\x02\x23\x07",
    ".spvasm": rb"; bound",
}


@pytest.mark.parametrize(
    ("kind", "suffix"), [(kind, suffix) for kind, forms in FORMS.items() for suffix in forms]
)
def test_code_is_written(kind: str, suffix: str, tmp_path: Path, capsys: Capture) -> None:
    if suffix in (".ptx", ".cubin") and find_nvcc() is None:
        pytest.skip("nvcc is not installed")
    path, program = tmp_path / f"digits{suffix}", tmp_path / "digits.rlxp"
    arch = ["--arch", "sm_90"] if kind == "cuda" else []
    words = ["plan", str(model_path("digits")), "--device", DEVICES[kind], *arch]
    assert main([*words, "--code", str(path), "-o", str(program)]) == 0
    assert str(path) in capsys.readouterr().out
    assert re.match(BEGINS[suffix], path.read_bytes())
    code = load_program(program.read_text()).code
    if suffix in (".wasm", ".cu", ".spv"):
        assert path.read_bytes() == code


@pytest.mark.parametrize(("name", "found"), [("digits.ptx", ".ptx"), ("digits", "none")])
def test_a_suffix_that_the_device_does_not_have(
    name: str, found: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / name
    assert main(["plan", str(model_path("digits")), "--code", str(path)]) == 1
    one_line(capsys, f"found {found}", "allowed: .wasm, .dump")
    assert not path.exists()


def test_an_architecture_that_the_compiler_does_not_know(tmp_path: Path, capsys: Capture) -> None:
    if find_nvcc() is None:
        pytest.skip("nvcc is not installed")
    path = tmp_path / "digits.cubin"
    words = ["plan", str(model_path("digits")), "--arch", "sm_70", "--code", str(path)]
    if main(words) == 0:
        pytest.skip("this compiler still knows sm_70")
    one_line(capsys, "sm_70")
    assert not path.exists()


def test_words_that_exclude_each_other(tmp_path: Path, capsys: Capture) -> None:
    path, model = tmp_path / "digits.cu", str(model_path("digits"))
    assert main(["plan", model, "--arch", "sm_90", "--vulkan-driver", "nvidia"]) == 1
    one_line(capsys, "--vulkan-driver is for Vulkan devices")
    words = ["plan", model, "--arch", "sm_90", "--code", str(path)]
    assert main([*words, "-o", str(tmp_path / "." / path.name)]) == 1
    one_line(capsys, "--output and --code name one file")
    assert not path.exists()


@pytest.mark.parametrize(("device", "suffix"), [("vulkan:0", ".spvasm"), ("wasm:0", ".dump")])
def test_code_of_a_program_without_kernels(device: str, suffix: str, tmp_path: Path) -> None:
    model, path = tmp_path / "view.rlx", tmp_path / f"view{suffix}"
    model.write_text(
        'rlx.module version = "1.0"\n\n'
        "func @view(%x: f32[n, 4]) -> (f32[4 * n]) {\n"
        "  %y = rlxc::reshape(%x) { shape = [4 * n] } : f32[4 * n]\n"
        "  return %y\n"
        "}\n"
    )
    assert main(["plan", str(model), "--device", device, "--code", str(path)]) == 0
    assert path.is_file()
