"""The rules about who may import whom, and how long a file may be; checked on any tree.

`check(root)` walks every Python file of `root/rlx_edge` and returns one finding a line; an empty
list means that the rules hold. `python -m tests.architecture [ROOT]` prints the findings.

An edge counts wherever it stands: at the top, inside a function, under TYPE_CHECKING, or as a
string literal given to `importlib.import_module`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "rlx_edge"
COMPILER_ENTRY = "rlx_edge.compile"

SOFT_LINES = 400
HARD_LINES = 800
# Flat tables, where length is not a sign of mixed jobs.
TABLES = frozenset({"rlx_edge/compile/codegen/wasm/instructions.py"})


@dataclass(frozen=True)
class Rule:
    """What one package may import beside itself: packages here, and third-party modules.

    `compiler` says how much of `rlx_edge.compile` is open: "none", "entry" (only the names
    of the package itself) or "all".
    """

    packages: tuple[str, ...] = ()
    third_party: tuple[str, ...] = ()
    compiler: str = "none"


RULES: dict[str, Rule] = {
    "ir": Rule(),
    "compile": Rule(packages=("ir",)),
    "runtime": Rule(packages=("ir",), third_party=("numpy",)),
    "wasm_runtime": Rule(
        packages=("ir", "runtime"), third_party=("numpy", "wasmtime"), compiler="entry"
    ),
    "gpu_workers": Rule(
        packages=("ir", "runtime"),
        third_party=("numpy", "cupy", "cudnn", "vulkan"),
        compiler="entry",
    ),
    "gateway": Rule(
        packages=("ir", "runtime"),
        third_party=("numpy", "starlette", "uvicorn", "websockets", "ray"),
        compiler="all",
    ),
    "cli": Rule(
        packages=("ir", "runtime", "wasm_runtime", "gpu_workers", "gateway", ""),
        third_party=("brotli", "numpy", "tqdm", "uvicorn"),
        compiler="all",
    ),
    # The modules directly under rlx_edge wire the parts together.
    "": Rule(
        packages=("ir", "runtime", "wasm_runtime", "gpu_workers", "gateway"),
        third_party=("numpy",),
        compiler="all",
    ),
}


@dataclass(frozen=True)
class Edge:
    """One import: the importing file (relative), its line, and the full name of what it wants."""

    file: str
    line: int
    target: str


def check(root: Path) -> list[str]:
    """All findings of the tree at `root`, in the order of files and lines."""
    findings: list[str] = []
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        package = package_of(name)
        rule = RULES.get(package)
        if rule is None:
            findings.append(f"{name}:1: the package '{package}' has no rule")
            continue
        text = path.read_text(encoding="utf-8")
        for edge in edges(root, name, text):
            reason = forbidden(package, rule, edge.target)
            if reason:
                findings.append(f"{edge.file}:{edge.line}: {reason}")
        lines = text.count("\n")
        if lines > HARD_LINES and name not in TABLES:
            findings.append(f"{name}:{HARD_LINES}: {lines} lines; at most {HARD_LINES} allowed")
    return findings


def long_files(root: Path) -> list[str]:
    """Files beyond the soft limit: worth splitting, not an error."""
    counted = [(path, path.read_text(encoding="utf-8").count("\n")) for path in source_files(root)]
    names = [(path.relative_to(root).as_posix(), lines) for path, lines in counted]
    return [f"{n}: {k} lines" for n, k in names if k > SOFT_LINES and n not in TABLES]


def source_files(root: Path) -> list[Path]:
    return sorted((root / PACKAGE).rglob("*.py"))


def package_of(name: str) -> str:
    """`rlx_edge/ir/core.py` belongs to "ir", `rlx_edge/session.py` to "" (the root)."""
    parts = name.split("/")
    return parts[1] if len(parts) > 2 else ""


def edges(root: Path, name: str, text: str) -> Iterator[Edge]:
    """Every import of the file, relative ones resolved; `from p import m` names a module m."""
    here = name.removesuffix(".py").removesuffix("/__init__").split("/")
    parent = here if name.endswith("/__init__.py") else here[:-1]
    for node in ast.walk(ast.parse(text, filename=name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Edge(name, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = [*parent[: len(parent) - node.level + 1]] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                target = f"{module}.{alias.name}"
                yield Edge(name, node.lineno, target if is_module(root, target) else module)
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            literal = node.args[0] if node.args else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                yield Edge(name, node.lineno, literal.value)


def called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def is_module(root: Path, dotted: str) -> bool:
    path = root.joinpath(*dotted.split("."))
    return dotted.startswith(f"{PACKAGE}.") and (path.with_suffix(".py").is_file() or path.is_dir())


def forbidden(package: str, rule: Rule, target: str) -> str | None:
    """Why `package` may not import `target`, or None."""
    top, _, rest = target.partition(".")
    shown = package or "the root"
    if top != PACKAGE:
        if top in sys.stdlib_module_names or top in rule.third_party:
            return None
        return f"{shown} imports {top}; allowed beside the standard library: " + (
            ", ".join(rule.third_party) or "nothing"
        )
    wanted = rest.split(".")[0] if rest else ""
    if wanted not in RULES:
        wanted = ""  # a module of the root, such as rlx_edge.session
    if wanted == package:
        return None
    if wanted == "compile":
        if rule.compiler == "all" or (rule.compiler == "entry" and target == COMPILER_ENTRY):
            return None
        limit = f"; only {COMPILER_ENTRY} itself is open" if rule.compiler == "entry" else ""
        return f"{shown} imports {target}{limit or '; compile is closed to it'}"
    if wanted in rule.packages:
        return None
    return f"{shown} imports {target}; allowed packages: {', '.join(rule.packages) or 'none'}"


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else ".")
    findings = check(root)
    for line in findings:
        print(line, file=sys.stderr)
    for line in long_files(root):
        print(f"long (soft limit {SOFT_LINES}): {line}")
    print(f"architecture: {len(source_files(root))} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
