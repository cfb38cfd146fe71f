"""`phalanx whatif` on files and live, and the forecast in `job` and `why`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.api.forecasts import Forecasts
from phalanx.model.change import AddHosts, Change
from phalanx.model.codec import dumps
from phalanx.model.host import Gpu, Host
from phalanx.model.job import Job, Role, WorkerRequest
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Site, TopologyPath


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """One host of 8 GPUs and two gangs of 8."""
    gpus = tuple(Gpu(index=index, gpu_type="H100", memory_mib=80_000) for index in range(8))
    host = Host(id="h1", path=TopologyPath(site="s"), gpus=gpus, cpu_milli=64_000, memory_mib=500_000)
    role = Role(request=WorkerRequest(gpu_milli=8_000))
    jobs = tuple(
        JobRecord(job=Job(id=name, team="t", roles=(role,), walltime_limit_s=3_600), submitted_s=40 + n)
        for n, name in enumerate(("a", "b"))
    )
    path = tmp_path / "snapshot.json"
    path.write_text(dumps(Snapshot(now_s=1_000, sites=(Site(id="s"),), hosts=(host,), jobs=jobs)))
    return path


def test_tables_of_both_sides(bare, snapshot) -> None:
    done = bare("whatif", snapshot, "--add-hosts", "h1=1", "--price", "H100=2.5")
    assert (done.code, done.err) == (0, "")
    lines = {" ".join(line.split()) for line in done.out.splitlines()}
    assert "GPUs held 8 of 8 16 of 16" in lines
    assert "jobs that start now 1 2" in lines
    assert "mean wait 46m 19s 15m 59s" in lines
    assert "room for 1 x 8 H100 in one host 0 0" in lines
    assert "cost per hour 20.00 40.00" in lines
    assert "Waiting jobs: 1 same, 1 sooner." in lines
    assert any(line.startswith("b sooner starts about 01:17 UTC (in 1 h 1 min)") for line in lines)


def test_json_and_every_flag(bare, snapshot, tmp_path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: more\nteam: t\ngpus: 1\ncommand: [a]\n")
    change = tmp_path / "change.json"
    change.write_text(dumps(Change(add_hosts=(AddHosts(like="h1"),))))
    flags = ["--change", change, "--add-hosts", "h1=2", "--host-state", "h1=cordoned", "--add-job", f"{job}=3"]
    flags += ["--remove-job", "b", "--team-weight", "t=7", "--set", "objective.room_s=0", "--json"]
    done = bare("whatif", snapshot, *flags)
    assert done.code == 0, done.err
    seen = json.loads(done.out)
    assert (seen["today"]["hosts"], seen["then"]["hosts"], seen["then"]["starting"]) == (1, 4, 4)
    assert seen["verdicts"] == {"gone": 1, "new": 3, "same": 1}
    gone = json.loads(bare("whatif", snapshot, "--remove-host", "h1", "--json").out)
    assert (gone["then"]["capacity_milli"], gone["then"]["waits"]["untold"]) == (0, 2)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--add-hosts", "h1"), "HOST=N"),
        (("--add-hosts", "h9=1"), "no host 'h9'"),
        (("--add-hosts", "h1=x"), "not a whole number"),
        (("--add-hosts", "h1=0"), "out of range"),
        (("--host-state", "h1=gone"), "no state of a host"),
        (("--remove-host", "nope"), "no host 'nope'"),
        (("--remove-host", "h1", "--remove-host", "h1"), "stands twice"),
        (("--price", "H100=dear"), "not an amount"),
        (("--price", "H100=0.0001"), "cannot be booked"),
        (("--price", "H100=NaN"), "cannot be booked"),
        (("--set", "nothing=1"), "no number of the policy"),
        (("--add-job", "missing.yaml"), "missing.yaml"),
        (("--change", "missing.json"), "missing.json"),
        (("--live",), "neither or both"),
    ],
)
def test_nonsense_is_one_paragraph_and_exit_2(bare, snapshot, flags, told) -> None:
    done = bare("whatif", snapshot, *flags)
    assert done.code == 2
    assert told in " ".join(done.err.split())
    assert "\n\n" not in done.err.strip()
    assert done.out == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind":"phalanx.change","version":1,"add_hosts":[{"like":1}]}', "\0"]
)
def test_broken_change_files(bare, snapshot, tmp_path, text) -> None:
    change = tmp_path / "broken.json"
    change.write_text(text)
    done = bare("whatif", snapshot, "--change", change)
    assert (done.code, done.out) == (2, "")
    assert "broken.json" in done.err


def test_a_file_needs_neither_database_nor_web(snapshot) -> None:
    code = (
        "import sys; from phalanx.api.cli.root import run; "
        f"code = run(['whatif', {str(snapshot)!r}, '--add-hosts', 'h1=1']); "
        "print([m for m in ('sqlalchemy', 'fastapi', 'pydantic', 'ray', 'torch', 'httpx') if m in sys.modules], code)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "[] 0"


@pytest.fixture
def queue(kit, store, clock, monkeypatch):
    """Two jobs of which the fleet holds one."""
    patience = {**Forecasts.__init__.__kwdefaults__, "patience_s": 60.0}
    monkeypatch.setattr(Forecasts.__init__, "__kwdefaults__", patience)
    for name in ("a", "b"):
        store.submit(kit.job(name, gpus=4, walltime_limit_s=1_000, walltime_estimate_s=300), now_s=clock.now_s())


def test_live(queue, phalanx) -> None:
    done = phalanx("whatif", "--live", "--add-hosts", "s1=1", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["verdicts"] == {"same": 1, "sooner": 1}
    wrong = phalanx("whatif", "--live", "--add-hosts", "s9=1")
    assert wrong.code == 2
    assert "there is no host 's9'" in " ".join(wrong.err.split())


def test_job_and_why_tell_the_forecast(queue, phalanx) -> None:
    told = "starts about 22:19 UTC (in 6 min); 11m 40s later if all jobs before it run to their limits"
    assert told in " ".join(phalanx("job", "b").out.split())
    assert f"forecast: it {told}" in phalanx("why", "b").out
    assert json.loads(phalanx("why", "b", "--json").out)["forecast"]["basis"] == "estimate"
