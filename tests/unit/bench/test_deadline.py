"""`phalanx-bench deadline`: a deadline that has passed still gives a decision that keeps the rules."""

from __future__ import annotations

import json

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench import rows
from phalanx.bench.deadline import Kept, deadline_command
from phalanx.bench.large import Size
from phalanx.bench.rows import Row, made_up

TINY = Size(name="tiny", hosts=8, pending=6)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that take a moment, under known names."""
    monkeypatch.setitem(rows.ROWS, "1250", Row(make=made_up(TINY)))
    monkeypatch.setitem(rows.ROWS, "1250-shock", Row(make=made_up(TINY), shock=True))


def test_each_state_is_solved_under_each_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(deadline_command, ["--guard", "0.001", "--guard", "60", "--free", "--json"], "deadline") == 0
    told = json.loads(capsys.readouterr().out)["deadlines"]
    assert [(each["row"], each["guard_s"]) for each in told] == [
        (row, guard_s) for row in ("1250-shock", "1250") for guard_s in (0.001, 60.0, None)
    ]
    assert [each["violations"] for each in told] == [0] * 6
    late, early, free = told[:3]
    assert (late["stopped"], early["stopped"], free["stopped"]) == ("deadline", "", "")
    assert late["over_s"] > 0 == early["over_s"]
    assert free["over_s"] is None
    # With time enough a deadline changes nothing.
    assert (early["starts"], early["proven"]) == (free["starts"], free["proven"])


def test_a_broken_rule_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("phalanx.bench.deadline.verify", lambda *_: ("broken",))
    assert guarded(deadline_command, ["--row", "1250", "--guard", "5", "--cpu"], "deadline") == 1
    out = capsys.readouterr().out
    assert "broken rules" in out
    assert "CPU time" in out


def test_what_is_over_is_told_in_seconds() -> None:
    kept = Kept(
        row="x", guard_s=1.0, took_s=1.25, stage="greedy", stopped="deadline", starts=0, proven=0, goals=0, violations=0
    )
    assert kept.over_s == 0.25
