"""Command line and tables of the kernel benchmarks."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.kernels.hosts import HOSTS, Speed
from bench.kernels.jobs import Job, reference
from rlx_edge.compile.templates.tiles import TILES, Tile, parse_tile, variants

STYLE_OF_HOST = {"wasmtime": "cranelift", "node": "v8"}

Group = tuple[str, Callable[[Tile], Job]]
"""A title, and the job for a tile."""


def main(description: str, groups: Sequence[Group], arguments: Sequence[str] | None = None) -> int:
    """Measure each group of jobs beside the reference loops; 0 unless results differ in bits."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", action="append", choices=sorted(HOSTS), help="default: all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tile", action="append", help="tiles to measure; default: the host's")
    parser.add_argument("--all-tiles", action="store_true", help="every tile of the host's style")
    parser.add_argument("--only", help="part of the titles to measure")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    rows: list[dict[str, object]] = []
    same = True
    for title, make in groups:
        if options.only and options.only not in title:
            continue
        checksums: set[int] = set()
        for host in options.host or sorted(HOSTS):
            tiles = _tiles(options, host)
            jobs = [reference(True), reference(False), *(make(tile) for tile in tiles)]
            speeds = HOSTS[host](jobs, options.rounds)
            rows += _rows(host, title, speeds)
            checksums |= {speed.checksum for speed in speeds[2:]}
        same = same and len(checksums) == 1
        if len(checksums) != 1:
            print(f"{title}: results differ between tiles or hosts", file=sys.stderr)
    if options.json:
        figures = {"machine": platform.machine(), "python": platform.python_version(), "rows": rows}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if same else 1


def _tiles(options: argparse.Namespace, host: str) -> list[Tile]:
    if options.tile:
        return [parse_tile(name) for name in options.tile]
    tiles = variants(STYLE_OF_HOST[host])
    assert set(STYLE_OF_HOST.values()) == set(TILES)
    return list(tiles) if options.all_tiles else [tiles[0]]


def _rows(host: str, title: str, speeds: Sequence[Speed]) -> list[dict[str, object]]:
    """Print one line a kernel: speeds and their shares of the FMA loop in the same run."""
    limit = speeds[0]
    rows: list[dict[str, object]] = []
    for speed in speeds[2:]:
        best, median = speed.best / limit.best, speed.median_share(limit)
        print(
            f"{host:9} {speed.name:32} {speed.best:5.1f} GF best ({best:4.0%}) "
            f"{speed.median:5.1f} median ({median:4.0%})  FMA {limit.best:.1f}|{limit.median:.1f} "
            f"mul+add {speeds[1].best:.1f}",
            flush=True,
        )
        rows.append(
            {
                "host": host,
                "case": title,
                "kernel": speed.name,
                "best_gflops": speed.best,
                "median_gflops": speed.median,
                "best_share": best,
                "median_share": median,
                "fma_best_gflops": limit.best,
                "fma_median_gflops": limit.median,
            }
        )
    return rows
