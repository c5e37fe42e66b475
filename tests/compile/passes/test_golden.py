"""Text before and after each pass: `tests/golden/<pass>/<case>.rlx`, one idea a file."""

from __future__ import annotations

import struct

import pytest

from rlx_edge.compile.pipeline import PASSES, parse_pipeline, run_passes
from rlx_edge.ir.core import Constant, Module
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from tests.conftest import GOLDEN, Golden

COMMAND = "// passes: "
KNOWN = [
    struct.pack("<4f", *numbers) for numbers in ((1, 2, 3, 4), (0.5, 0.25, 0.125, 1), (1, 1, 1, 1))
]
"""Bytes of the constants that golden files may name; every other constant stays without bytes."""


def cases() -> list[str]:
    """Inputs of all passes, as names below `tests/golden`."""
    return [
        f"{name}/{path.stem}" for name in PASSES for path in sorted((GOLDEN / name).glob("*.rlx"))
    ]


def attach_constants(module: Module) -> None:
    types = {
        op.attrs["digest"]: op.result.type
        for op in module.function.ops
        if not op.operands and "digest" in op.attrs
    }
    for data in KNOWN:
        digest = bytes_digest(data)
        if digest in types:
            module.constants[digest] = Constant(
                digest, types[digest], MemorySource(data), 0, len(data)
            )


def test_every_pass_has_golden_files() -> None:
    assert {case.partition("/")[0] for case in cases()} == set(PASSES)


@pytest.mark.parametrize("case", cases())
def test_pass(golden: Golden, case: str) -> None:
    text = golden.read(f"{case}.rlx")
    command, _, rest = text.partition("\n")
    assert command.startswith(COMMAND), f"{case}.rlx starts with its pipeline"
    pipeline = command.removeprefix(COMMAND)
    given = parse_module(rest, f"{case}.rlx")
    attach_constants(given)
    before = print_module(given)
    result = run_passes(given, pipeline, check=True)
    golden.check(f"{case}.expected", print_module(result))
    assert print_module(given) == before, "a pass changed its argument"
    last = str(parse_pipeline(pipeline)[-1])
    again = run_passes(result, last, check=True)
    assert print_module(again) == print_module(result), f"{last} is not idempotent"
