"""The runtime's own tests, run by node, and its types, checked by the TypeScript compiler."""

from __future__ import annotations

import re
import subprocess

from tests.web.node import ROOT, node


def test_the_tests_of_the_runtime() -> None:
    # covers R32 R33
    files = sorted(str(path) for path in (ROOT / "web" / "tests").glob("*.test.js"))
    assert len(files) >= 4
    done = subprocess.run(
        [node(), "--test", "--test-reporter=tap", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = re.findall(r"^\s*not ok .*(?:\n.*){0,12}", done.stdout, re.MULTILINE)
    assert done.returncode == 0, "\n".join(failed) or done.stdout + done.stderr
    assert int(re.findall(r"^# pass (\d+)", done.stdout, re.MULTILINE)[0]) >= 60
