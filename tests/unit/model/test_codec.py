"""The JSON form: round trips are the identity, and bad input names its path and what would be right."""

import json

import pytest

from phalanx.model import codec
from phalanx.model.errors import InvalidInput
from phalanx.model.event import GangExited
from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.intent import RankExit
from phalanx.model.job import GpuTypeChoice, Job, Role, TopologyConstraint, WorkerRequest
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Layer, Site, TopologyPath


def job() -> Job:
    request = WorkerRequest(gpu_milli=8000, cpu_milli=16_000, memory_mib=65_536)
    role = Role(name="trainer", count=2, request=request, gpu_types=(GpuTypeChoice(gpu_type="H100"),))
    constraint = TopologyConstraint(layer=Layer.RACK)
    return Job(id=JobId("j1"), team=TeamId("vision"), roles=(role,), topology=(constraint,))


def snapshot() -> Snapshot:
    gpus = tuple(Gpu(index=i, gpu_type="H100", memory_mib=81_559) for i in range(8))
    path = TopologyPath(site=SiteId("s1"), rack="r1")
    host = Host(id=HostId("h1"), path=path, gpus=gpus, cpu_milli=64_000, memory_mib=1_000_000)
    record = JobRecord(job=job(), submitted_s=5)
    return Snapshot(now_s=10, sites=(Site(id=SiteId("s1")),), hosts=(host,), jobs=(record,), store_version=7)


def test_round_trip_is_the_identity() -> None:
    for value, cls in ((snapshot(), Snapshot), (Policy(), Policy), (job(), Job)):
        assert codec.loads(codec.dumps(value), cls) == value


def test_no_document_has_a_field_of_the_envelope() -> None:
    for kind, cls in codec.KINDS.items():
        for member in codec.union_members(cls) or (cls,):
            assert not {"kind", "version", "type"} & set(codec.fields_of(member)), kind


def test_union_members_carry_their_type() -> None:
    event = GangExited(id="e1", at_s=3, job=JobId("j1"), attempt=1, exits=(RankExit(rank=0, code=-15),))
    document = codec.document(event)
    assert document["type"] == "gang_exited"
    assert codec.from_document(document, codec.KINDS["phalanx.event"]) == event


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        (lambda d: d["hosts"][0].pop("cpu_milli"), "hosts[0].cpu_milli", "Host"),
        (lambda d: d["hosts"][0]["gpus"][1].update(memory_mib=-3), "hosts[0].gpus[1].memory_mib", "MiB"),
        (lambda d: d["jobs"][0]["job"]["roles"][0]["request"].update(gpu_milli=0.5), "jobs[0].job.roles[0].request.gpu_milli", "integer"),
        (lambda d: d["jobs"][0]["job"]["roles"][0]["request"].update(gpu_milli=1500), "jobs[0].job.roles[0].request.gpu_milli", "multiple of 1000"),
        (lambda d: d["jobs"][0]["job"].update(teem="x"), "jobs[0].job.teem", "team"),
        (lambda d: d["hosts"][0]["path"].update(site="s9"), "hosts[0].path.site", "s1"),
        (lambda d: d["jobs"][0].update(state="quedue"), "jobs[0].state", "queued"),
        (lambda d: d.update(version=99), "version", "1"),
        (lambda d: d.update(kind="phalanx.job"), "kind", "phalanx.snapshot"),
        (lambda d: d.update(hosts={}), "hosts", "a list"),
    ],
)  # fmt: skip
def test_bad_input_names_path_and_expectation(change, path, expected) -> None:  # type: ignore[no-untyped-def]
    document = codec.document(snapshot())
    change(document)
    with pytest.raises(InvalidInput) as caught:
        codec.from_document(document, Snapshot)
    assert caught.value.path == path
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    "text", ['{"kind": NaN}', '{"kind": ', b"\xff\xfe\x00", "[1]", "7", '{"a":1,"a":2}', "[" * 9000]
)
def test_broken_json_is_refused(text) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput):
        codec.loads(text, Snapshot)


def test_output_is_compact_json_without_defaults() -> None:
    text = codec.dumps(snapshot())
    assert "spare" not in text
    assert json.loads(text)["kind"] == "phalanx.snapshot"
