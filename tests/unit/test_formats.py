"""docs/formats/ holds the schemas of today, and what the codec writes validates against them."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

from phalanx.api.cli.schema import file_name, schema_text
from phalanx.api.jobfile import job_from_dict
from phalanx.model.change import AddHosts, AddJobs, Change, ChangeHost, ChangeTeam
from phalanx.model.codec import KINDS, document
from phalanx.model.decision import Certificate, Decision, Grain, Reason, ReasonKind, Stage, Start
from phalanx.model.event import AgentReport, GangExited, HostChanged
from phalanx.model.host import CachedDataset, Gpu, Host, HostState
from phalanx.model.intent import Intent, RankExit, Want
from phalanx.model.job import Job
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Site, TopologyPath

FORMATS = Path(__file__).resolve().parents[2] / "docs" / "formats"


def full_job() -> Job:
    return job_from_dict(
        {
            "id": "j1",
            "name": "big",
            "gpus": 8,
            "workers": 2,
            "gpu_type": {"H100": 1, "A100": "0.5"},
            "topology": {"required": "rack"},
            "parallelism": {"pipeline": 2},
            "elastic": {"sizes": [2, 4]},
            "checkpoint": {"interval": "10m"},
            "dataset": {"name": "web", "size": "1TiB"},
            "anti_affinity": "big",
            "labels": {"a": "b"},
            "command": ["python", "x.py"],
            "env": {"A": 1},
        }
    )


def samples() -> list[object]:
    job = full_job()
    placement = Placement(
        workers=tuple(WorkerPlacement(role="worker", index=i, host=f"h{i}", gpus=tuple(range(8))) for i in (0, 1))
    )
    hosts = tuple(
        Host(
            id=f"h{i}",
            path=TopologyPath(site="s", rack="r"),
            gpus=tuple(Gpu(index=g, gpu_type="H100", memory_mib=80_000) for g in range(8)),
            cpu_milli=64_000,
            memory_mib=500_000,
            cached=(CachedDataset(dataset="web", digest="d", shards=1, shards_total=2, size_mib=3),),
        )
        for i in (0, 1)
    )
    running = JobRecord(job=job, submitted_s=1, state=JobState.RUNNING, attempt=1, placement=placement, started_s=3)
    waiting = JobRecord(job=dataclasses.replace(job, id="j2"), submitted_s=2)
    reason = Reason(job="j2", kind=ReasonKind.BUSY, subject="H100", asked=16, available=0, unit="GPU")
    certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=1, spent_ms=1, seed=1)
    return [
        job,
        Policy(),
        Snapshot(now_s=9, sites=(Site(id="s"),), hosts=hosts, jobs=(running, waiting)),
        Decision(
            snapshot_version=1,
            now_s=9,
            starts=(Start(job="j1", attempt=1, placement=placement),),
            waiting=(reason,),
            certificate=certificate,
        ),
        Intent(job=job, attempt=1, site="s", term=1, want=Want.RUN, placement=placement),
        GangExited(id="e", at_s=1, job="j1", attempt=1, exits=(RankExit(rank=0, code=0),)),
        HostChanged(id="e", at_s=1, host="h1", state=HostState.DOWN),
        AgentReport(id="e", at_s=1, host="h1", site="s", disk_free_mib=5, cached=hosts[0].cached),
        Change(
            add_hosts=(AddHosts(like="h1", count=2), AddHosts(host=hosts[0])),
            hosts=(ChangeHost(host="h1", state=HostState.DOWN, windows=()),),
            add_jobs=(AddJobs(job=job),),
            teams=(ChangeTeam(team="t", weight=3, limit=()),),
        ),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schema_is_current(kind: str) -> None:
    path = FORMATS / file_name(kind)
    assert path.is_file(), "make formats writes it"
    assert path.read_text() == schema_text(kind), "make formats brings it up to date"


def test_nothing_else_is_published() -> None:
    assert sorted(path.name for path in FORMATS.glob("*.json")) == sorted(map(file_name, KINDS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_a_schema(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(kind)))


@pytest.mark.parametrize("value", samples(), ids=lambda value: type(value).__name__)
def test_what_the_codec_writes_validates(value: object) -> None:
    plain = document(value)
    validator = jsonschema.Draft202012Validator(json.loads(schema_text(plain["kind"])))
    assert [error.message for error in validator.iter_errors(plain)] == []
    assert not validator.is_valid({**plain, "surprise": 1})
    assert not validator.is_valid({**plain, "version": 2})
