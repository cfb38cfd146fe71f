"""`phalanx submit`: flags and files become the right job, and what is wrong is said with the right exit code."""

import json
from dataclasses import replace

import pytest

from phalanx.api.cli import sbatch
from phalanx.model.errors import InvalidInput
from phalanx.model.job import Preemptible


@pytest.fixture
def submitted(phalanx, store):
    """Submits with these arguments and returns the stored job."""

    def submitted(*argv):
        told = phalanx("submit", "--json", "-A", "vision", *argv)
        assert told.code == 0, told.err
        return store.job(json.loads(told.out)["job"]).job

    return submitted


def test_flags_describe_a_job(submitted) -> None:
    job = submitted(
        *("--name", "fit", "--gpus", "0.5", "--workers", "2", "--gpu-type", "H100", "--gpu-type", "T4", "--cpu", "2"),
        *(
            "--memory",
            "4GiB",
            "--walltime",
            "4h",
            "--priority",
            "-5",
            "--tier",
            "4",
            "--site",
            "north",
            "--preemptible",
        ),
        *("--label", "a=b=c", "--env", "X=", "--workdir", "/srv", "--", "python", "train.py", "--gpus", "9"),
    )
    role = job.roles[0]
    assert (role.count, role.request.gpu_milli, role.request.cpu_milli, role.request.memory_mib) == (2, 500, 2000, 4096)
    assert [choice.gpu_type for choice in role.gpu_types] == ["H100", "T4"]
    assert (job.name, job.walltime_limit_s, job.priority, job.tier, job.sites) == ("fit", 14_400, -5, 4, ("north",))
    assert job.preemptible is Preemptible.ANYTIME
    assert [(pair.key, pair.value) for pair in job.labels] == [("a", "b=c")]
    assert job.command.argv == ("python", "train.py", "--gpus", "9")
    assert (job.command.workdir, [(pair.key, pair.value) for pair in job.command.env]) == ("/srv", [("X", "")])


def test_flags_override_the_file(submitted, tmp_path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ngpus: 8\nlabels: {x: 1, y: 2}\ncommand: python a.py\n")
    job = submitted(file, "--gpus", "1", "--label", "y=3", "--", "python", "b.py")
    assert (job.name, job.gpu_milli, job.command.argv) == ("a", 1000, ("python", "b.py"))
    assert {pair.key: pair.value for pair in job.labels} == {"x": "1", "y": "3"}


def test_sbatch_flags(submitted) -> None:
    job = submitted(
        *("--job-name=big", "--nodes=4", "--ntasks-per-node=8", "--gres=gpu:h100:8", "--time=2-00:00:00", "--mem=64G"),
        *("--cpus-per-task=16", "--qos=production", "--partition=south", "--no-requeue", "--", "srun", "x"),
    )
    role = job.roles[0]
    assert (role.count, role.request.gpu_milli, role.request.cpu_milli) == (32, 1000, 16_000)
    assert role.request.memory_mib == 8 * 1024
    assert (role.parallelism.tensor, role.parallelism.data) == (8, 4)
    assert [choice.gpu_type for choice in role.gpu_types] == ["H100"]
    assert (job.walltime_limit_s, job.tier, job.sites, job.max_restarts) == (172_800, 2, ("south",), 0)


def test_one_task_a_node_is_one_worker_a_host(submitted) -> None:
    job = submitted("-N", "2", "--gpus-per-node", "2", "--", "x")
    assert (job.roles[0].count, job.roles[0].request.gpu_milli, job.roles[0].parallelism) == (2, 2000, None)


def test_dependencies_name_jobs_that_exist(submitted, store) -> None:
    first = submitted("--gpus", "1", "--", "x")
    second = submitted("--gpus", "1", "-d", f"afterok:{first.id}", "--", "x")
    third = submitted("--gpus", "1", "--after", first.id, "--", "x")
    assert (second.after, third.after) == ((first.id,), (first.id,))
    assert store.job(second.id).state == "blocked"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", "30m"),
        ("90:30", "90m30s"),
        ("2-12", "2d12h0m"),
        ("1-12:30", "1d12h30m"),
        ("04:00:00", "04:00:00"),
        ("4h", "4h"),
    ],
)
def test_slurm_times(text, seconds) -> None:
    assert sbatch.walltime(text) == seconds


@pytest.mark.parametrize("text", ["after:1", "afterok", "afterok:", "afterok:a:", "singleton"])
def test_other_dependencies_are_refused(text) -> None:
    with pytest.raises(InvalidInput, match="afterok:JOB"):
        sbatch.dependencies(text)


def test_the_same_key_is_the_same_job(phalanx, store) -> None:
    line = ("submit", "--json", "--key", "k1", "-A", "vision", "--gpus", "1", "--", "x")
    first, second = (json.loads(phalanx(*line).out) for _ in range(2))
    assert (first["created"], second["created"]) == (True, False)
    assert first["job"] == second["job"]
    assert len(store.jobs().jobs) == 1


def test_an_impossible_job_is_refused_with_the_nearest_fit(phalanx, brain, store) -> None:
    brain.answer = replace(brain.answer, accepted=False, nearest="2 GPUs per worker")
    told = phalanx("submit", "-A", "vision", "--gpus", "96", "--", "x")
    assert told.code == 4
    assert "2 GPUs per worker" in told.err
    assert store.jobs().jobs == ()


def test_warnings_do_not_stop_a_job(phalanx, brain) -> None:
    brain.answer = replace(brain.answer, warnings=("3 of 8 GPUs leaves odd rests",))
    told = phalanx("submit", "-A", "vision", "--gpus", "1", "--", "x")
    assert (told.code, "warning: 3 of 8" in told.err) == (0, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "no job is described"),
        (("--gpus", "8"), "no command"),
        (("--gpus", "-1", "--", "x"), "negative"),
        (("--gpus", "nan", "--", "x"), "cannot be booked"),
        (("--gpus", "8", "--memory", "80XB", "--", "x"), "unknown unit"),
        (("--gpus", "8", "--walltime", "soon", "--", "x"), "not an amount"),
        (("--gpus", "8", "--gres", "gpu:4", "--", "x"), "also given"),
        (("--gres", "gpu:4", "--gpus-per-node", "4", "--", "x"), "twice"),
        (("--gres", "gpu:0", "--", "x"), "not a number of GPUs"),
        (("--gres", "fpga:1", "--", "x"), "gpu:COUNT"),
        (("--gres", "gpu:8", "--ntasks-per-node", "3", "--", "x"), "multiple of"),
        (("--gpus", "1", "--qos", "produktion", "--", "x"), "production"),
        (("--gpus", "1", "--mem", "0", "--", "x"), "all memory"),
        (("--gpus", "1", "--label", "x", "--", "x"), "KEY=VALUE"),
        (("--gpus", "1", "--tier", "9", "--", "x"), "no tier 9"),
        (("--gpus", "1", "-A", "no-such-team", "--", "x"), "no-such-team"),
        (("--gpus", "1", "-A", "vision", "--after", "ghost", "--", "x"), "ghost"),
        (("none.yaml",), "No such file"),
        (("a.yaml", "python", "x.py"), "extra argument"),
        (("--gpsu", "8"), "--gpus"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(phalanx, store, argv, said) -> None:
    told = phalanx("submit", *argv)
    assert told.code == 2
    assert said in " ".join(told.err.split())
    assert told.out == ""
    assert "\n\n" not in told.err
    assert store.jobs().jobs == ()


@pytest.mark.parametrize("raw", [b"\xff\x00", b"gpus: [", b"gpus: .nan\ncommand: x", b"x" * 11_000_000, b"- a"])
def test_broken_files_are_exit_code_2(phalanx, store, tmp_path, raw) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(raw)
    told = phalanx("submit", file)
    assert (told.code, str(file) in told.err.replace("\n", " ")) == (2, True)
    assert store.jobs().jobs == ()


def test_a_finished_document_takes_no_flags(phalanx, store, tmp_path, kit) -> None:
    from phalanx.model.codec import dumps

    file = tmp_path / "job.json"
    file.write_text(dumps(kit.job("exact")))
    assert phalanx("submit", file, "--gpus", "2").code == 2
    assert phalanx("submit", file).code == 0
    assert store.job("exact").job == kit.job("exact")


def test_wait_tells_the_end(phalanx, store, monkeypatch) -> None:
    def cancel(_seconds: float) -> None:
        store.cancel(store.jobs().jobs[0].id, now_s=store.jobs().jobs[0].submitted_s + 1)

    monkeypatch.setattr("phalanx.api.cli.watch.time.sleep", cancel)
    told = phalanx("submit", "--wait", "-A", "vision", "--gpus", "1", "--", "x")
    assert told.code == 1
    assert "is queued" in told.err
    assert "is cancelled" in told.err


def test_ctrl_c_ends_the_waiting_and_not_the_job(phalanx, store, monkeypatch) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("phalanx.api.cli.watch.time.sleep", interrupt)
    told = phalanx("submit", "--wait", "-A", "vision", "--gpus", "1", "--", "x")
    assert (told.code, "goes on" in told.err) == (130, True)
    assert store.jobs().jobs[0].state == "queued"


def test_no_service_is_exit_code_3(bare) -> None:
    told = bare("submit", "--url", "http://127.0.0.1:9", "--gpus", "1", "--", "x")
    assert (told.code, "phalanx serve" in told.err.replace("\n", " ")) == (3, True)


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://[::1", "http://a b"])
def test_a_wrong_address_is_exit_code_2_or_3(bare, url) -> None:
    assert bare("jobs", "--url", url).code in (2, 3)
