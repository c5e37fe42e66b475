"""The scalar operators' edges on the devices at hand: nothing but what their records state."""

# covers R12, R15

from __future__ import annotations

import pytest

from rlx_edge.ir.expression import SCALAR_OPS
from tests.scalar_behaviour import differences, load_records, record_name, rows


@pytest.mark.parametrize(
    ("device", "driver"), [("wasm:0", ""), ("vulkan:0", ""), ("vulkan:0", "nvidia")]
)
def test_differences_are_those_of_the_record(device: str, driver: str) -> None:
    """Under the quirks of a driver that compares denormals as zeros as well; refined roots need a
    fused operation, which lavapipe does not fuse."""
    records = load_records()
    assert record_name(device) in records, "python -m tests.scalar_behaviour DEVICE TITLE"
    found = differences(device, driver)
    if driver and record_name(device) == "vulkan_llvmpipe":
        found.pop("sqrt f32", None)
    assert found == records[record_name(device)]["differences"]


def test_every_operator_has_a_row() -> None:
    names = {row.name.split(" by ")[0] for row in rows()}
    assert set(SCALAR_OPS) <= names
