"""The node tests of the ``onnx`` package, run on a device, and the list of those that pass.

``node_suite.txt`` has a line a case: tier, operator, outcome, name, and for a gap the reason. The
tier ``static`` are cases whose shapes the file states, ``core`` the others with f32, i64 and bool.
``python -m tests.conformance`` runs all and rewrites the list and its page of the reference.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from rlx_edge.ir.errors import RlxError
from tests.conformance.devices import Device

Array = npt.NDArray[Any]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "node_suite.txt"
PAGE = ROOT / "docs" / "reference" / "conformance.md"
CACHE = ROOT / "build" / "onnx_node_cases"

PASS, GAP = "pass", "gap"
TIERS = ("static", "core")


@dataclass(frozen=True)
class NodeCase:
    """A model, and the outputs expected for the inputs of each data set."""

    name: str
    model: bytes
    sets: tuple[tuple[tuple[Array, ...], tuple[Array, ...]], ...]
    rtol: float
    atol: float

    def run(self, device: Device) -> None:
        """Fails unless every output of every data set is as the suite says."""
        graph = onnx.load_model_from_string(self.model).graph
        names = [info.name for info in graph.input]
        loaded = device.open(self.model)
        try:
            for inputs, outputs in self.sets:
                found = loaded.run(None, dict(zip(names, inputs, strict=False)))
                for ours, theirs in zip(found, outputs, strict=True):
                    assert ours.dtype == theirs.dtype, f"{ours.dtype}, not {theirs.dtype}"
                    assert ours.shape == theirs.shape, f"{ours.shape}, not {theirs.shape}"
                    np.testing.assert_allclose(ours, theirs, rtol=self.rtol, atol=self.atol)
        finally:
            loaded.close()


@cache
def node_cases() -> Mapping[str, NodeCase]:
    """Every case of the installed package by name. Making them takes the package ten seconds, so
    they are kept in the build folder."""
    place = CACHE / f"{onnx.__version__}.pickle"
    if place.is_file():
        return {case.name: case for case in pickle.loads(place.read_bytes())}
    cases = _made()
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = place.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(pickle.dumps(list(cases.values())))
    fresh.replace(place)
    return cases


def _made() -> dict[str, NodeCase]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package divides by zero on purpose
        found = load_model_tests(kind="node")
    cases: dict[str, NodeCase] = {}
    for item in found:
        if item.model is None:
            case = _stored(item)
        else:
            sets = tuple((_arrays(inputs), _arrays(outputs)) for inputs, outputs in item.data_sets)
            model = bytes(item.model.SerializeToString())
            case = NodeCase(item.name, model, sets, item.rtol, item.atol)
        cases[case.name] = case
    return cases


def _arrays(values: Sequence[Any]) -> tuple[Any, ...]:
    """Tensors as arrays; what is none (sequences, optionals) stays for the comparison to refuse."""
    return tuple(value if isinstance(value, list) else np.asarray(value) for value in values)


def _stored(item: Any) -> NodeCase:
    """A case that the package has as files."""
    folder = Path(item.model_dir)
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = (_stored_arrays(data, kind) for kind in ("input", "output"))
        sets.append((inputs, outputs))
    model = (folder / "model.onnx").read_bytes()
    return NodeCase(item.name, model, tuple(sets), item.rtol, item.atol)


def _stored_arrays(folder: Path, kind: str) -> tuple[Array, ...]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return tuple(
        numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in files
    )


# ---- the list --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """What the list says of one case."""

    tier: str
    operator: str
    outcome: str
    name: str
    reason: str = ""

    def __str__(self) -> str:
        return " ".join((self.tier, self.operator, self.outcome, self.name, self.reason)).rstrip()


HEAD = """\
# The node tests of the onnx package (onnx.backend.test.loader.load_model_tests(kind="node")):
# tier, operator, outcome on wasm:0, name, reason of a gap; `python -m tests.conformance` writes it.
# onnx {version}
"""


def read_list() -> tuple[str, tuple[Line, ...]]:
    """The package's version and the lines of the committed list."""
    version, lines = "", []
    for text in LIST.read_text(encoding="utf-8").splitlines():
        if text.startswith("# onnx "):
            version = text.removeprefix("# onnx ")
        elif not text.startswith("#"):
            tier, operator, outcome, name, *reason = text.split(" ", 4)
            lines.append(Line(tier, operator, outcome, name, *reason))
    return version, tuple(lines)


def outcome(line: Line, device: Device) -> Line:
    """The line as it would be now."""
    case = node_cases()[line.name]
    try:
        case.run(device)
    except RlxError as error:
        return Line(line.tier, operator_of(case), GAP, line.name, _reason(error))
    except AssertionError:
        return Line(line.tier, operator_of(case), GAP, line.name, "other values")
    return Line(line.tier, operator_of(case), PASS, line.name)


def operator_of(case: NodeCase) -> str:
    """The operator that a case is about: for an expansion, the one that was expanded."""
    cases = node_cases()
    stem = case.name.partition("_expanded")[0]
    base = cases.get(stem, case)
    nodes = onnx.load_model_from_string(base.model).graph.node
    return str(nodes[-1].op_type) if nodes else "none"


def _reason(error: RlxError) -> str:
    """The error's code, and the operator it is about where it is about one."""
    place = error.where or ""
    operator = place.rpartition("(")[2].partition(",")[0] if "(" in place else ""
    return f"{error.code} {operator}".rstrip()


def list_text(lines: Sequence[Line]) -> str:
    return HEAD.format(version=onnx.__version__) + "".join(f"{line}\n" for line in lines)


# ---- the page --------------------------------------------------------------------------------


def page_text(version: str, lines: Sequence[Line]) -> str:
    """The reference page of the list: counts by tier and operator, and the gaps by reason."""
    out = [
        "# Conformance: the node tests of the onnx package",
        "",
        "Written by `python -m tests.conformance` from the list of cases; do not edit.",
        "",
        f"Cases of onnx {version}, on `wasm:0`. The tier *static* has cases whose shapes the file "
        "states, *core* those beside them with elements of f32, i64 and bool.",
        "",
        "| tier | pass | cases |",
        "| --- | --- | --- |",
    ]
    for tier in TIERS:
        mine = [line for line in lines if line.tier == tier]
        out.append(f"| {tier} | {_passed(mine)} | {len(mine)} |")
    out.append(f"| both | {_passed(lines)} | {len(lines)} |")
    out += ["", "## By operator", "", "| operator | pass | cases |", "| --- | --- | --- |"]
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.operator].append(line)
    out += [
        f"| `{name}` | {_passed(groups[name])} | {len(groups[name])} |" for name in sorted(groups)
    ]
    out += ["", "## Gaps", "", "| reason | cases |", "| --- | --- |"]
    reasons: dict[str, int] = defaultdict(int)
    for line in lines:
        if line.outcome == GAP:
            reasons[line.reason] += 1
    ordered = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    out += [f"| {reason} | {reasons[reason]} |" for reason in ordered]
    return "\n".join(out) + "\n"


def _passed(lines: Sequence[Line]) -> int:
    return sum(line.outcome == PASS for line in lines)
