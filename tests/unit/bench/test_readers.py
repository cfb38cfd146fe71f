"""Traces in the public schema, Slurm's accounting, and speeds of GPU types."""

from pathlib import Path

import pytest

from phalanx.bench.heterogeneity import mixed_types
from phalanx.bench.sacct import is_sacct, read_sacct
from phalanx.bench.traces import Choice, from_files, named
from phalanx.model.errors import InvalidInput

JOBS = """job_id,team,submit_s,duration_s,num_workers,gpus_per_worker,cpu_per_worker,mem_gib_per_worker,gpu_type,priority_class,status
a,x,0,100,1,1,,,any,,
b,y,86400,200,2,8,,,any,,
c,y,90000,,1,1,,,any,,
d,x,180000,50,1,0.5,,,any,,
"""
HOSTS = "host_id,site_or_rack,gpu_type,num_gpus,cpu,mem_gib\nh0,,A100,8,,\nh1,,A100,8,,\nh2,,T4,2,,\n"
SACCT = """JobID|Account|User|Submit|Start|End|State|ReqTRES|NNodes|Timelimit
2|vision|ann|2026-01-01T00:10:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|billing=8,cpu=16,gres/gpu:a100=8,mem=64G,node=2|2|1-00:00:00
1|speech|bob|2026-01-01T00:00:00|2026-01-01T00:00:30|2026-01-01T00:01:30|FAILED|cpu=4,gres/gpu=1,mem=8000M,node=1|1|UNLIMITED
1.batch|speech|bob|2026-01-01T00:00:00|2026-01-01T00:00:30|2026-01-01T00:01:30|FAILED|cpu=4|1|
3|speech|bob|2026-01-01T00:20:00|Unknown|Unknown|PENDING|cpu=4,gres/gpu=1,mem=8000M,node=1|1|1:00:00
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "hosts.csv").write_text(HOSTS)
    (tmp_path / "sacct.txt").write_text(SACCT)
    return tmp_path


def test_days_are_cut_and_jobs_of_unknown_length_left_out(files: Path) -> None:
    whole = from_files("t", files / "jobs.csv", files / "hosts.csv", Choice(overlay=None))
    assert [each.job.id for each in whole.jobs] == ["a", "b", "d"]
    assert [each.work_s for each in whole.jobs] == [100, 200, 50]
    cut = from_files("t", files / "jobs.csv", files / "hosts.csv", Choice(from_day=1, days=1, overlay=None))
    assert [(each.job.id, each.submit_s) for each in cut.jobs] == [("b", 0)]


def test_carried_in_jobs_shrink_with_the_fleet_and_are_not_measured(files: Path) -> None:
    (files / "carry.csv").write_text(JOBS.replace("a,x", "c0,x").replace("b,y,86400", "c1,y,0").replace("d,x", "c2,x"))
    choice = Choice(hosts=2, overlay=None, days=1)
    found = from_files("t", files / "jobs.csv", files / "hosts.csv", choice, carry_in=files / "carry.csv")
    assert [(each.job.id, each.carried_in) for each in found.jobs] == [("c0", True), ("a", False), ("b", False)]


def test_a_missing_trace_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"docs/traces.md"):
        named("philly", tmp_path, Choice())


def test_a_name_twice_is_refused(files: Path) -> None:
    (files / "jobs.csv").write_text(JOBS + "a,x,181000,50,1,1,,,any,,\n")
    with pytest.raises(InvalidInput, match="'a' stands 2 times"):
        from_files("t", files / "jobs.csv", files / "hosts.csv", Choice(overlay=None))


def test_sacct_is_read_by_its_header(files: Path) -> None:
    assert is_sacct(files / "sacct.txt")
    assert not is_sacct(files / "jobs.csv")
    first, second = read_sacct(files / "sacct.txt", 10**9)
    assert (first.job.id, first.submit_s, first.duration_s) == ("1", 0, 60)
    assert first.job.walltime_limit_s is None
    assert (second.submit_s, second.duration_s, second.job.team) == (600, 7_200, "vision")
    (role,) = second.job.roles
    assert (role.count, role.request.gpu_milli, role.request.cpu_milli) == (2, 4_000, 8_000)
    assert role.request.memory_mib == 32 * 1024
    assert [choice.gpu_type for choice in role.gpu_types] == ["a100"]
    assert second.job.walltime_limit_s == 86_400


def test_sacct_jobs_can_be_a_workload(files: Path) -> None:
    found = from_files("t", files / "sacct.txt", files / "hosts.csv", Choice(overlay=None))
    assert [each.job.id for each in found.jobs] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("JobID|Submit\n1|x\n", "line 1.*Account"),
        (SACCT.replace("|2|1-00", "|two|1-00"), "line 2, NNodes.*'two'"),
        (SACCT.replace("2026-01-01T03:00:00", "soon"), "line 2, End.*'soon'"),
        (SACCT.replace("2026-01-01T03:00:00", "2025-01-01T03:00:00"), "line 2, End.*before its start"),
        (SACCT.replace("mem=64G", "mem=lots"), "line 2, ReqTRES.*lots"),
        (SACCT + "4|x\n", "line 6.*2 fields"),
        (SACCT.split("\n", 1)[0] + "\n", "no job that ran"),
    ],
)
def test_what_is_wrong_in_sacct_is_named(files: Path, text: str, told: str) -> None:
    (files / "bad.txt").write_text(text)
    with pytest.raises(InvalidInput, match=told):
        list(read_sacct(files / "bad.txt", 10**9))


def test_mixed_types_give_each_job_the_speeds_of_one_model(files: Path) -> None:
    (files / "gavel_throughputs.csv").write_text(
        "job_type,gpus,steps_per_s_k80,steps_per_s_p100,steps_per_s_v100\nA,1,2,4,8\nA,2,1,1,1\nB,1,1,1,\n"
    )
    plain = from_files("t", files / "jobs.csv", files / "hosts.csv", Choice(overlay=None))
    mixed = mixed_types(plain, files, 1)
    assert [host.gpus[0].gpu_type for host in mixed.hosts] == ["V100", "P100", "K80"]
    speeds = {choice.gpu_type: choice.throughput_milli for choice in mixed.jobs[0].job.roles[0].gpu_types}
    assert speeds == {"V100": 4_000, "P100": 2_000, "K80": 1_000}
    with pytest.raises(InvalidInput, match="gavel_throughputs"):
        mixed_types(plain, files / "nowhere", 1)
