"""What a case's result is compared with, and how closely.

The oracle is onnxruntime; where it lacks an operator for a type, the numpy reference of the
``onnx`` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

from tests.conformance.case import EXACT, FUNCTION, RANGE, Case
from tests.oracles import Oracle

Array = npt.NDArray[Any]

FUNCTION_ULPS = 16
"""What two careful implementations of one function may differ by, in units of the reference."""
SUM_BOUND = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-13}


def expected(case: Case, model: bytes) -> list[tuple[dict[str, Array], list[Array]]]:
    """Feeds and the oracle's outputs, one pair a run."""
    session: Any
    try:
        if case.oracle == "numpy":
            session = ReferenceEvaluator(onnx.load_model_from_string(model))
        else:
            session = Oracle(model).session
    except (NotImplemented, InvalidGraph, Fail):
        session = ReferenceEvaluator(onnx.load_model_from_string(model))
    return [(feeds, session.run(None, feeds)) for feeds in case.feeds()]


def check(
    actual: Sequence[Array], reference: Sequence[Array], accuracy: str, rounding: float
) -> None:
    """Fails unless every output has the reference's type and shape and is close enough."""
    assert len(actual) == len(reference)
    for position, (ours, theirs) in enumerate(zip(actual, reference, strict=True)):
        what = f"output {position}"
        theirs = np.asarray(theirs)
        assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype}, not {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{what}: {ours.shape}, not {theirs.shape}"
        if accuracy == EXACT or not np.issubdtype(theirs.dtype, np.floating):
            np.testing.assert_array_equal(ours, theirs, err_msg=what)
        else:
            _close(ours, theirs, _bound(theirs, accuracy, rounding), what)


def _bound(reference: Array, accuracy: str, rounding: float) -> Array:
    """The largest difference allowed at each element."""
    size = np.abs(np.where(np.isfinite(reference), reference, 0).astype(np.float64))
    info = np.finfo(reference.dtype)
    if accuracy == FUNCTION:
        bound = FUNCTION_ULPS * float(info.eps) * size + float(info.tiny)
    elif accuracy == RANGE:
        bound = np.full(size.shape, FUNCTION_ULPS * float(info.eps) * float(size.max(initial=0.0)))
    else:
        bound = np.full(size.shape, SUM_BOUND[reference.dtype] * float(size.max(initial=0.0)))
    return np.asarray(bound * rounding)


def _close(ours: Array, theirs: Array, bound: Array, what: str) -> None:
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite], err_msg=what)
    difference = np.abs(ours[finite].astype(np.float64) - theirs[finite].astype(np.float64))
    over = difference > bound[finite]
    assert not over.any() and np.isfinite(ours[finite]).all(), (
        f"{what}: differs by {difference.max():.3g} where {bound[finite][over].min():.3g} is "
        f"allowed: {ours[finite][over][:4]}, not {theirs[finite][over][:4]}"
    )
