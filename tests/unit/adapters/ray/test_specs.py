"""The environment of each rank."""

from __future__ import annotations

import os

import pytest

from phalanx.adapters.ray.specs import Folders, host_specs, scrubbed
from phalanx.model.intent import Intent, Want
from phalanx.model.job import CheckpointPolicy, Command, Job, KeyValue, Role, WorkerRequest
from phalanx.model.placement import Placement, WorkerPlacement

FOLDERS = Folders(logs="/d/logs", checkpoints="/d/checkpoints", cache="/nvme/{host}")


@pytest.fixture
def intent() -> Intent:
    job = Job(
        id="j",
        team="t",
        roles=(
            Role(name="trainer", count=3, request=WorkerRequest(gpu_milli=2000)),
            Role(name="evaluator", count=1, request=WorkerRequest(cpu_milli=1000)),
        ),
        checkpoint=CheckpointPolicy(interval_s=60, uri="s3://bucket/j"),
        command=Command(
            argv=("python", "train.py"), env=(KeyValue(key="LR", value="1"), KeyValue(key="RANK", value="9"))
        ),
    )
    spots = (
        ("trainer", 0, "h0", (0, 1)),
        ("trainer", 1, "h1", (4, 6)),
        ("trainer", 2, "h0", (2, 3)),
        ("evaluator", 0, "h1", ()),
    )
    workers = tuple(WorkerPlacement(role=r, index=i, host=h, gpus=g) for r, i, h, g in spots)
    return Intent(job=job, attempt=2, site="s", term=1, want=Want.RUN, grace_s=30, placement=Placement(workers=workers))


def test_ranks_are_positions_and_local_ranks_count_on_the_host(intent: Intent) -> None:
    specs = host_specs(intent, "space", FOLDERS, ("10.0.0.1", 29_500))
    assert list(specs) == ["h0", "h1"]
    env = {rank.rank: rank.env for spec in specs.values() for rank in spec.ranks}
    assert [env[r]["RANK"] for r in range(4)] == ["0", "1", "2", "3"], "the job's own RANK does not win"
    assert [env[r]["LOCAL_RANK"] for r in range(4)] == ["0", "0", "1", "1"]
    assert [env[r]["CUDA_VISIBLE_DEVICES"] for r in range(4)] == ["0,1", "4,6", "2,3", ""]
    assert [env[r]["PHALANX_ROLE"] for r in range(4)] == ["trainer"] * 3 + ["evaluator"]
    assert {env[r]["MASTER_ADDR"] + ":" + env[r]["MASTER_PORT"] for r in range(4)} == {"10.0.0.1:29500"}
    assert {env[r]["PHALANX_CHECKPOINT_DIR"] for r in range(4)} == {"s3://bucket/j"}
    assert [env[r]["PHALANX_CACHE_DIR"] for r in range(4)] == ["/nvme/h0", "/nvme/h1", "/nvme/h0", "/nvme/h1"]
    assert {env[r]["PHALANX_REPORT_DIR"] for r in range(4)} == {os.path.join(FOLDERS.logs, "j", "2", "reports")}
    assert {env[r]["LR"] for r in range(4)} == {"1"}


def test_the_document_carries_the_identity_and_a_clean_environment(intent: Intent) -> None:
    spec = host_specs(intent, "space", FOLDERS, ("10.0.0.1", 29_500))["h0"]
    base = {"PATH": "/bin", "RAY_JOB_ID": "1", "PYTHONBREAKPOINT": "ray", "OMP_NUM_THREADS": "1"}
    document = spec.document({0: ("0.log", "0.exit"), 2: ("2.log", "2.exit")}, base, "/cwd", "/orphaned")
    env = document["ranks"][0]["env"]
    assert env["PATH"] == "/bin"
    assert not {"RAY_JOB_ID", "PYTHONBREAKPOINT", "OMP_NUM_THREADS"} & set(env)
    assert (env["PHALANX_NAMESPACE"], env["PHALANX_JOB"], env["PHALANX_ATTEMPT"], env["PHALANX_HOST"]) == (
        "space",
        "j",
        "2",
        "h0",
    )
    assert [r["cwd"] for r in document["ranks"]] == ["/cwd", "/cwd"]


def test_what_ray_and_we_put_there_is_scrubbed() -> None:
    assert scrubbed({"HOME": "/root", "PHALANX_SUPERVISOR": "1", "CUDA_VISIBLE_DEVICES": ""}) == {"HOME": "/root"}
