"""Build the site that the gateway serves: page, runtime, compiler, Pyodide, our wheel.

`python -m scripts.build_web [--site build/site] [--best]` needs node and the npm packages of
`package-lock.json` (`npm ci`). The compiler's wheel and Python's library are compiled to bytecode
by Pyodide itself, since the host's Python differs; our own lock file lets `loadPyodide` install the
wheel without asking anybody. A snapshot of memory with all of that imported saves the page the
start (record 0018). Steps whose inputs have not changed are not done again.

| folder | what |
| --- | --- |
| `/` | `index.html`, `site.json` |
| `app/`, `runtime/`, `compiler/` | the page's modules, as they are in `web/` |
| `vendor/` | packages of others that the page uses |
| `pyodide/` | Pyodide's core, library, our wheel, lock file, snapshot |
| `samples/` | pictures and digits to try |
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULES = ROOT / "node_modules"
PYODIDE = MODULES / "pyodide"
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
DAGRE = MODULES / "@dagrejs" / "dagre"
VENDOR = {"dagre.js": DAGRE / "dist" / "dagre.esm.js", "dagre.LICENSE.txt": DAGRE / "LICENSE"}
WHEEL_PACKAGES = ("rlx_edge/ir", "rlx_edge/compile")
WHEEL_MODULES = ("rlx_edge/__init__.py", "rlx_edge/py.typed")
COMPRESSED = {
    ".html",
    ".css",
    ".js",
    ".mjs",
    ".json",
    ".wasm",
    ".zip",
    ".whl",
    ".svg",
    ".txt",
    ".bin",
}
QUALITIES = ((1 << 20, 11), (16 << 20, 9))
"""Brotli's quality for files below that many bytes: the best, and what takes seconds."""
FAST_QUALITY = 5
PRECOMPILER = ROOT / "scripts" / "precompile_python.mjs"
SNAPSHOT_MAKER = ROOT / "scripts" / "snapshot_python.mjs"
SNAPSHOT, REST = "snapshot.bin", "python_rest.zip"
"""Memory with the compiler imported, and the library without the modules that are in it."""


def main() -> int:
    parser = argparse.ArgumentParser(description="build the site that the gateway serves")
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--best", action="store_true", help="smallest brotli for large files too")
    parser.add_argument(
        "--no-snapshot", action="store_true", help="fewer bytes to fetch, a slower start"
    )
    options = parser.parse_args()
    missing = [path for path in (PYODIDE, DAGRE) if not path.is_dir()]
    if missing:
        names = ", ".join(path.relative_to(MODULES).as_posix() for path in missing)
        print(f"build_web: missing npm packages: {names}; run `npm ci`", file=sys.stderr)
        return 1
    if shutil.which("node") is None:
        print("build_web: node is missing; install the Debian package nodejs", file=sys.stderr)
        return 1
    build_site(options.site, best=options.best, snapshot=not options.no_snapshot)
    return 0


def build_site(site: Path, *, best: bool = False, snapshot: bool = True) -> None:
    """Write the site to a fresh folder and move it into place; nothing is done if it is current."""
    inputs = input_digest(best, snapshot)
    if built_from(site) == inputs:
        print(f"site: {shown(site)} is current")
        return
    cache = ROOT / "build" / "web-cache"
    cache.mkdir(parents=True, exist_ok=True)
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.parent) as folder:
        fresh = Path(folder) / "site"
        copy_sources(fresh)
        add_vendor(fresh / "vendor")
        add_samples(fresh / "samples")
        add_pyodide(fresh / "pyodide", cache, snapshot=snapshot)
        (fresh / "site.json").write_text(site_text(fresh, inputs))
        compress(fresh, cache, best=best)
        fresh.chmod(0o755)
        if site.exists():
            site.rename(Path(folder) / "old")
        fresh.rename(site)
    files = [path for path in site.rglob("*") if path.is_file()]
    plain = sum(path.stat().st_size for path in files if path.suffix != ".br")
    sent = sum(sent_size(path) for path in files if path.suffix != ".br")
    print(f"site: {shown(site)}, {plain / 1e6:.1f} MB, sent as {sent / 1e6:.1f} MB")


def shown(path: Path) -> str:
    """The path as messages show it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def sent_size(path: Path) -> int:
    """Bytes that a client which takes brotli gets."""
    ready = path.with_name(path.name + ".br")
    return (ready if ready.is_file() else path).stat().st_size


def built_from(site: Path) -> str | None:
    """The digest of the inputs that the site in place was built from."""
    try:
        content = json.loads((site / "site.json").read_text())
    except (OSError, ValueError):
        return None
    return str(content.get("inputs"))


def input_digest(best: bool, snapshot: bool) -> str:
    """A digest over everything that the site is made from."""
    paths = [path for path in (ROOT / "web").rglob("*") if path.is_file()]
    paths += [path for _, path in wheel_sources()]
    paths += [*VENDOR.values(), *(PYODIDE / name for name in PYODIDE_FILES)]
    paths += [PYODIDE / "python_stdlib.zip", PYODIDE / "pyodide-lock.json"]
    paths += [
        PRECOMPILER,
        SNAPSHOT_MAKER,
        Path(__file__),
        ROOT / "rlx_edge" / "data" / "digits_samples.npz",
    ]
    names = [path.name for path in sorted(paths)]
    text = f"{digest_of(sorted(paths))} {names} {best} {snapshot} {compressor() is not None}"
    return hashlib.sha256(text.encode()).hexdigest()


def copy_sources(site: Path) -> None:
    """The page at the root, its modules in their folders."""
    site.mkdir()
    shutil.copyfile(ROOT / "web" / "index.html", site / "index.html")
    for part in ("app", "runtime", "compiler"):
        ignored = shutil.ignore_patterns("example", "*.test.js")
        shutil.copytree(ROOT / "web" / part, site / part, ignore=ignored)


def add_vendor(target: Path) -> None:
    """Packages of others, without references to source maps that are not served."""
    target.mkdir()
    for name, source in VENDOR.items():
        lines = source.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("//# sourceMappingURL=")]
        (target / name).write_text("".join(kept))


def add_samples(target: Path) -> None:
    """The held-out digits as numbers, and the pictures of `web/samples`."""
    import numpy as np

    shutil.copytree(ROOT / "web" / "samples", target)
    with np.load(ROOT / "rlx_edge" / "data" / "digits_samples.npz") as file:
        images, labels = file["image"], file["label"]
    rows = [
        {"label": int(label), "pixels": [round(float(value) * 16) for value in image.ravel()]}
        for image, label in zip(images, labels, strict=True)
    ]
    (target / "digits.json").write_text(json.dumps(rows, separators=(",", ":")) + "\n")


def add_pyodide(target: Path, cache: Path, *, snapshot: bool) -> None:
    """Pyodide's files, library and wheel as bytecode, the lock file that names the wheel, and
    the snapshot that has it imported."""
    target.mkdir(parents=True)
    for name in PYODIDE_FILES:
        shutil.copyfile(PYODIDE / name, target / name)
    source_wheel = cache / "rlx_edge-source.zip"
    write_zip(source_wheel, wheel_files())
    library = precompiled(PYODIDE / "python_stdlib.zip", cache, "library")
    wheel = precompiled(source_wheel, cache, "wheel")
    shutil.copyfile(library, target / "python_stdlib.zip")
    name = f"rlx_edge-{version()}-py3-none-any.whl"
    shutil.copyfile(wheel, target / name)
    (target / "pyodide-lock.json").write_text(lock_text(target / name, source_wheel))
    if snapshot:
        memory, inside = snapshot_of(library, target / name, cache)
        shutil.copyfile(memory, target / SNAPSHOT)
        with zipfile.ZipFile(library) as files:
            names = [name for name in files.namelist() if name not in inside]
            write_zip(target / REST, ((name, files.read(name)) for name in names))


def snapshot_of(library: Path, wheel: Path, cache: Path) -> tuple[Path, set[str]]:
    """The snapshot, made once for its inputs, and the files of the library that are in it."""
    inputs = [library, wheel, SNAPSHOT_MAKER, PYODIDE / "package.json", PYODIDE / PYODIDE_FILES[-1]]
    ready = cache / f"snapshot-{digest_of(inputs)}.bin"
    listed = ready.with_suffix(".json")
    if not (ready.is_file() and listed.is_file()):
        fresh = ready.with_suffix(".new")
        command = ["node", str(SNAPSHOT_MAKER), *map(str, (PYODIDE, library, wheel, fresh))]
        listed.write_text(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        )
        fresh.rename(ready)
    # Frozen modules name their sources.
    names = (name.removesuffix("c") for name in json.loads(listed.read_text()))
    return ready, {name + "c" if name.endswith(".py") else name for name in names}


def precompiled(source: Path, cache: Path, kind: str) -> Path:
    """The archive with bytecode in place of sources, made once for its content."""
    ready = cache / f"{kind}-{digest_of([source, PRECOMPILER, PYODIDE / 'package.json'])}.zip"
    if not ready.is_file():
        fresh = ready.with_suffix(".new")
        command = ["node", str(PRECOMPILER), str(PYODIDE), str(source), str(fresh)]
        subprocess.run(command, check=True)
        fresh.rename(ready)
    return ready


def wheel_sources() -> Iterator[tuple[str, Path]]:
    """Names in the wheel and files of what the page needs of the package."""
    paths = [ROOT / name for name in WHEEL_MODULES]
    for package in WHEEL_PACKAGES:
        paths += (path for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".json"))
    for path in sorted(paths):
        yield path.relative_to(ROOT).as_posix(), path


def wheel_files() -> Iterator[tuple[str, bytes]]:
    """The sources, and the metadata that makes them a wheel (PEP 427)."""
    names: list[str] = []
    for name, path in wheel_sources():
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


def lock_text(wheel: Path, source_wheel: Path) -> str:
    """A Pyodide lock file with our wheel as the only package.

    pyodide-lock (the extra `web`, for Python 3.12 and later) makes and checks it where it is
    installed; else it is made by hand, the same.
    """
    content = lock_by_pyodide(wheel, source_wheel) or lock_by_hand(wheel)
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def lock_by_pyodide(wheel: Path, source_wheel: Path) -> dict[str, Any] | None:
    """The lock file as pyodide-lock makes it, `None` without that package.

    It looks for modules among sources, so it is shown the wheel before it became bytecode.
    """
    try:
        from pyodide_lock import PyodideLockSpec
        from pyodide_lock.utils import add_wheels_to_spec, update_package_sha256
    except ImportError:
        return None
    lock = PyodideLockSpec.from_json(PYODIDE / "pyodide-lock.json")
    lock.packages.clear()
    with tempfile.TemporaryDirectory() as folder:
        shown_wheel = Path(folder) / wheel.name
        shutil.copyfile(source_wheel, shown_wheel)
        lock = add_wheels_to_spec(lock, [shown_wheel])
    lock.check_wheel_filenames()
    [row] = lock.packages.values()
    update_package_sha256(row, wheel)
    content: dict[str, Any] = lock.to_dict()
    return content


def lock_by_hand(wheel: Path) -> dict[str, Any]:
    """The same without it."""
    row = {
        "name": "rlx-edge",
        "version": version(),
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": ["rlx_edge"],
        "depends": [],
        "unvendored_tests": False,
        "tool": {},
    }
    shipped = json.loads((PYODIDE / "pyodide-lock.json").read_text())
    return {**shipped, "packages": {row["name"]: row}}


def site_text(site: Path, inputs: str) -> str:
    """`site.json`: what the page must know of the site.

    `compiler` names the compiler for caches, `starts` what starting it fetches: from the snapshot,
    and from the library and the wheel.
    """
    folder = site / "pyodide"
    wheel = next(folder.glob("*.whl"))

    def total(*names: str) -> int:
        return sum((folder / name).stat().st_size for name in names)

    core = ("pyodide.asm.wasm", "pyodide-lock.json")
    library = "python_stdlib.zip"
    starts: dict[str, Any] = {
        "plain": {"library": library, "bytes": total(*core, library, wheel.name)}
    }
    if (folder / SNAPSHOT).is_file():
        starts["snapshot"] = {
            "file": SNAPSHOT,
            "library": REST,
            "length": total(SNAPSHOT),
            "integrity": integrity(folder / SNAPSHOT),
            "bytes": total(*core, SNAPSHOT, REST),
        }
    content = {
        "version": version(),
        "compiler": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "starts": starts,
        "inputs": inputs,
    }
    return json.dumps(content, indent=1) + "\n"


def integrity(path: Path) -> str:
    """The file's digest as `fetch` takes it (Subresource Integrity)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()


def compressor() -> Any:
    """The module brotli, `None` where it is not installed."""
    try:
        import brotli
    except ImportError:
        return None
    return brotli


def compress(site: Path, cache: Path, *, best: bool) -> None:
    """`FILE.br` beside every file that gains by it."""
    brotli = compressor()
    if brotli is None:
        print("build_web: brotli is missing, files are served uncompressed", file=sys.stderr)
        return
    for path in sorted(site.rglob("*")):
        if not path.is_file() or path.suffix not in COMPRESSED:
            continue
        content = path.read_bytes()
        fitting = (quality for size, quality in QUALITIES if len(content) < size)
        quality = 11 if best else next(fitting, FAST_QUALITY)
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
