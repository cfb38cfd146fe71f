"""`phalanx-bench parts`: every part is timed on what it says, as often as asked."""

from __future__ import annotations

import json

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench.parts import parts_command

ARGV = ["--hosts", "8", "--jobs", "40", "--waiting", "8", "--repeat", "2"]


def test_parts_are_a_table_and_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(parts_command, [*ARGV, "--json"], "parts") == 0
    parts = {each["part"]: each for each in json.loads(capsys.readouterr().out)["parts"]}
    assert {"forecast, with its bounds", "reasons of a round", "snapshot to JSON", "snapshot from SQLite"} <= set(parts)
    assert all(spent >= 0 for each in parts.values() for spent in each["cpu_s"])
    assert len(parts["forecast, with its bounds"]["cpu_s"]) == 2
    assert parts["forecast, with its bounds"]["asked_s"] == 10
    assert "8 hosts, 40 jobs" in parts["snapshot to JSON"]["told"]
    assert guarded(parts_command, ARGV, "parts") == 0
    assert "jobs wait" in " ".join(capsys.readouterr().out.split())
