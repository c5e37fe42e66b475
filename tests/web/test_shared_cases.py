"""Cases that Python and JavaScript answer alike: Python's side, which writes the answers down.

JavaScript reads the same files in `web/tests/shared.test.js`.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rlx_edge.ir.program_text import dump_program, load_program
from tests.conftest import Golden
from tests.runtime import hand_made
from tests.web import shared_cases


@pytest.mark.parametrize("name", shared_cases.FILES)
def test_golden(golden: Golden, name: str) -> None:
    golden.check(f"shared/{name}", shared_cases.document(list(shared_cases.FILES[name]())))


def test_hand_made_program(golden: Golden) -> None:
    """The code that wabt's text becomes may differ with the assembler; nothing else may."""
    program, name = hand_made.program(), "shared/hand_made.program"
    if golden.bless:
        golden.check(name, dump_program(program))
    stored = load_program(golden.read(name), name)
    assert replace(stored, code=program.code, kernels_digest=program.kernels_digest) == program
    weights = json.dumps({"digest": hand_made.DIGEST, "values": hand_made.WEIGHTS.tolist()})
    golden.check("shared/hand_made.weights.json", f"{weights}\n")


def test_cases_cover_what_they_should() -> None:
    plans = list(shared_cases.plan_cases())
    errors = {case.get("error") for case in plans}
    assert errors == {
        *(None, "plan.guard", "plan.memory", "plan.range", "plan.division"),
        *("plan.place", "plan.align", "plan.shape"),
    }
    assert sum("error" not in case for case in plans) >= 8
    codes = {case.get("error") for case in shared_cases.feed_cases()}
    assert codes >= {
        *(None, "input.name", "input.rank", "input.shape", "input.dtype", "input.value"),
        "input.symbol",
    }
    refused = [case.get("error") for case in shared_cases.program_cases()]
    assert refused[0] is None and None not in refused[1:]
