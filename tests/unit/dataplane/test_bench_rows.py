"""The rows of `phalanx-bench dataplane`, for ours alone and in a small form."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.bench.dataplane import Clock
from phalanx.bench.feed import more, peers, rows, show, worker
from phalanx.bench.feed.peers import PEERS
from phalanx.dataplane import Field, ShardWriter

OURS = next(peer for peer in PEERS if peer.name == "phalanx")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fields = [Field("x", "int16", (64,)), Field("y", "float32", (2,))]
    with ShardWriter(tmp_path / "set", fields, name="set", shard_bytes=16_384) as writer:
        writer.write({"x": np.zeros((1024, 64), np.int16), "y": np.zeros((1024, 2), np.float32)})
    return tmp_path / "set"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs of the worker script happen in this process, as starting one takes seconds."""

    def act(_python: Path, arguments: list[str], _limit_s: float, settings: Mapping[str, str] | None = None) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (settings or {}).items():
                patch.setenv(name, value)
            return worker.act(worker.parsed(arguments))

    monkeypatch.syspath_prepend(str(Path(worker.__file__).parent))
    monkeypatch.setattr(rows, "run", act)
    monkeypatch.setattr(peers, "run", act)
    yield
    for name in ("formats", *worker.FORMS.values()):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("here")
def test_each_further_row_measures_ours(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows.make_raw(tmp_path, "small", 2048)
    rows.make_raw(tmp_path, "variable", 512)
    ready = [(OURS, Path(sys.executable), data)]
    told: list[str] = []
    found = {
        row.name: rows.measure(row, ready, tmp_path, {}, told.append, Clock(600).left_s) for row in rows.rows(1024, 64)
    }
    assert [list(each) for each in found.values()] == [["phalanx"]] * 4
    assert all(each["phalanx"]["samples_per_s"] > 0 for each in found.values()), told
    # The manifest, and then rows or shards.
    assert found["store, 30 ms, 80 MB/s"]["phalanx"]["first_batch_s"] > 2 * rows.WAIT_S
    assert len(told) == 4
    for name, each in found.items():
        show.show_row(name, {**each, "other": {"fault": "does not install: no wheel"}})
    assert capsys.readouterr().out.count("does not install: no wheel") == 4


def test_a_run_is_a_process_of_its_own_and_its_fault_is_told(data: Path) -> None:
    options = ["run", "phalanx", str(data), "--batch", "64", "--batches", "4", "--sample-bytes", "136"]
    assert peers.run(Path(sys.executable), options, 120.0)["batches"] == 4
    assert "nothing" in peers.run(Path(sys.executable), ["run", "nothing", str(data)], 120.0)["fault"]


def test_what_there_is_no_time_for_is_said_to_be_missing(data: Path, tmp_path: Path) -> None:
    ready = [(OURS, Path(sys.executable), data)]
    for row in rows.rows(1024, 64):
        answer = rows.measure(row, ready, tmp_path, {}, print, lambda: 0.0)["phalanx"]
        assert answer == {"fault": "not measured: the time was over"}
    assert "time was over" in rows.ranks_of_one_host(ready, tmp_path, 1024, 64, print, lambda: 0.0)["phalanx"]["fault"]


def test_memory_small_samples_and_mixtures(data: Path, tmp_path: Path) -> None:
    assert more.small_samples(tmp_path / "small", 8192)["samples_per_s"] > 0
    assert more.mixture(data, 8)["share_of_one"] > 0
    grown = more.memory_over_epochs(data)
    assert grown["most_mib"] < grown["first_epoch_mib"] + 8
