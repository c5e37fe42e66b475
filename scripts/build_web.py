"""Build the site that the gateway serves: page, runtime, compiler, Pyodide, our wheel.

`python -m scripts.build_web [--site build/site] [--best]` needs node and the npm packages of
`package-lock.json` (`npm ci`). The compiler's wheel and Python's library are compiled to bytecode
by Pyodide itself, since the host's Python differs; our own lock file lets `loadPyodide` install the
wheel without asking anybody. Steps whose inputs have not changed are not done again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYODIDE = ROOT / "node_modules" / "pyodide"
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
WHEEL_PACKAGES = ("rlx_edge/ir", "rlx_edge/compile")
WHEEL_MODULES = ("rlx_edge/__init__.py", "rlx_edge/py.typed")
COMPRESSED = {".html", ".css", ".js", ".mjs", ".json", ".wasm", ".zip", ".whl", ".svg", ".txt"}
LARGE = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description="build the site that the gateway serves")
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--best", action="store_true", help="smallest brotli for large files too")
    options = parser.parse_args()
    if not PYODIDE.is_dir():
        print("build_web: the npm package pyodide is missing; run `npm ci`", file=sys.stderr)
        return 1
    build_site(options.site, best=options.best)
    return 0


def build_site(site: Path, *, best: bool = False) -> None:
    """Write the site to a fresh folder and move it into place."""
    cache = ROOT / "build" / "web-cache"
    cache.mkdir(parents=True, exist_ok=True)
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.parent) as folder:
        fresh = Path(folder) / "site"
        copy_sources(fresh)
        add_pyodide(fresh / "pyodide", cache)
        compress(fresh, cache, best=best)
        fresh.chmod(0o755)
        if site.exists():
            shutil.rmtree(site)
        fresh.rename(site)
    total = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(
        f"site: {total / 1e6:.1f} MB in {site.relative_to(ROOT) if site.is_relative_to(ROOT) else site}"
    )


def copy_sources(site: Path) -> None:
    """The page at the root, runtime and compiler beside it."""
    shutil.copytree(ROOT / "web" / "app", site, ignore=shutil.ignore_patterns("*.test.js"))
    for part in ("runtime", "compiler"):
        shutil.copytree(
            ROOT / "web" / part, site / part, ignore=shutil.ignore_patterns("example", "*.test.js")
        )


def add_pyodide(target: Path, cache: Path) -> None:
    """Pyodide's files, library and wheel as bytecode, and the lock file that names the wheel."""
    target.mkdir(parents=True)
    for name in PYODIDE_FILES:
        shutil.copyfile(PYODIDE / name, target / name)
    source_wheel = cache / "rlx_edge-source.zip"
    write_zip(source_wheel, wheel_files())
    key = digest_of(
        [
            PYODIDE / "python_stdlib.zip",
            source_wheel,
            Path(__file__).with_name("precompile_python.mjs"),
        ]
    )
    library, wheel = cache / f"library-{key}.zip", cache / f"wheel-{key}.zip"
    if not (library.is_file() and wheel.is_file()):
        command = ["node", str(ROOT / "scripts" / "precompile_python.mjs"), str(PYODIDE)]
        command += [str(PYODIDE / "python_stdlib.zip"), f"{library}.new"]
        command += [str(source_wheel), f"{wheel}.new"]
        subprocess.run(command, check=True)
        Path(f"{library}.new").rename(library)
        Path(f"{wheel}.new").rename(wheel)
    shutil.copyfile(library, target / "python_stdlib.zip")
    name = f"rlx_edge-{version()}-py3-none-any.whl"
    shutil.copyfile(wheel, target / name)
    (target / "pyodide-lock.json").write_text(lock_text(target / name))


def wheel_files() -> Iterator[tuple[str, bytes]]:
    """What the page needs of the package, and the metadata that makes it a wheel (PEP 427)."""
    paths = [ROOT / name for name in WHEEL_MODULES]
    for package in WHEEL_PACKAGES:
        paths += (path for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".json"))
    names: list[str] = []
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        names.append(name)
        yield name, path.read_bytes()
    info = f"rlx_edge-{version()}.dist-info"
    yield (
        f"{info}/METADATA",
        f"Metadata-Version: 2.1\nName: rlx-edge\nVersion: {version()}\n".encode(),
    )
    yield (
        f"{info}/WHEEL",
        b"Wheel-Version: 1.0\nGenerator: rlx-edge\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    compiled = [name + "c" if name.endswith(".py") else name for name in names]
    listed = [*compiled, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]
    yield f"{info}/RECORD", "".join(f"{name},,\n" for name in listed).encode()


def version() -> str:
    """The version in the package root."""
    for line in (ROOT / "rlx_edge" / "__init__.py").read_text().splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise RuntimeError("rlx_edge/__init__.py has no __version__")


def write_zip(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """A zip with fixed times, so that equal content gives equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target:
        for name, content in files:
            target.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def lock_text(wheel: Path) -> str:
    """A Pyodide lock file with our wheel as the only package."""
    base = json.loads((PYODIDE / "pyodide-lock.json").read_text())
    entry = {
        "name": "rlx-edge",
        "version": version(),
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": ["rlx_edge"],
        "depends": [],
        "unvendored_tests": False,
    }
    return json.dumps({**base, "packages": {"rlx-edge": entry}}, indent=1, sort_keys=True) + "\n"


def compress(site: Path, cache: Path, *, best: bool) -> None:
    """`FILE.br` beside every file that gains by it."""
    try:
        import brotli
    except ImportError:
        print("build_web: brotli is missing, files are served uncompressed", file=sys.stderr)
        return
    for path in sorted(site.rglob("*")):
        if not path.is_file() or path.suffix not in COMPRESSED:
            continue
        content = path.read_bytes()
        quality = 11 if best or len(content) < LARGE else 9
        ready = cache / f"{hashlib.sha256(content).hexdigest()}-{quality}.br"
        if not ready.is_file():
            ready.write_bytes(brotli.compress(content, quality=quality))
        if ready.stat().st_size < len(content):
            shutil.copyfile(ready, path.with_name(path.name + ".br"))


def digest_of(paths: Iterable[Path]) -> str:
    """A short digest over the content of files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
