"""The page in Firefox: the orientation model with the bits of wasmtime."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from tests.browser.digests import content_digest
from tests.browser.firefox import firefox_path
from tests.browser.gateway import ROOT
from tests.oracles import same_bits

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]
Record = Callable[[str, object], None]

RUN_SECONDS = 240


def test_orientation_has_the_bits_of_wasmtime(
    gateway: str, model_file: ModelFile, tmp_path: Path, record_property: Record
) -> None:
    # covers R11 R32
    if firefox_path() is None:
        pytest.skip("firefox is missing: nothing is tested in it; `make setup` says how to get it")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.browser.firefox", gateway, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    with InferenceSession(model_file("orientation")) as session:
        for row in found["rows"]:
            expected = session.run(None, {"x": np.load(row["inputs"])})
            assert row["digest"] == content_digest(expected[0])
            assert same_bits(expected, [np.load(row["outputs"])])
    answers = [row["answer"] for row in found["rows"]]
    record_property("Firefox", f"{found['version']}: {', '.join(answers)}, bits of wasmtime")
    assert answers == ["0°", "90°", "180°", "270°"]
