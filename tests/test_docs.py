"""The documents hang together: links lead somewhere, and records and targets are all listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = [x for x in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in x]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_decision_record_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert listed == records
    assert [name[:4] for name in records] == [f"{n:04}" for n in range(1, len(records) + 1)]


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named - targets == set()
    assert named >= {"run", "test", "check"}
