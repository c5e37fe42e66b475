"""Every mistake is answered with one clear line, a non-zero exit code and no traceback."""

from __future__ import annotations

from pathlib import Path

from tests.bad_inputs import ask, cases


def test_every_mistake_is_answered_in_one_line(tmp_path: Path) -> None:
    rows = cases(tmp_path)
    assert len({case.name for case in rows}) == len(rows)
    wrong = {}
    for case in rows:
        answer = ask(case)
        if answer.problems:
            wrong[case.name] = (answer.problems, answer.stderr)
    assert wrong == {}
