"""The feeding benchmark on a tiny data set: its table, its founding scenario, and peers that are not there."""

import json
from pathlib import Path

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench.dataplane import dataplane_command
from phalanx.bench.feed import peers
from phalanx.bench.feed.online import founding_scenario
from phalanx.bench.feed.ours import index_memory_mib


@pytest.mark.slow
def test_ours_is_measured_and_a_peer_that_is_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = [
        "--samples",
        "512",
        "--rounds",
        "1",
        "--no-install",
        "--peer",
        "phalanx",
        "--peer",
        "litdata",
        "--measure",
        "wait",
    ]
    assert guarded(dataplane_command, [*options, "--data", str(tmp_path / "data"), "--json"], "phalanx-bench") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["versions"]["litdata"] == "not installed (--install)"
    ours = result["loaders"]["phalanx"]
    assert ours["faults"] == []
    assert ours["samples_per_s"] > 0
    assert 0 <= ours["wait_share_10ms"] < 1
    assert not {"share_of_take", "founding", "rows"} & set(result), "only what was asked for"


def test_a_run_that_fails_or_hangs_is_one_line(tmp_path: Path) -> None:
    python = Path(peers.sys.executable)
    assert "No such file" in peers.run(python, ["run", "dataloader", str(tmp_path)], 60)["fault"]
    assert peers.run(python, ["run", "dataloader", str(tmp_path)], 0.01)["fault"].startswith("took longer than")


def test_the_index_of_many_samples_is_small() -> None:
    assert index_memory_mib(10_000_000) < 40


def test_the_founding_scenario_in_small(tmp_path: Path) -> None:
    found = founding_scenario(tmp_path, recordings=4, batch=8, steps=6)
    assert 0 < found["online"] <= 1
    assert found["shards"] > 0
