"""`phalanx solve` and `phalanx verify` on files: what they print, when they say no, and how little they load."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.model.codec import document, dumps, loads
from phalanx.model.decision import Decision
from phalanx.model.host import Gpu, Host
from phalanx.model.job import Command, Job, Role, WorkerRequest
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Site, TopologyPath

NOT_NEEDED = ("sqlalchemy", "alembic", "fastapi", "uvicorn", "pydantic", "ray", "torch", "httpx")


def job(name: str, gpus: int, workers: int = 1) -> Job:
    request = WorkerRequest(gpu_milli=1000 * gpus, cpu_milli=1000, memory_mib=1024)
    return Job(id=name, team="t", roles=(Role(count=workers, request=request),), command=Command(argv=("true",)))


@pytest.fixture
def snapshot() -> Snapshot:
    gpus = tuple(Gpu(index=index, gpu_type="H100", memory_mib=80_000) for index in range(8))
    hosts = tuple(
        Host(id=f"h{number}", path=TopologyPath(site="s"), gpus=gpus, cpu_milli=64_000, memory_mib=500_000)
        for number in (1, 2)
    )
    records = tuple(JobRecord(job=job(*asked), submitted_s=5) for asked in (("fits", 8), ("small", 2), ("big", 8, 2)))
    return Snapshot(now_s=100, sites=(Site(id="s"),), hosts=hosts, jobs=records)


@pytest.fixture
def files(snapshot: Snapshot, tmp_path: Path):
    """The snapshot and its decision as files."""
    (tmp_path / "snapshot.json").write_text(dumps(snapshot))
    return tmp_path / "snapshot.json", tmp_path / "decision.json"


def test_solve_prints_goals_starts_and_reasons(bare, files) -> None:
    told = bare("solve", files[0])
    assert told.code == 0, told.err
    for part in ("start[1]", "proven", "Starts", "Waiting", "big"):
        assert part in told.out


def test_solve_json_is_a_decision_and_verify_accepts_it(bare, files, snapshot) -> None:
    told = bare("solve", files[0], "--json", "--out", files[1], "--budget", "1", "--seed", "7")
    decision = loads(told.out, Decision)
    assert decision == loads(files[1].read_text(), Decision)
    assert decision.certificate.seed == 7
    assert sorted([start.job for start in decision.starts] + [reason.job for reason in decision.waiting]) == [
        *("big", "fits", "small"),
    ]
    assert bare("verify", *files).code == 0
    assert json.loads(bare("verify", *files, "--json").out) == {"valid": True, "violations": []}


def test_verify_lists_all_violations(bare, files) -> None:
    bare("solve", files[0], "--out", files[1])
    decision = loads(files[1].read_text(), Decision)
    twice = dataclasses.replace(decision, starts=decision.starts * 2)
    files[1].write_text(dumps(twice))
    told = bare("verify", *files)
    assert (told.code, "violations" in told.out) == (1, True)
    listed = json.loads(bare("verify", *files, "--json").out)
    assert listed["valid"] is False
    assert len(listed["violations"]) >= 2


def test_policy_of_toml_and_json(bare, files, tmp_path) -> None:
    (tmp_path / "p.toml").write_text("[policy.solve]\nbudget_ms = 500\nseed = 3\n")
    (tmp_path / "plain.toml").write_text("[solve]\nseed = 4\n")
    (tmp_path / "p.json").write_text('{"kind": "phalanx.policy", "version": 1, "solve": {"seed": 5}}')
    for name, seed in (("p.toml", 3), ("plain.toml", 4), ("p.json", 5)):
        told = bare("solve", files[0], "--json", "--policy", tmp_path / name)
        assert json.loads(told.out)["certificate"]["seed"] == seed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["hosts"][0].pop("cpu_milli"), "hosts[0].cpu_milli"),
        (lambda d: d["hosts"][0]["gpus"][0].update(memory_mib=-1), "hosts[0].gpus[0].memory_mib"),
        (lambda d: d["jobs"][0]["job"]["roles"][0]["request"].update(gpu_milli=0.5), "whole number"),
        (lambda d: d["jobs"][0]["job"].update(after=["fits"]), "waits for itself"),
        (lambda d: d.update(kind="phalanx.decision"), "phalanx.snapshot"),
        (lambda d: d.update(version=9), "version"),
    ],
)
def test_bad_snapshots_are_exit_code_2(bare, files, snapshot, change, said) -> None:
    data = document(snapshot)
    change(data)
    files[0].write_text(json.dumps(data))
    told = bare("solve", files[0])
    assert (told.code, told.out) == (2, "")
    assert said in " ".join(told.err.split())
    assert str(files[0]) in told.err.replace("\n", "")


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\x00", b'{"kind": NaN}', b"[]", b"[" * 20_000])
def test_broken_files_are_exit_code_2(bare, files, raw) -> None:
    files[0].write_bytes(raw)
    assert bare("solve", files[0]).code == 2
    assert bare("verify", files[0], files[0]).code == 2


@pytest.mark.parametrize(
    "argv",
    [("--budget", "-1"), ("--budget", "nan"), ("--seed", "-1"), ("--policy", "/none.toml"), ("--out", "/proc/no/x")],
)
def test_bad_options_are_exit_code_2(bare, files, argv) -> None:
    assert bare("solve", files[0], *argv).code == 2


def test_a_wrong_policy_names_its_key(bare, files, tmp_path) -> None:
    (tmp_path / "p.toml").write_text("[solve]\nbudged_ms = 500\n")
    told = bare("solve", files[0], "--policy", tmp_path / "p.toml")
    assert (told.code, "budget_ms" in told.err) == (2, True)
    (tmp_path / "p.toml").write_text("[solve\n")
    assert bare("solve", files[0], "--policy", tmp_path / "p.toml").code == 2


@pytest.mark.parametrize("command", ["solve", "verify"])
def test_neither_database_nor_ray_nor_torch_is_loaded(bare, files, command) -> None:
    bare("solve", files[0], "--out", files[1])
    argv = [command, str(files[0]), *([str(files[1])] if command == "verify" else [])]
    code = (
        "import json, sys\nfrom phalanx.api.cli.root import run\n"
        f"assert run({argv!r}) == 0\nprint(json.dumps(sorted(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    loaded = json.loads(told.stdout.splitlines()[-1])
    assert [name for name in NOT_NEEDED if name in loaded] == []
