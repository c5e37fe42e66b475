"""What results are compared with: onnxruntime, and the tolerance of the numerics contract.

The comparison is over a whole set of inputs: for each output, the largest difference anywhere in
the set is measured against the largest reference value anywhere in the set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

Array = npt.NDArray[Any]

TOLERANCE = 1e-5


class Oracle:
    """A model under onnxruntime: one thread (0: as many as there are cores), its default graph
    optimisations, CPU."""

    def __init__(self, model: Path | bytes, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        source = model if isinstance(model, bytes) else str(model)
        self.session = onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )
        self.outputs = [output.name for output in self.session.get_outputs()]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every output of the model by name."""
        return dict(zip(self.outputs, self.session.run(None, dict(feeds)), strict=True))


@dataclass
class Deviation:
    """The largest difference and the largest finite reference value of one output, so far."""

    difference: float = 0.0
    reference: float = 0.0

    @property
    def relative(self) -> float:
        if self.difference == 0.0:
            return 0.0
        return self.difference / self.reference if self.reference else float("inf")


@dataclass
class Comparison:
    """Collects deviations over many inputs; `worst` is what the tolerance limits."""

    outputs: dict[str, Deviation] = field(default_factory=dict)
    inputs: int = 0

    def add(self, actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
        """Adds one run. Names, shapes, dtypes, NaNs and infinities must agree exactly; so must
        integers and booleans."""
        assert list(actual) == list(expected)
        self.inputs += 1
        for name, reference in expected.items():
            self._add_output(name, np.asarray(actual[name]), reference)

    def _add_output(self, name: str, value: Array, reference: Array) -> None:
        assert value.dtype == reference.dtype, f"{name}: {value.dtype}, not {reference.dtype}"
        assert value.shape == reference.shape, f"{name}: {value.shape}, not {reference.shape}"
        deviation = self.outputs.setdefault(name, Deviation())
        if not np.issubdtype(reference.dtype, np.floating):
            np.testing.assert_array_equal(value, reference, err_msg=name)
            return
        finite = np.isfinite(reference)
        np.testing.assert_array_equal(value[~finite], reference[~finite], err_msg=name)
        assert np.isfinite(value[finite]).all(), f"{name}: not finite where the reference is"
        if finite.any():
            exact, ours = reference[finite].astype(np.float64), value[finite].astype(np.float64)
            deviation.difference = max(deviation.difference, float(np.abs(ours - exact).max()))
            deviation.reference = max(deviation.reference, float(np.abs(exact).max()))

    @property
    def worst(self) -> float:
        """The largest deviation of any output, relative to that output's largest value."""
        return max((deviation.relative for deviation in self.outputs.values()), default=0.0)

    def require(self, tolerance: float = TOLERANCE) -> None:
        """Fails unless at least one run was added and every output is within `tolerance`."""
        assert self.inputs > 0, "nothing was compared"
        for name, deviation in self.outputs.items():
            assert deviation.relative <= tolerance, (
                f"{name}: max|Δ| {deviation.difference:.3g} is {deviation.relative:.3g} "
                f"of max|ref| {deviation.reference:.3g}; allowed {tolerance:.3g}"
            )


def assert_close(
    actual: Mapping[str, Array] | Array,
    expected: Mapping[str, Array] | Array,
    tolerance: float = TOLERANCE,
) -> None:
    """One run, one or several outputs: max|Δ| ≤ tolerance · max|ref| for each."""
    comparison = Comparison()
    ours = actual if isinstance(actual, Mapping) else {"value": actual}
    reference = expected if isinstance(expected, Mapping) else {"value": expected}
    comparison.add(ours, reference)
    comparison.require(tolerance)


def same_bits(left: Sequence[Array], right: Sequence[Array]) -> bool:
    """Whether two lists of arrays agree in dtype, shape and every bit, NaNs canonicalized."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and _bytes(a) == _bytes(b)
        for a, b in zip(left, right, strict=True)
    )


def _bytes(array: Array) -> bytes:
    if np.issubdtype(array.dtype, np.floating):
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return np.ascontiguousarray(array).tobytes()
