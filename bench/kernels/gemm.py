"""`python -m bench.kernels.gemm`: matrix products against the FMA loop."""

from __future__ import annotations

from functools import partial

from bench.kernels.jobs import Job, gemm_job
from bench.kernels.report import main
from rlx_edge.compile.templates.tiles import Tile

SIZES = (
    (512, 512, 512),
    (256, 256, 256),
    (128, 768, 768),
    (128, 3072, 768),
    (196, 256, 1024),
    (1, 1000, 512),
)


def _job(size: tuple[int, int, int], tile: Tile) -> Job:
    return gemm_job(*size, tile)


GROUPS = [("x".join(map(str, size)), partial(_job, size)) for size in SIZES]

if __name__ == "__main__":
    raise SystemExit(main(__doc__, GROUPS))
