"""`python -m bench.kernels.conv`: convolution layers of known networks against the FMA loop."""

from __future__ import annotations

from functools import partial

from bench.kernels.jobs import Layer, conv_job
from bench.kernels.report import main

LAYERS = (
    Layer(64, 56, 3, 64),
    Layer(128, 28, 3, 128),
    Layer(256, 14, 3, 256),
    Layer(512, 7, 3, 512),
    Layer(256, 14, 1, 256),
    Layer(1024, 14, 1, 256),
    Layer(64, 56, 1, 256),
    Layer(128, 56, 3, 128, stride=2),
    Layer(3, 224, 7, 64, stride=2),
    Layer(32, 112, 1, 64),
    Layer(144, 56, 3, 144, groups=144),
    Layer(384, 14, 3, 384, groups=384),
    Layer(96, 112, 3, 96, stride=2, groups=96),
)
GROUPS = [(layer.name, partial(conv_job, layer)) for layer in LAYERS]

if __name__ == "__main__":
    raise SystemExit(main(__doc__, GROUPS))
