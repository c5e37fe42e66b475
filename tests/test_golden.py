"""The golden-file fixture: a missing or different file fails, blessing writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Golden


def test_missing_file_fails_and_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="make bless"):
        Golden(tmp_path, bless=False).check("pass/case.expected", "text\n")
    assert list(tmp_path.iterdir()) == []


def test_blessing_writes_what_a_later_run_accepts(tmp_path: Path) -> None:
    text = "%y = rlxc::add(%x, %x) : f32[n]  // ü\r\n"
    Golden(tmp_path, bless=True).check("pass/case.expected", text)
    Golden(tmp_path, bless=False).check("pass/case.expected", text)
    with pytest.raises(AssertionError, match="differs"):
        Golden(tmp_path, bless=False).check("pass/case.expected", text.replace("\r\n", "\n"))
