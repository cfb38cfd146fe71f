"""`phalanx-bench dataplane` keeps to its time: what does not fit is left out and said to be."""

from pathlib import Path
from typing import Any

import pytest

from phalanx.bench.feed import turns
from phalanx.bench.feed.peers import PEERS
from phalanx.bench.feed.turns import BUSY, COLD, WARM, Clock, interleaved
from phalanx.bench.feed.worker import in_order

ANSWER = {
    "samples_per_s": 10.0,
    "gb_per_s": 1.0,
    "whole_gb_per_s": 0.5,
    "cpu_s_per_gb": 2.0,
    "wait_share": 0.25,
    "first_batch_s": 0.125,
    "memory_mib": 4.0,
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A hundred seconds, of which each run takes ten."""
    made = Clock(100.0)
    left = [100.0]
    monkeypatch.setattr(made, "left_s", lambda: left[0])

    def run(*_: Any) -> dict[str, Any]:
        left[0] -= 10.0
        return ANSWER

    monkeypatch.setattr(turns, "run", run)
    return made


def test_further_rounds_and_late_measurements_are_left_out(clock: Clock) -> None:
    ready = [(peer, Path("python"), Path("data")) for peer in PEERS if peer.name in ("phalanx", "torchdata")]
    found, rounds = interleaved(ready, {WARM: [], BUSY: []}, 5, clock)
    # Two warm runs, the null loader, two busy ones; a second round would end in what is kept for the rest.
    assert rounds == {"in memory": 1}
    assert {name: each["beside_null"] for name, each in found.items()} == {"phalanx": 1.0, "torchdata": 1.0}
    assert [each["faults"] for each in found.values()] == [[], []]


def test_a_loader_is_compared_with_what_its_own_round_had_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([(100.0, 90.0), (10.0, 9.5), (50.0, 10.0)])  # the machine had less and less to spare

    def run(_python: Path, arguments: list[str], _timeout_s: float) -> dict[str, Any]:
        nonlocal pair
        if arguments[1] == "null":
            pair = next(rates)
        return {**ANSWER, "samples_per_s": pair[arguments[1] != "null"]}

    pair = (0.0, 1.0)
    monkeypatch.setattr(turns, "run", run)
    ready = [(peer, Path("python"), Path("data")) for peer in PEERS if peer.name == "phalanx"]
    found, _ = interleaved(ready, {BUSY: []}, 3, Clock(1000.0))
    assert found["phalanx"]["beside_null"] == 0.9


def test_all_rounds_from_memory_come_before_the_disk(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    ready = [(peer, Path("python"), Path("data")) for peer in PEERS if peer.name == "phalanx"]
    found, rounds = interleaved(ready, {COLD: [], WARM: []}, 2, clock)
    assert found["phalanx"]["cold_of_disk"] == 1.0
    assert rounds == {"in memory": 2, "from the disk": 2}
    told = [line.split(",")[:2] for line in capsys.readouterr().err.splitlines()]
    # The disk alone is read before each cold round.
    assert told == [
        [f"round {turn} of 2", f" {kind}"]
        for kind in (WARM, COLD)
        for turn in (1, 2)
        for _ in range(1 + (kind == COLD))
    ]


def test_a_first_round_that_is_too_long_says_what_it_left_out(clock: Clock) -> None:
    ready = [
        (peer, Path("python"), Path("data"))
        for peer in PEERS
        if peer.name in ("phalanx", "torchdata", "dataloader", "litdata")
    ]
    found, rounds = interleaved(ready, {WARM: [], BUSY: []}, 5, clock)
    assert rounds == {"in memory": 1}
    for each in found.values():
        assert each["faults"] == ["busy was not measured: the time was over"]
        assert "beside_null" not in each
        assert each["samples_per_s"] == 10.0


def test_the_disk_alone_gives_the_files_bytes_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3_000_000))
    (tmp_path / "b").write_bytes(bytes(1_500_000))
    assert len(list(in_order(tmp_path, 1 << 20))) == 4_500_000 // (1 << 20)
    assert list(in_order(tmp_path, 5_000_000)) == []
