"""Trace import: rows become hosts and jobs, and what runs at time T is placed as the verifier would have it."""

import csv
import dataclasses
import os
from pathlib import Path

import pytest

from phalanx.api.trace_csv import HOST_COLUMNS, JOB_COLUMNS
from phalanx.api.traces import ImportedTrace, import_trace
from phalanx.model.decision import Start
from phalanx.model.errors import InvalidInput
from phalanx.model.job import Preemptible
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.verify import verify_starts

HOSTS = [
    ("h0", "G1/P1/S1", "V100M32", 8, "", ""),
    ("h1", "G1/P1/S2", "gpu24gb", 8, 96, 512),
    ("h2", "G1/P1/S2", "gpu24gb", 8, 96, 512),
    ("h3", "G1/P1/S2", "", 0, 32, 64),
]


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(name: str, columns: tuple[str, ...], rows) -> Path:  # type: ignore[no-untyped-def]
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *rows])
        return path

    return write


@pytest.fixture
def run(write):  # type: ignore[no-untyped-def]
    def run(jobs, at_s: int, hosts=HOSTS, **options) -> ImportedTrace:  # type: ignore[no-untyped-def]
        return import_trace(
            write("toy2020.jobs.csv", JOB_COLUMNS, jobs),
            write("toy2020.hosts.csv", HOST_COLUMNS, hosts),
            at_s,
            **options,
        )

    return run


def job(
    name: str, submit: object, duration: object, workers: object = 1, gpus: object = 8, **more: object
) -> tuple[object, ...]:
    row = {"team": "t", "cpu": 1, "mem": 1, "kind": "any", "priority": ""} | more
    return (name, row["team"], submit, duration, workers, gpus, row["cpu"], row["mem"], row["kind"], row["priority"])


def states(snapshot: Snapshot) -> dict[str, JobState]:
    return {record.id: record.state for record in snapshot.jobs}


def assert_legal(snapshot: Snapshot) -> None:
    """Every running gang, taken as a start into the empty fleet, breaks no rule."""
    queued, starts = [], []
    for record in snapshot.jobs:
        if record.placement:
            starts.append(Start(job=record.id, attempt=1, placement=record.placement))
            queued.append(JobRecord(job=record.job, submitted_s=record.submitted_s))
    assert verify_starts(dataclasses.replace(snapshot, jobs=tuple(queued)), Policy(), starts) == ()


def test_rows_become_hosts(run) -> None:  # type: ignore[no-untyped-def]
    hosts = run([job("a", 0, 9)], 1).snapshot.hosts
    assert [(h.path.site, h.path.zone, h.path.rack) for h in hosts[:2]] == [("G1", "P1", "S1"), ("G1", "P1", "S2")]
    assert [h.gpus[0].memory_mib // 1024 if h.gpus else 0 for h in hosts] == [32, 24, 24, 0]
    assert [(h.cpu_milli, h.memory_mib) for h in hosts[:2]] == [(128_000, 1024 * 1024), (96_000, 512 * 1024)]


def test_rows_become_jobs(run) -> None:  # type: ignore[no-untyped-def]
    rows = [
        job("share", 1, 99, gpus="0.46", cpu="3.152", mem="5.46875", kind="G2|gpu24gb", priority="BE"),
        job("plain", 2, 99, cpu="", mem=""),
        job("cpu", 3, 99, gpus=0, kind="none", priority="LS"),
    ]
    by_id = {record.id: record.job for record in run(rows, 5).snapshot.jobs}
    request = by_id["share"].roles[0].request
    assert (request.gpu_milli, request.cpu_milli, request.memory_mib) == (460, 3152, 5600)
    assert [choice.gpu_type for choice in by_id["share"].roles[0].gpu_types] == ["G2", "gpu24gb"]
    assert by_id["share"].preemptible is Preemptible.ANYTIME
    assert (by_id["plain"].roles[0].request.cpu_milli, by_id["plain"].level) == (64_000, 1)
    assert by_id["cpu"].roles[0].request.gpu_milli == 0


def test_the_past_is_replayed(run) -> None:  # type: ignore[no-untyped-def]
    rows = [
        job("gone", 0, 10),
        job("runs", 0, 100, workers=2),
        job("waits", 5, 50, workers=2),
        job("small", 6, 100, gpus=4),
        job("later", 31, 5),
    ]
    trace = run(rows, 30)
    assert states(trace.snapshot) == {
        "runs": JobState.RUNNING,
        "waits": JobState.QUEUED,
        "small": JobState.RUNNING,
    }
    assert (trace.ended, trace.running, trace.waiting, trace.gpus, trace.gpus_held) == (1, 2, 1, 24, 20)
    records = {record.id: record for record in trace.snapshot.jobs}
    assert (records["small"].started_s, records["small"].submitted_s, records["small"].attempt) == (10, 6, 1)
    assert_legal(trace.snapshot)


def test_the_oldest_waiting_job_starts_first_and_smaller_ones_fill_gaps(run) -> None:  # type: ignore[no-untyped-def]
    rows = [
        job("full", 0, 20, workers=3, kind="any"),
        job("wide", 0, 20, workers=2, kind="gpu24gb"),
        job("old", 1, 99),
        job("new", 2, 99),
        job("young", 3, 99),
    ]
    # `full` can never run: three hosts of one type do not exist; it blocks nobody.
    trace = run(rows, 25)
    assert states(trace.snapshot)["full"] is JobState.QUEUED
    starts = {record.id: record.started_s for record in trace.snapshot.jobs}
    assert (starts["old"], starts["new"], starts["young"]) == (1, 20, 20)
    assert_legal(trace.snapshot)


def test_undecided_leaves_work_to_decide(run) -> None:  # type: ignore[no-untyped-def]
    rows = [job("early", 0, 1000), job("ended", 1, 30), job("late", 50, 1000)]
    assert states(run(rows, 60, undecided_s=20).snapshot) == {"early": JobState.RUNNING, "late": JobState.QUEUED}
    everything = run(rows, 60, undecided_s=60)
    assert (everything.running, everything.waiting) == (0, 3)


def test_shares_pack_within_a_team(run) -> None:  # type: ignore[no-untyped-def]
    rows = [
        job(f"j{i}", i, 500, gpus=share, team=team)
        for i, (share, team) in enumerate([("0.5", "a"), ("0.5", "b"), ("0.4", "a"), ("0.2", "a"), ("0.6", "b")])
    ]
    trace = run(rows, 10, hosts=HOSTS[:1])
    cards = {record.id: record.placement.workers[0].gpus for record in trace.snapshot.jobs if record.placement}
    assert cards == {"j0": (0,), "j1": (1,), "j2": (0,), "j3": (2,), "j4": (3,)}
    assert_legal(trace.snapshot)


def test_without_duration_a_job_never_ends_and_zero_ends_at_once(run) -> None:  # type: ignore[no-untyped-def]
    rows = [job("zero", 0, 0), job("forever", 0, "")]
    assert states(run(rows, 10**6).snapshot) == {"forever": JobState.RUNNING}


def test_random_worlds_are_legal(run) -> None:  # type: ignore[no-untyped-def]
    import random

    rng = random.Random(7)
    rows = []
    for number in range(300):
        gpus = rng.choice(["0.25", "0.6", 1, 2, 4, 8, 8])
        workers = rng.choice([1, 1, 2, 3]) if gpus in (1, 2, 4, 8) else 1
        kind = rng.choice(["any", "gpu24gb", "V100M32|gpu24gb"])
        rows.append(
            job(
                f"j{number}",
                number * 7,
                rng.randint(0, 400),
                workers,
                gpus,
                team=rng.choice("ab"),
                kind=kind,
                cpu=rng.choice([1, 12]),
            )
        )
    for at_s in (200, 900, 2100):
        snapshot = run(rows, at_s).snapshot
        assert any(record.placement for record in snapshot.jobs)
        assert_legal(snapshot)


def test_carried_in_jobs_come_first(run, write) -> None:  # type: ignore[no-untyped-def]
    before = write("carry.csv", JOB_COLUMNS, [job("c0", 0, 100, workers=2, kind="gpu24gb")])
    trace = run([job("a", 1, 10, kind="gpu24gb")], 5, carry_in=before)
    assert states(trace.snapshot) == {"c0": JobState.RUNNING, "a": JobState.QUEUED}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (job("a", "x", 1), "line 2, submit_s"),
        (job("a", "", 1), "line 2, submit_s"),
        (job("a", 0, "nan"), "line 2, duration_s"),
        (job("a", 0, 1, gpus="-1"), "line 2, gpus_per_worker"),
        (job("a", 0, 1, gpus="1.5"), "line 2, gpus_per_worker: 1500"),
        (job("a", 0, 1, workers="0"), "line 2, num_workers"),
        (job("a/b", 0, 1), "line 2, job_id"),
        (("a", "t", 0), "line 2"),
    ],
)
def test_bad_rows_name_line_and_column(run, row, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput) as caught:
        run([row], 5)
    assert said in str(caught.value)


def test_bad_files_are_told(run, write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    good = write("h.csv", HOST_COLUMNS, HOSTS)
    with pytest.raises(InvalidInput, match=r"docs/traces\.md"):
        import_trace(tmp_path / "none.csv", good, 5)
    with pytest.raises(InvalidInput, match="no column 'job_id'"):
        import_trace(good, good, 5)
    (tmp_path / "binary").write_bytes(b"\xff\x00\x01")
    with pytest.raises(InvalidInput, match="not CSV"):
        import_trace(tmp_path / "binary", good, 5)
    with pytest.raises(InvalidInput, match="stands twice"):
        run([job("a", 0, 1), job("a", 1, 1)], 5)
    with pytest.raises(InvalidInput, match="has no hosts"):
        run([], 5, hosts=[])


def traces() -> Path | None:
    named = os.environ.get("PHALANX_TRACES")
    folder = Path(named) if named else Path(__file__).resolve().parents[4] / "shared" / "traces"
    return folder if (folder / "lingjun2023.jobs.csv").is_file() else None


@pytest.mark.parametrize(
    ("jobs", "hosts", "at_s"),
    [
        ("lingjun2023", "lingjun2023_fleet256", 5 * 86_400),
        ("philly2017", "philly2017", 86_400),
        ("openb2023", "openb2023", 120 * 86_400),
    ],
)
def test_the_public_traces_are_read(jobs: str, hosts: str, at_s: int) -> None:
    folder = traces()
    if folder is None:
        pytest.skip("no traces: name their folder in PHALANX_TRACES (docs/traces.md)")
    trace = import_trace(folder / f"{jobs}.jobs.csv", folder / f"{hosts}.hosts.csv", at_s, undecided_s=3_600)
    assert trace.running > 0
    assert trace.gpus_held <= trace.gpus
    assert_legal(trace.snapshot)
