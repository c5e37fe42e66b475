"""The import rules hold, and the checker notices when they do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import architecture

ROOT = Path(__file__).resolve().parent.parent

INNER_IMPORT = "import sys; sys.path.insert(0, '.'); import rlx_edge.ir, rlx_edge.compile"


def isolated(code: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Runs `code` where neither installed packages nor the environment can be seen."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def every_module(root: Path, package: str) -> list[str]:
    files = sorted((root / "rlx_edge" / package).rglob("*.py"))
    dotted = [".".join(f.relative_to(root).with_suffix("").parts) for f in files]
    return [name.removesuffix(".__init__") for name in dotted]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package that a test may spoil."""
    shutil.copytree(
        ROOT / "rlx_edge",
        tmp_path / "rlx_edge",
        ignore=shutil.ignore_patterns("__pycache__", "data"),
    )
    return tmp_path


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    """The packages of rlx_edge with next to nothing in them: quick to check again and again."""
    names = ["session", "compile/passes/fold", "ir/onnx/model", "cli/main"]
    names += [f"{package}/__init__" for package in architecture.RULES if package]
    for name in names:
        path = tmp_path / "rlx_edge" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('"""Nothing."""\n')
    return tmp_path


def plant(tree: Path, name: str, line: str) -> None:
    path = tree / name
    text = path.read_text() if path.exists() else '"""Planted."""\n'
    path.write_text(f"{text}\n\n{line}\n")


def test_rules_hold() -> None:
    assert architecture.check(ROOT) == []


def test_inner_packages_import_without_third_party() -> None:
    done = isolated(INNER_IMPORT, ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("package", ["ir", "compile"])
def test_every_inner_module_imports_without_third_party(package: str) -> None:
    modules = every_module(ROOT, package)
    assert len(modules) > 1
    code = f"import sys; sys.path.insert(0, '.'); import {', '.join(modules)}"
    done = isolated(code, ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_root_imports_lazily() -> None:
    code = (
        "import sys, rlx_edge\n"
        "heavy = ('numpy', 'wasmtime', 'cupy', 'vulkan', 'rlx_edge.session')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("package", ["ir", "compile"])
def test_planted_numpy_is_reported_and_breaks_the_isolated_import(tree: Path, package: str) -> None:
    plant(tree, f"rlx_edge/{package}/__init__.py", "import numpy as np")
    findings = architecture.check(tree)
    assert len(findings) == 1
    assert findings[0].startswith(f"rlx_edge/{package}/__init__.py:")
    assert f"{package} imports numpy; allowed beside the standard library: nothing" in findings[0]
    done = isolated(INNER_IMPORT, tree)
    assert done.returncode != 0
    assert "No module named 'numpy'" in done.stderr


def test_planted_edge_in_the_real_tree_is_reported(tree: Path) -> None:
    plant(tree, "rlx_edge/ir/core.py", "from rlx_edge.compile import compile_module")
    [finding] = architecture.check(tree)
    assert finding.startswith("rlx_edge/ir/core.py:")
    assert "ir imports rlx_edge.compile; compile is closed to it" in finding


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("ir/planted.py", "import rlx_edge.compile", "ir imports rlx_edge.compile"),
        ("ir/planted.py", "from rlx_edge import session", "ir imports rlx_edge"),
        ("ir/planted.py", "from ..compile import x", "ir imports rlx_edge.compile"),
        ("ir/planted.py", "def f():\n    import wasmtime", "ir imports wasmtime"),
        ("ir/onnx/planted.py", "from ...runtime import x", "ir imports rlx_edge.runtime"),
        (
            "compile/planted.py",
            "from rlx_edge.runtime import x",
            "compile imports rlx_edge.runtime",
        ),
        (
            "compile/planted.py",
            "import importlib\nimportlib.import_module('numpy')",
            "imports numpy",
        ),
        ("runtime/planted.py", "import rlx_edge.wasm_runtime", "runtime imports rlx_edge.wasm"),
        ("runtime/planted.py", "import wasmtime", "runtime imports wasmtime"),
        ("runtime/planted.py", "from rlx_edge.compile import x", "compile is closed to it"),
        (
            "wasm_runtime/planted.py",
            "import rlx_edge.compile.passes",
            "only rlx_edge.compile itself is open",
        ),
        (
            "wasm_runtime/planted.py",
            "from rlx_edge.compile import passes",
            "only rlx_edge.compile itself",
        ),
        ("wasm_runtime/planted.py", "import rlx_edge.cli", "wasm_runtime imports rlx_edge.cli"),
        ("cli/planted.py", "import scipy", "cli imports scipy"),
        ("odd/planted.py", "import os", "the package 'odd' has no rule"),
    ],
)
def test_planted_edge_is_reported(sketch: Path, name: str, line: str, message: str) -> None:
    path = f"rlx_edge/{name}"
    (sketch / path).parent.mkdir(parents=True, exist_ok=True)
    plant(sketch, path, line)
    findings = architecture.check(sketch)
    assert len(findings) == 1, findings
    assert findings[0].startswith(f"{path}:")
    assert message in findings[0]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ir/planted.py", "import json, dataclasses"),
        ("compile/planted.py", "from rlx_edge.ir import errors"),
        (
            "wasm_runtime/planted.py",
            "import numpy, wasmtime, rlx_edge.compile, rlx_edge.runtime",
        ),
        ("cli/planted.py", "from rlx_edge import InferenceSession, model_store"),
    ],
)
def test_allowed_edge_is_not_reported(sketch: Path, name: str, line: str) -> None:
    plant(sketch, f"rlx_edge/{name}", line)
    assert architecture.check(sketch) == []


def test_a_file_beyond_the_hard_limit_is_reported(sketch: Path) -> None:
    path = sketch / "rlx_edge" / "ir" / "planted.py"
    path.write_text("x = 1\n" * architecture.HARD_LINES)
    assert architecture.check(sketch) == []
    assert f"rlx_edge/ir/planted.py: {architecture.HARD_LINES} lines" in architecture.long_files(
        sketch
    )
    path.write_text("x = 1\n" * (architecture.HARD_LINES + 1))
    assert architecture.check(sketch) == [
        "rlx_edge/ir/planted.py:800: 801 lines; at most 800 allowed",
    ]
