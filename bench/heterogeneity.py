"""Fleets of several GPU types: measured speeds of training jobs on V100, P100 and K80 (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from pathlib import Path

from ..model.errors import InvalidInput
from ..model.host import Host
from ..model.job import GpuTypeChoice
from .workload import SimJob, Workload

FILE = "gavel_throughputs.csv"
KINDS = (("V100", 16), ("P100", 16), ("K80", 12))
"""GPU types in turn over the hosts, equal parts each as in the paper's cluster, with their memory in GiB."""


def mixed_types(workload: Workload, folder: Path, seed: int) -> Workload:
    """The workload on a third of V100, P100 and K80 hosts each; every job draws a model and has its speeds.

    A job's run time in the trace is what it takes on a K80. InvalidInput where the file is missing.
    """
    speeds = _speeds(folder / FILE)
    jobs = tuple(_on_types(each, speeds, seed) for each in workload.jobs)
    hosts = tuple(_of_kind(host, *KINDS[number % len(KINDS)]) for number, host in enumerate(workload.hosts))
    told = f"GPU types: a third of the hosts each V100, P100, K80; models and speeds drawn from {FILE}"
    return replace(workload, jobs=jobs, hosts=hosts, synthetic=(*workload.synthetic, told))


def _on_types(each: SimJob, speeds: list[tuple[GpuTypeChoice, ...]], seed: int) -> SimJob:
    choices = random.Random(f"{seed}/model/{each.job.id}").choice(speeds)
    roles = tuple(replace(role, gpu_types=choices) if role.request.gpu_milli else role for role in each.job.roles)
    return replace(each, job=replace(each.job, roles=roles))


def _of_kind(host: Host, kind: str, memory_gib: int) -> Host:
    return replace(host, gpus=tuple(replace(gpu, gpu_type=kind, memory_mib=memory_gib * 1024) for gpu in host.gpus))


def _speeds(path: Path) -> list[tuple[GpuTypeChoice, ...]]:
    """Thousandths of each model's speed on a K80, from the runs on one GPU."""
    if not path.exists():
        raise InvalidInput(str(path), "there is no such file", "throughputs as Gavel's repository publishes them")
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            steps = {kind: float(row[f"steps_per_s_{kind.lower()}"] or 0) for kind, _ in KINDS}
            if row["gpus"] == "1" and all(steps.values()):
                base = steps["K80"]
                found.append(
                    tuple(
                        GpuTypeChoice(gpu_type=kind, throughput_milli=max(1, round(1000 * value / base)))
                        for kind, value in steps.items()
                    )
                )
    if not found:
        raise InvalidInput(str(path), "has no model that ran on all three types", "rows with gpus 1")
    return found
