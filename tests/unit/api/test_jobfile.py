"""Job files: every friendly key reaches its field, and every bad file gets one sentence that says where and what."""

from pathlib import Path

import pytest

from phalanx.api.jobfile import KEYS, job_from_dict, load_jobfile, new_job_id
from phalanx.api.jobfile_yaml import MAX_BYTES, load_yaml
from phalanx.model.codec import document
from phalanx.model.errors import InvalidInput
from phalanx.model.job import Preemptible, Strictness
from phalanx.model.topology import Layer

FULL = """
id: big-1
name: Big Run
team: vision
user: ada
tier: 2
priority: -3
preemptible: by_higher
gpus: 8
workers: 4
gpu_type: {H100: 1, A100: 0.6}
gpu_memory: 40GiB
cpu: 16
memory: 128GiB
network: 100Gbps
parallelism: {pipeline: 2}
topology: {required: rack, preferred: [zone, nvlink]}
cross_site: false
off_premises: true
sites: [s1]
anti_affinity: {label: big, layer: rack}
walltime: 2-00:00:00
estimate: 1.5h
checkpoint: {interval: 10m, write: 30s, restart: 1m, grace: 60s, uri: "s3://b/c"}
elastic: {sizes: [2, 4]}
dataset: {name: web, size: 2TiB, shards: 100, digest: d0}
queue_deadline: 1w
start_timeout: 5m
finish_by: 2027-03-01T18:00:00+01:00
after: [j0]
movable: false
max_restarts: 1
labels: {kind: lm}
env: {LR: 0.1, DEBUG: no, N: 3}
workdir: /srv
command: python train.py --name "a b"
"""


def parse(text: str):  # type: ignore[no-untyped-def]
    return job_from_dict(load_yaml(text.encode()))


def test_every_key_reaches_its_field() -> None:
    job = parse(FULL)
    role = job.roles[0]
    assert (job.id, job.name, job.team, job.user, job.tier, job.priority) == (
        "big-1",
        "Big Run",
        "vision",
        "ada",
        2,
        -3,
    )
    assert (role.name, role.count) == ("worker", 4)
    request = role.request
    assert (request.gpu_milli, request.gpu_memory_mib, request.cpu_milli) == (8000, 40 * 1024, 16_000)
    assert (request.memory_mib, request.network_mbps) == (128 * 1024, 100_000)
    assert [(c.gpu_type, c.throughput_milli) for c in role.gpu_types] == [("H100", 1000), ("A100", 600)]
    assert role.parallelism is not None
    assert (role.parallelism.tensor, role.parallelism.pipeline, role.parallelism.data) == (1, 2, 2)
    assert [(c.layer, c.strictness) for c in job.topology] == [
        (Layer.RACK, Strictness.REQUIRED),
        (Layer.ZONE, Strictness.PREFERRED),
        (Layer.NVLINK, Strictness.PREFERRED),
    ]
    assert (job.cross_site, job.off_premises, job.sites) == (False, True, ("s1",))
    assert [(a.label, a.layer) for a in job.anti_affinity] == [("big", Layer.RACK)]
    assert (job.walltime_limit_s, job.walltime_estimate_s) == (172_800, 5_400)
    assert job.checkpoint is not None
    assert (job.checkpoint.interval_s, job.checkpoint.write_s, job.checkpoint.restart_s) == (600, 30, 60)
    assert (job.checkpoint.grace_s, job.checkpoint.uri) == (60, "s3://b/c")
    assert job.elastic is not None
    assert (job.elastic.role, job.elastic.sizes) == ("worker", (2, 4))
    assert job.dataset is not None
    assert (job.dataset.name, job.dataset.size_mib, job.dataset.shards) == ("web", 2 * 1024 * 1024, 100)
    assert (job.queue_deadline_s, job.start_timeout_s, job.finish_by_s) == (604_800, 300, 1_803_920_400)
    assert (job.after, job.movable, job.max_restarts) == (("j0",), False, 1)
    assert job.preemptible is Preemptible.BY_HIGHER
    assert job.command is not None
    assert job.command.argv == ("python", "train.py", "--name", "a b")
    assert job.command.workdir == "/srv"
    assert {pair.key: pair.value for pair in job.command.env} == {"LR": "0.1", "DEBUG": "no", "N": "3"}


def test_the_document_form_is_accepted_too() -> None:
    job = parse(FULL)
    assert job_from_dict(document(job)) == job


def test_roles_and_defaults() -> None:
    job = parse("roles: [{name: trainer, workers: 8, gpus: 1}, {name: evaluator, cpu: 4, memory: 8GiB}]")
    assert [(role.name, role.count, role.request.gpu_milli) for role in job.roles] == [
        ("trainer", 8, 1000),
        ("evaluator", 1, 0),
    ]
    assert job.team == "default"
    assert (job.roles[0].request.cpu_milli, job.roles[0].request.memory_mib) == (1000, 1024)


def test_fractions_are_exact() -> None:
    assert [parse(f"gpus: {text}").gpu_milli for text in ("0.1", "0.9", '"0.125"', "500m", ".5")] == [
        100,
        900,
        125,
        500,
        500,
    ]


def test_ids_are_slugs_with_a_random_tail() -> None:
    assert new_job_id("Résnet 50!").startswith("r-snet-50-")
    assert new_job_id("").startswith("job-")
    assert job_from_dict({"gpus": 1}, default_id="mine").id == "mine"
    assert len({new_job_id("x") for _ in range(20)}) > 15


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("gpus: .nan", "gpus", "cannot be booked"),
        ("gpus: -1", "gpus", "negative"),
        ("gpus: 1.5", "gpus", "neither a fraction"),
        ("gpus: 1e400", "gpus", "cannot be booked"),
        ("gpu: 8", "gpu", "unknown key"),
        ("gpus: 8\nmemory: 80GX", "memory", "unknown unit"),
        ("gpus: 8\nmemory: 80", "memory", "no unit"),
        ("gpus: 8\nwalltime: 4", "walltime", "no unit"),
        ("gpus: 8\nworkers: 0", "workers", "out of range"),
        ("gpus: 8\ntier: 5", "tier", "no tier 5"),
        ("gpus: 8\npreemptible: yes", "preemptible", "not known"),
        ("gpus: 8\ntopology: {required: rak}", "topology.required", "not known"),
        ("gpus: 8\ntopology: rack", "topology", "not a mapping"),
        ("gpus: 8\nelastic: {sizes: [4, 2]}", "elastic.sizes", "does not rise"),
        ("gpus: 8\nafter: [a, a]", "after", "twice"),
        ("gpus: 8\ncheckpoint: {grace: 1m}", "checkpoint.interval", "missing"),
        ("gpus: 8\ncheckpoint: {interval: 0s}", "checkpoint.interval", "out of range"),
        ("gpus: 8\nfinish_by: 2027-03-01", "finish_by", "no offset"),
        ("gpus: 8\nworkers: 3\nparallelism: {tensor: 2}", "parallelism", "not whole groups"),
        ("gpus: 8\nworkers: 3\nparallelism: {tensor: 2, data: 1}", "parallelism", "count is 3"),
        ("gpus: 8\nenv: {A: 1}", "command", "missing"),
        ("gpus: 8\ncommand: 'a \"b'", "command", "split into words"),
        ("gpus: 8\nroles: []", "gpus", "beside roles"),
        ("roles: [{gpus: 1}, {name: b, gpus: -1}]", "roles[1].gpus", "negative"),
        ("roles: [{gpus: 1.5}]", "roles[0].gpus", "neither"),
        ("roles: 3", "roles", "not a list"),
        ("name: x", "", "asks for nothing"),
        ("gpus: 8\nteam: ../x", "team", "not a name"),
        ("gpus: 8\ngpu_type: [H100, H100]", "gpu_type", "twice"),
        ("gpus: 8\nid: j\nafter: j", "after", "waits for itself"),
        ("5", "", "not a mapping"),
        ("", "", "not a mapping"),
        ("kind: phalanx.jobs", "kind", "phalanx.jobs"),
    ],
)
def test_bad_values_name_their_key(text: str, path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    assert caught.value.path == path
    assert said in caught.value.problem
    assert caught.value.expected


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"gpus: [1", "line 1"),
        (b"gpus: 1\ngpus: 2", "stands twice"),
        (b"a: &x 1\nb: *x", "alias"),
        (b"!!python/object/apply:os.system ['x']", "constructor"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"\x00\x01", "cannot stand"),
        (b"[" * 500, "not YAML"),
        (b"? [a]\n: 1", "key is no text"),
        (b"x" * (MAX_BYTES + 1), "larger than 2 MiB"),
        (b"a: 1\n--- \nb: 2", "not YAML"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(raw)
    with pytest.raises(InvalidInput) as caught:
        load_jobfile(file)
    assert caught.value.path == str(file)
    assert said in caught.value.problem


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        load_jobfile(tmp_path / "none.yaml")


def test_near_keys_are_suggested() -> None:
    for wrong, right in (("walltime_limit", "walltime"), ("gpu_types", "gpu_type"), ("dependencies", "")):
        with pytest.raises(InvalidInput) as caught:
            job_from_dict({"gpus": 1, wrong: 1})
        assert right in caught.value.expected
    assert len(set(KEYS)) == len(KEYS)
