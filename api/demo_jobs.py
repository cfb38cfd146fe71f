"""The fleet and the jobs of `phalanx demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ..model.errors import InvalidInput

FLEET = """\
# Three sites whose hosts only pretend to have GPUs; the scheduler, Ray and the training are real.
[[sites]]
id = "north"
[[sites.hosts]]
name = "north{n}"
count = 2
rack = "r1"
gpus = 8
gpu_type = "H100"
gpu_memory = "80GiB"
cpu = 64
memory = "512GiB"

[[sites]]
id = "south"
[[sites.hosts]]
name = "south{n}"
count = 2
rack = "r1"
gpus = 8
gpu_type = "A100"
gpu_memory = "40GiB"
cpu = 64
memory = "512GiB"

[[sites]]
id = "west"
[[sites.hosts]]
name = "west{n}"
gpus = 8
gpu_type = "T4"
gpu_memory = "16GiB"
cpu = 32
memory = "128GiB"

[[teams]]
id = "vision"
[[teams]]
id = "speech"
guarantee = { T4 = 4 }
[[teams]]
id = "motor"
"""
TRAINING = "reach-ddp"
"""The gang that really trains."""
MUST_WAIT = "large-sweep"
"""The job that finds its GPUs taken."""
INCIDENT = "incident"
"""The production incident for which the training makes room; it goes on from its checkpoint afterwards."""
FINETUNE = "finetune"
"""Holds one A100 host for a while."""
PAIR = "pair"
"""Asks for both A100 hosts, waits for long, and so gets a drain reservation."""
SHORT, LONG = "short", "long"
"""Both would fit beside the finetune now; only the short one is surely over before the pair's planned start."""
BORROWER = "borrower"
"""Takes all T4 GPUs, of which some are guaranteed to another team."""
OWNER = "owner"
"""Takes back what its team is guaranteed."""
MIN_RUN_S = 5
"""How long a job of the demo runs at least before it may be preempted; ten minutes elsewhere."""
STARVE_AFTER_S = 3
"""How long a job of the demo waits before hosts are drained for it; two hours elsewhere."""
POLICY = f"""\
[policy.eviction]
min_run_s = {MIN_RUN_S}
launch_s = 5
clean_s = 2

[policy.time]
starve_after_s = {STARVE_AFTER_S}
"""
STEPS = 150

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "train_ddp.py"
_WORK = """\
import os, sys, time
rank, cards = os.environ["RANK"], os.environ.get("CUDA_VISIBLE_DEVICES", "")
print(f"rank {rank} of {os.environ['WORLD_SIZE']} on {os.environ['PHALANX_HOST']}, GPUs {cards or 'none'}", flush=True)
time.sleep(float(sys.argv[1]))
print(f"rank {rank} done", flush=True)
"""


def first_jobs(data: Path) -> list[dict[str, Any]]:
    """The jobs that are submitted at once, in the form of job files; `data` is where the training's shards go."""
    _check_example()
    jobs = [_training(data)]
    types = {"A100": 1, "T4": "0.2"}
    jobs.append(_work("vision", FINETUNE, 80, gpus=8, gpu_type=types, gpu_memory="16GiB", walltime="90s"))
    jobs += [
        _work("speech", f"probe-{number}", seconds, gpus=1, gpu_type="T4")
        for number, seconds in ((1, 6), (2, 9), (3, 12))
    ]
    jobs += [_work("speech", f"half-{half}", 8, gpus=0.5, gpu_type="T4") for half in ("a", "b")]
    return jobs


def _training(data: Path) -> dict[str, Any]:
    script = [sys.executable, str(_EXAMPLE), "--data", str(data / "recordings")]
    return _job(
        "motor",
        TRAINING,
        [*script, "--steps", str(STEPS), "--global-batch", "64", "--step-ms", "60"],
        gpus=8,
        workers=2,
        gpu_type="H100",
        checkpoint={"interval": "10s", "grace": "10s"},
    )


def impossible_job() -> dict[str, Any]:
    """Asks for more memory a card than any card has."""
    return _work("vision", "too-large", 1, gpus=8, gpu_memory="96GiB")


def incident_job() -> dict[str, Any]:
    """Tier 1: may preempt the training, which holds the only hosts of the type that it asks."""
    return _work("speech", INCIDENT, 3, gpus=8, gpu_type="H100", tier=1)


def waiting_job() -> dict[str, Any]:
    """Asks for both H100 hosts while the training holds them."""
    return _work("vision", MUST_WAIT, 4, gpus=8, workers=2, gpu_type="H100")


def pair_job() -> dict[str, Any]:
    """Needs both A100 hosts, of which the finetune holds one."""
    return _work("motor", PAIR, 4, gpus=8, workers=2, gpu_type="A100")


def short_job() -> dict[str, Any]:
    """Backfills: it is surely gone from the drained host before the pair's planned start."""
    return _work("speech", SHORT, 3, gpus=4, gpu_type="A100", walltime="10s")


def long_job() -> dict[str, Any]:
    """Fits now, but may outlast the pair's planned start: it waits."""
    return _work("speech", LONG, 3, gpus=4, gpu_type="A100")


def borrower_job() -> dict[str, Any]:
    """Runs on all T4 GPUs while nobody else asks for them."""
    return _work("vision", BORROWER, 12, gpus=8, gpu_type="T4")


def owner_job() -> dict[str, Any]:
    """Of the borrower's level, but inside the guarantee of its team: it may reclaim."""
    return _work("speech", OWNER, 3, gpus=4, gpu_type="T4")


def _work(team: str, name: str, seconds: int, **request: Any) -> dict[str, Any]:
    return _job(team, name, [sys.executable, "-c", _WORK, str(seconds)], **request)


def _job(team: str, name: str, command: list[str], **request: Any) -> dict[str, Any]:
    return {"walltime": "5m", "id": name, "name": name, "team": team, "command": command, **request}


def _check_example() -> None:
    if not _EXAMPLE.is_file():
        raise InvalidInput(
            str(_EXAMPLE), "the training example is not there", "a source tree: `make run` in a clone of the repository"
        )
    for package, extra in (("ray", "ray"), ("torch", "train")):
        from importlib.util import find_spec

        if find_spec(package) is None:
            raise InvalidInput(package, "is not installed", f"pip install 'phalanx[{extra}]', or `make run`")
