"""Arguments of a session and of its runs that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.ir.errors import RlxError
from tests.runtime import hand_made

# covers R37


def opened(**arguments: object) -> InferenceSession:
    return InferenceSession(
        hand_made.module(),
        **{"program": hand_made.program(), **arguments},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"providers": 3}, "device.name"),
        ({"providers": object()}, "device.name"),
        ({"providers": [("wasm:0", {})]}, "device.name"),
        ({"providers": []}, "device.count"),
        ({"cache": 5}, "session.argument"),
        ({"cache": None}, "session.argument"),
        ({"plans": 0}, "session.argument"),
        ({"precision": "bf16"}, "session.argument"),
        ({"precision": None}, "session.argument"),
        ({"plans": "many"}, "session.argument"),
        ({"plans": True}, "session.argument"),
        ({"program": "program.json"}, "session.argument"),
        ({"value_hint": 3}, "session.argument"),
        ({"value_hint": ["k"]}, "session.argument"),
        ({"value_hint": {"q": 1}}, "input.name"),
        ({"value_hint": {"k": "two"}}, "session.hint"),
        ({"value_hint": {"k": [[1], [1, 2]]}}, "session.hint"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, object], code: str) -> None:
    with pytest.raises(RlxError) as caught:
        opened(**arguments)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", ["y", 3, [0], [["y"]], [None]])
def test_names_of_outputs_that_are_refused(names: object) -> None:
    with opened() as session, pytest.raises(RlxError) as caught:
        session.run(names, hand_made.feeds(1))  # type: ignore[arg-type]
    assert caught.value.code == "output.names"


@pytest.mark.parametrize("as_text", [True, False])
def test_a_cache_folder_of_ones_own(tmp_path: Path, as_text: bool) -> None:
    folder = tmp_path / "code"
    with opened(cache=str(folder) if as_text else folder) as session:
        feeds = hand_made.feeds(2)
        np.testing.assert_array_equal(
            session.run(iter(["y"]), feeds)[0],  # type: ignore[arg-type]
            hand_made.expected(feeds["x"], int(feeds["k"][0])),
        )
    assert [path.suffix for path in folder.iterdir()] == [".cwasm"]
