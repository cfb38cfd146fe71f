"""`phalanx-bench why`: every job asked about has an answer, and shares and spreads add up."""

from __future__ import annotations

import json

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench import rows
from phalanx.bench.large import Size
from phalanx.bench.rows import Row, made_up
from phalanx.bench.why import Asked, summary, why_command


def test_jobs_are_asked_about_in_several_rounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(rows.ROWS, "1250", Row(make=made_up(Size(name="tiny", hosts=8, pending=20))))
    assert not guarded(why_command, ["--seed", "0", "--rounds", "2", "--jobs", "3", "--json"], "why")
    told = json.loads(capsys.readouterr().out)["why"]
    assert (told["rounds"], told["jobs"], told["decided"]) == (2, 6, 6)
    assert sum(told["kinds"].values()) == 6
    assert told["within_cpu"] == 6


def test_what_is_undecided_is_no_answer() -> None:
    asked = Asked(open_before=2, cpu_s=[0.1, 0.2, 0.3, 3.0], wall_s=[1.0, 1.0, 2.5, 9.0])
    asked.kinds.update({"busy": 3, "undecided": 1})
    told = summary(asked)
    assert (told["decided"], told["decided_percent"], told["within"], told["within_cpu"]) == (3, 75.0, 2, 3)
    assert told["cpu_s"] == {"median": 0.25, "p90": 3.0, "max": 3.0}
    assert summary(Asked())["decided_percent"] is None
