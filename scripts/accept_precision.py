"""Lines of the acceptance list of a GPU about precisions beyond ``fixed``.

* ``precision``: every way to products and convolutions on the device, against f64; what was chosen;
* ``attention``: one kernel against f64;
* ``precise_models``: stored models in every precision, against onnxruntime;
* ``vulkan_precision``, ``vulkan_models``: the same of what the Vulkan device offers, tile by tile.

usage: python -m scripts.accept_precision, or as lines of accept_gpu
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession
from rlx_edge.compile import CompiledModule, VulkanTarget, compile_module
from rlx_edge.compile.claims import vulkan as vulkan_claims
from rlx_edge.compile.templates.cooperative import cooperative_tiles
from rlx_edge.engines import device_precisions
from rlx_edge.gpu_workers.cuda.choices import Choices
from rlx_edge.gpu_workers.cuda.tuning import Measured
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.gpu_workers.vulkan.context import context
from rlx_edge.gpu_workers.vulkan.unit import VulkanUnit
from rlx_edge.ir.attributes import FP16
from rlx_edge.ir.core import Module
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.program import Choice, Program
from rlx_edge.model_store import model_path
from tests import sample_inputs
from tests.compile.codegen import test_cuda_attention as attentions
from tests.compile.codegen import test_cuda_precision as contractions
from tests.cuda_programs import run_program
from tests.oracles import Comparison, Oracle

Array = npt.NDArray[Any]
DEVICE, VULKAN = "cuda:0", "vulkan:0"
CACHE = Path(tempfile.gettempdir()) / "cubin"
"""One compilation for all ways of a program."""
SHAPES = ((2, 5, 39, 9), (1, 130, 64, 132), (3, 300, 257, 260), (12, 128, 32, 128))
HEADS = (("relaxed", 64, 64), ("tf32", 32, 32), ("tf32", 128, 64), ("fp16", 64, 64))
"""Precisions of attention, with the lengths of rows of queries and values."""
CONVS = ((3, 16, 3, 2, 1), (16, 10, 1, 1, 1), (64, 72, 3, 1, 1), (8, 16, 3, 1, 2))
MODELS: dict[str, Callable[[], dict[str, Array]]] = {
    "digits": lambda: sample_inputs.digits(0, 3),
    "orientation": lambda: sample_inputs.orientation(0, 2),
    "ppocr_rec": lambda: sample_inputs.ppocr_rec(0),
}
TOLERANCES = {"relaxed": 1e-4, "tf32": 2e-2, "fp16": 2e-2}
"""Of the largest value, after as many rounded layers as a model has."""


class ForcedUnit(CudaUnit):
    """Takes one way of every choice that has it."""

    def __init__(self, way: int) -> None:
        super().__init__(DEVICE, CACHE)
        self.way = way

    def load(self, program: Program) -> None:
        super().load(program)
        if self._choices is not None:
            self._choices = _Forced(self._choices, self.way)


class _Forced(Choices):
    def __init__(self, real: Choices, way: int) -> None:
        super().__init__(real._program, real._tuning, real._start, real._stream)
        self._way = way

    def _measured(self, choice: Choice) -> Measured:
        way = self._way if self._way < choice.ways else 0
        return Measured(tuple(float(number != way) for number in range(choice.ways)))


def worst(compiled: CompiledModule, feeds: Mapping[str, Array], expected: Array) -> list[float]:
    """Of each way, the largest difference by the root mean square of the result."""
    scale = float(np.sqrt(np.mean(np.square(expected))))
    found = []
    for way in range(contractions.ways(compiled)):
        (actual,) = run_program(compiled, ForcedUnit(way), feeds).values()
        found.append(float(np.abs(actual - expected).max()) / scale)
    return found


def _products() -> Iterator[tuple[dict[str, Array], Array]]:
    """Operands of ``contractions.matmul`` and what comes of them in f64."""
    rng = np.random.default_rng(0)
    for batch, rows, depth, columns in SHAPES:
        feeds = {
            "a": rng.standard_normal((batch, rows, depth), np.float32),
            "b": rng.standard_normal((batch, depth, columns), np.float32),
            "c": rng.standard_normal(columns, np.float32),
        }
        yield feeds, contractions.reference(feeds)


def _convolutions() -> Iterator[tuple[tuple[int, ...], dict[str, Array], Array]]:
    """What ``contractions.conv`` takes, operands, and what comes of them in f64."""
    rng = np.random.default_rng(0)
    for case in CONVS:
        inner, outer, size, stride, groups = case
        feeds = {
            "x": rng.standard_normal((2, inner, 29, 31), np.float32),
            "k": rng.standard_normal((outer, inner // groups, size, size), np.float32),
            "b": rng.standard_normal(outer, np.float32),
        }
        yield case, feeds, contractions.convolved(feeds, stride, groups, 1)


def precision() -> Iterator[str]:
    """Every way, then the one that measuring takes."""
    failed = False
    for name in contractions.PRECISIONS:
        limit = 8 * contractions.BOUNDS[name]
        product = contractions.compiled_for(contractions.matmul(), name)
        errors: list[float] = []
        for feeds, expected in _products():
            errors = _larger(errors, worst(product, feeds, expected))
        yield f"{name}: products, largest error by way {_shown(errors)}"
        failed |= not max(errors) <= limit
        errors = []
        for case, feeds, expected in _convolutions():
            compiled = contractions.compiled_for(contractions.conv(*case), name)
            errors = _larger(errors, worst(compiled, feeds, expected))
        yield f"{name}: convolutions, largest error by way {_shown(errors)}"
        failed |= not max(errors) <= limit
    if failed:
        raise SystemExit("a way is wrong")


def _larger(before: list[float], now: list[float]) -> list[float]:
    size = max(len(before), len(now))
    padded = [[*item, *[0.0] * (size - len(item))] for item in (before, now)]
    return [max(pair) for pair in zip(*padded, strict=True)]


def _shown(errors: list[float]) -> str:
    return ", ".join(f"{error:.1e}" for error in errors)


def attention() -> Iterator[str]:
    """Every way, with biases, rows without keys, and causal; then the one that measuring takes."""
    failed = False
    for name, depth, width in HEADS:
        compiled = attentions.compiled_for(attentions.parts(depth, width, "b, 1, t, s"), name)
        causal = attentions.compiled_for(
            attentions.parse_module(attentions.HEAD + attentions.WHOLE.format(d=depth, e=width)),
            name,
        )
        errors: list[float] = []
        for t, s in ((1, 1), (3, 2000), (70, 300), (512, 511)):
            feeds = attentions.given(2, 3, t, s, depth, width)
            rng = np.random.default_rng(t)
            hidden = rng.random((2, 1, t, s)) < 0.2
            feeds["m"] = np.where(hidden, -np.inf, 0).astype(np.float32)
            feeds["m"][0, 0, 0] = -np.inf
            one = {key: array[0] for key, array in feeds.items() if key != "m"}
            cases = (
                (compiled, feeds, attentions.expected(feeds, 0.3, False)),
                (causal, one, attentions.expected(one, 0.5, True)),
            )
            for program, given, expected in cases:
                errors = _larger(errors, _errors(program, given, expected))
        yield f"{name}, {depth} and {width}: largest error of the largest value {_shown(errors)}"
        failed |= not max(errors) <= attentions.BOUNDS[name]
    if failed:
        raise SystemExit("attention is wrong")


def _errors(compiled: CompiledModule, feeds: Mapping[str, Array], expected: Array) -> list[float]:
    """Of each way, then of the one that measuring takes, of the largest value."""
    units = [ForcedUnit(way) for way in range(attentions.ways(compiled))]
    return [
        attentions.relative(found, expected)
        for unit in (*units, CudaUnit(DEVICE, CACHE))
        for found in run_program(compiled, unit, feeds).values()
    ]


def precise_models() -> Iterator[str]:
    """Stored models; the digests of their placed IR differ by precision."""
    yield from _models(DEVICE, tuple(TOLERANCES))


def _models(device: str, names: Sequence[str]) -> Iterator[str]:
    failed = False
    for model, feeds_of in MODELS.items():
        feeds, digests = feeds_of(), set()
        expected = Oracle(model_path(model)).run(feeds)
        for name in names:
            with InferenceSession(model_path(model), [device], precision=name) as session:
                outputs = [arg.name for arg in session.get_outputs()]
                comparison = Comparison()
                for _ in range(3):  # measured, captured, replayed
                    found = dict(zip(outputs, session.run(None, feeds), strict=True))
                    comparison.add(found, expected)
                digests.add(session.programs[0].ir_digest)
                unit = session._variants[0].runner.unit
                taken = [str(row["taken"]) for row in getattr(unit, "measurements", [])]
            largest = max(item.relative for item in comparison.outputs.values())
            counts = {way: taken.count(way) for way in sorted(set(taken))}
            ways = f"; ways taken {counts}" if counts else ""
            yield f"{model}, {name}: {largest:.1e} of the largest value{ways}"
            failed |= not largest <= TOLERANCES[name]
        failed |= len(digests) != len(names)
    if failed:
        raise SystemExit("a model differs")


def vulkan_precision() -> Iterator[str]:
    """Plain tiles in ``relaxed``, every tile of cooperative matrices in ``fp16``."""
    offered = device_precisions(parse_device(VULKAN))
    yield f"{VULKAN} offers {', '.join(offered)}"
    if FP16 not in offered:
        raise SystemExit("the device has no cooperative matrices of f16")
    target = context(0).device.target
    errors = {"relaxed": _vulkan_errors("relaxed", target)}
    for tile in cooperative_tiles(target):
        with patch.object(vulkan_claims, "_tiles", lambda tiled, tile=tile: [tile]):
            errors[f"fp16 {tile.name}"] = _vulkan_errors("fp16", target)
    for name, found in errors.items():
        yield f"{name}: largest error of products and of convolutions {_shown(found)}"
    wrong = [
        name
        for name, found in errors.items()
        if not max(found) <= 8 * contractions.BOUNDS[name.split()[0]]
    ]
    if wrong:
        raise SystemExit(f"wrong: {', '.join(wrong)}")


def _vulkan_errors(name: str, target: VulkanTarget) -> list[float]:
    """Of products and of convolutions, by the root mean square of the result."""

    def error(module: Module, feeds: Mapping[str, Array], expected: Array) -> float:
        compiled = compile_module(module, target, device=VULKAN, precision=name)
        (found,) = run_program(compiled, VulkanUnit(VULKAN), feeds).values()
        return float(np.abs(found - expected).max() / np.sqrt(np.mean(np.square(expected))))

    return [
        max(error(contractions.matmul(), feeds, expected) for feeds, expected in _products()),
        max(error(contractions.conv(*case), *given) for case, *given in _convolutions()),
    ]


def vulkan_models() -> Iterator[str]:
    """Stored models in what the device offers beyond ``fixed``."""
    offered = device_precisions(parse_device(VULKAN))
    yield from _models(VULKAN, [name for name in offered if name in TOLERANCES])


LINES: dict[str, Callable[[], Iterator[str]]] = {
    "precision": precision,
    "attention": attention,
    "precise_models": precise_models,
    "vulkan_precision": vulkan_precision,
    "vulkan_models": vulkan_models,
}


def main() -> int:
    """These lines alone."""
    failed = 0
    for name, line in LINES.items():
        start = time.perf_counter()
        try:
            for text in line():
                print(f"{name}: {text}", flush=True)
        except (SystemExit, AssertionError, RlxError) as error:
            failed = 1
            print(f"{name}: FAILED: {error}", flush=True)
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
