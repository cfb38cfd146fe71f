"""Which folders of attempts go: by age, by count, and never one of an attempt that lives."""

import os
from pathlib import Path

import pytest

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.executor import FakeExecutor
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.ray.process import CLEAN_EVERY_S, run_adapter
from phalanx.adapters.retention import AttemptFolder, Retention, attempt_folders, expired, remove_attempts
from phalanx.model.errors import NotFound
from phalanx.model.job import Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.snapshot import JobRecord

NOW_S = 10_000_000
KEPT = Retention(age_s=1_000, attempts=3)


def record(state, attempt):
    job = Job(id="j", team="t", roles=(Role(request=WorkerRequest(cpu_milli=1)),))
    placement = (
        Placement(workers=(WorkerPlacement(role="worker", index=0, host="h"),)) if state.holds_capacity else None
    )
    return JobRecord(job=job, state=state, submitted_s=0, attempt=attempt, placement=placement)


def gone(*attempts, state, newest, ages=None):
    """Of these attempts' folders, those that may go."""
    ages = ages or [0] * len(attempts)
    folders = [AttemptFolder(job="j", attempt=a, written_s=NOW_S - age) for a, age in zip(attempts, ages, strict=True)]
    return [key[1] for key in expired(folders, lambda _job: record(state, newest), KEPT, NOW_S)]


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED])
def test_an_ended_job_keeps_its_folders_for_a_while(state):
    assert gone(1, 2, state=state, newest=2, ages=[999, 0]) == []
    assert gone(1, 2, state=state, newest=2, ages=[1_000, 1_000]) == [1, 2]


@pytest.mark.parametrize("state", [s for s in JobState if not s.ended])
def test_a_job_that_is_still_to_run_keeps_its_newest_however_old(state):
    assert gone(1, 2, state=state, newest=2, ages=[5_000, 5_000]) == [1]
    assert gone(3, state=state, newest=2, ages=[5_000]) == [], "one that the store has not heard of yet"


def test_of_many_attempts_the_latest_stay():
    assert gone(*range(1, 8), state=JobState.RUNNING, newest=7) == [1, 2, 3, 4]
    assert gone(*range(1, 8), state=JobState.SUCCEEDED, newest=7) == [1, 2, 3, 4]


def test_of_jobs_that_nobody_knows_age_decides():
    def unknown(job):
        raise NotFound(f"no job {job}")

    folders = [AttemptFolder(job="x", attempt=n, written_s=NOW_S - age) for n, age in ((1, 999), (2, 1_000))]
    assert expired(folders, unknown, KEPT, NOW_S) == (("x", 2),)


def make(logs, job, attempt, age_s=0):
    folder = logs / job / str(attempt)
    (folder / "reports").mkdir(parents=True)
    for path in (folder / "0.log", folder / "reports" / "rank-00000.jsonl", folder / "reports", folder):
        if not path.exists():
            path.write_text("x")
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return folder


def test_folders_are_found_with_what_was_written_last(tmp_path):
    make(tmp_path, "a", 2, 50)
    late = make(tmp_path, "a", 10, 90)
    os.utime(late / "reports" / "rank-00000.jsonl", (NOW_S - 7, NOW_S - 7))
    (tmp_path / "a" / "notes").mkdir()
    (tmp_path / "b").write_text("no folder")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert [(f.key, NOW_S - f.written_s) for f in attempt_folders(tmp_path)] == [(("a", 2), 50), (("a", 10), 7)]
    assert attempt_folders(tmp_path / "none") == ()


def test_what_is_removed_and_what_is_not(tmp_path):
    logs, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    keep = make(logs, "a", 2)
    make(logs, "a", 1)
    make(logs, "b", 1)
    alive = make(logs, "c", 1)
    stranger = make(elsewhere, "d", 1)
    (logs / "e").mkdir()
    (logs / "e" / "1").symlink_to(stranger)
    keys = [("a", 1), ("b", 1), ("c", 1), ("../elsewhere/d", 1), ("..", 1), ("e", 1), ("f", 1)]
    assert remove_attempts(logs, keys, alive={("c", 1)}) == 3, "what is not there is gone, too"
    assert [f.key for f in attempt_folders(logs)] == [("a", 2), ("c", 1)]
    assert keep.is_dir()
    assert alive.is_dir()
    assert (stranger / "0.log").read_text() == "x"
    assert not (logs / "b").exists()


def test_the_adapter_cleans_up_on_its_hosts_and_beside_it_now_and_then(tmp_path: Path):
    clock, store = VirtualClock(NOW_S), MemoryStore()
    asked = []

    class Site(FakeExecutor):
        def clean_up(self, choose):
            asked.append(clock.now_s())
            folders = [AttemptFolder(job="x", attempt=n, written_s=NOW_S - age) for n, age in ((1, 50), (2, 5_000))]
            assert choose(folders) == (("x", 2),)
            return 1

    make(tmp_path, "y", 1, 5_000)
    young = make(tmp_path, "y", 2, 10)
    run_adapter(
        site="s",
        store=store,
        executor=Site(clock, ()),
        clock=clock,
        holder="a",
        log_dir=tmp_path,
        stop=lambda: clock.now_s() > NOW_S + CLEAN_EVERY_S + 5,
        interval_s=5.0,
        retention=KEPT,
    )
    assert asked == [NOW_S, NOW_S + CLEAN_EVERY_S]
    assert [f.key for f in attempt_folders(tmp_path)] == [("y", 2)]
    assert young.is_dir()
