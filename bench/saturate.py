"""`phalanx-bench saturate`: pods arrive in order and never leave, until the fleet is full; what is left unallocated?

The experiment of Weng et al. (ATC 2023): a pod that does not fit when it arrives is dropped, and none is moved.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ..api import engine
from ..api.cli.options import FILE, json_option, print_json
from ..model.decision import Decision
from ..model.errors import InvalidInput
from ..model.host import MILLI, Host
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from ..model.topology import Site
from .baselines import Fgd
from .contest import PHALANX, scheduler
from .simulate import FOLDER, policy_of, show
from .simulator import Scheduler
from .tables import Table
from .traces import Choice, named
from .workload import SimJob, Workload

FGD_SEEN = "fgd_seen"
MARKS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1, 1.2, 1.3)
"""Arrived demand, as a share of the fleet's GPUs, at which a table row is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """One method on one order of pods: (arrived GPUs, allocated GPUs) as shares of the fleet, after each batch."""

    method: str
    seed: int
    curve: tuple[tuple[float, float], ...]
    dropped: int
    violations: int
    cpu_s: float

    def unallocated(self, arrived: float) -> float | None:
        """The share left unallocated once that much had arrived; None where so much never came."""
        return next((1 - held for came, held in self.curve if came >= arrived), None)


@click.command("saturate")
@click.option(
    "--traces", "folder", type=FOLDER, envvar="PHALANX_TRACES", default=Path("../shared/traces"), show_default=True
)
@click.option(
    "--against", default="fgd,fgd_seen,best_fit,first_fit,random", show_default=True, help="Rivals, parted by commas."
)
@click.option("--hosts", type=click.IntRange(1), help="A smaller fleet of the same mix.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Orders of arrival.")
@click.option("--batch", type=click.IntRange(1), default=20, show_default=True, help="Pods that arrive for one round.")
@click.option("--arrive", type=click.FloatRange(0.1, 5), default=1.2, show_default=True, help="GPUs asked / GPUs.")
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON.")
@click.option(
    "--budget-ms", type=click.IntRange(0), help="The solver's deterministic time a round; 200 without policy."
)
@json_option
def saturate_command(
    folder: Path,
    against: str,
    hosts: int | None,
    seeds: int,
    batch: int,
    arrive: float,
    policy_file: Path | None,
    budget_ms: int | None,
    as_json: bool,
) -> int:
    """Packs the openb trace: pods drawn from it arrive until they asked for more than the fleet has.

    Exit code 1 if any decision broke a rule.
    """
    policy = policy_of(policy_file, budget_ms)
    workload = named("openb", folder, Choice(hosts=hosts, overlay=None))
    names = list(dict.fromkeys((PHALANX, *(name.strip() for name in against.split(",") if name.strip()))))
    found: list[Filled] = []
    for seed in range(1, seeds + 1):
        pods = arrivals(workload, arrive, seed)
        found.extend(fill(name, packer(name, workload), workload, pods, policy, batch, seed) for name in names)
    if as_json:
        print_json([_document(each) for each in found])
    else:
        show((), [table_of(found, names, workload, batch)])
    return int(any(each.violations for each in found))


def packer(name: str, workload: Workload) -> Scheduler:
    """The scheduler of that name; FGD knows the distribution of all jobs of the trace, as in its paper.

    `fgd_seen` knows what Phalanx knows, and what has ended: the pods that have arrived.
    """
    if name == "fgd":
        return Fgd(each.job for each in workload.jobs)
    if name == FGD_SEEN:
        return Fgd()
    return scheduler(name, workload)


def arrivals(workload: Workload, share: float, seed: int) -> list[SimJob]:
    """GPU pods drawn with replacement in a random order, until they ask for that share of the fleet."""
    draw, pods = random.Random(f"{seed}/arrivals"), [each for each in workload.jobs if each.job.gpu_milli]
    if not pods:
        raise InvalidInput(workload.name, "has no pod that asks for GPUs", "a trace with GPU pods")
    found: list[SimJob] = []
    asked = 0
    while asked < share * workload.gpu_milli:
        pod = draw.choice(pods)
        name = f"{pod.job.id}-{len(found)}"
        found.append(replace(pod, job=replace(pod.job, id=type(pod.job.id)(name)), submit_s=len(found)))
        asked += pod.job.gpu_milli
    return found


def fill(
    name: str,
    method: Scheduler,
    workload: Workload,
    pods: Sequence[SimJob],
    policy: Policy,
    batch: int,
    seed: int,
) -> Filled:
    """One method over all pods, `batch` of them a round."""
    begun = time.process_time()
    running: list[JobRecord] = []
    curve, arrived, broken = [(0.0, 0.0)], 0, 0
    teams = tuple(Team(id=team) for team in sorted({each.job.team for each in pods}))
    for first in range(0, len(pods), batch):
        coming = [JobRecord(job=each.job, submitted_s=each.submit_s) for each in pods[first : first + batch]]
        snapshot = Snapshot(
            now_s=first, sites=_sites(workload.hosts), hosts=workload.hosts, jobs=(*running, *coming), teams=teams
        )
        decision = method(snapshot, policy)
        broken += len(engine.verify(snapshot, policy, decision))
        running.extend(_started(coming, decision, first))
        arrived += sum(record.job.gpu_milli for record in coming)
        held = sum(record.job.gpu_milli for record in running)
        curve.append((arrived / workload.gpu_milli, held / workload.gpu_milli))
    return Filled(
        method=name,
        seed=seed,
        curve=tuple(curve),
        dropped=len(pods) - len(running),
        violations=broken,
        cpu_s=time.process_time() - begun,
    )


def _started(coming: Sequence[JobRecord], decision: Decision, now_s: int) -> list[JobRecord]:
    """Those of the pods that the decision starts, running; the rest is dropped."""
    placed = {start.job: start.placement for start in decision.starts}
    return [
        replace(record, state=JobState.RUNNING, attempt=1, placement=placed[record.id], planned_s=now_s)
        for record in coming
        if record.id in placed
    ]


def table_of(found: Sequence[Filled], names: Sequence[str], workload: Workload, batch: int) -> Table:
    """Unallocated GPUs in percent of the fleet against arrived demand; means over the orders."""
    marks = [mark for mark in MARKS if any(each.unallocated(mark) is not None for each in found)]
    rows = []
    for name in names:
        own = [each for each in found if each.method == name]
        cells = []
        for mark in marks:
            values = [value for each in own if (value := each.unallocated(mark)) is not None]
            cells.append(f"{100 * sum(values) / len(values):.2f} %" if values else "-")
        seconds = sum(each.cpu_s for each in own) / len(own)
        rows.append((name, *cells, f"{sum(each.dropped for each in own) / len(own):.0f}", f"{seconds:.0f} s"))
    gpus = workload.gpu_milli // MILLI
    return Table(
        title=f"openb: GPUs left unallocated, {len(workload.hosts)} hosts, {gpus:,} GPUs",
        columns=("method", *(f"{100 * mark:.0f} % arrived" for mark in marks), "dropped", "CPU"),
        rows=tuple(rows),
        notes=(
            f"Pods drawn with replacement, {batch} a round; one that does not fit at once is dropped; means over "
            f"{len({each.seed for each in found})} orders. FGD knows the distribution of all pods of the trace, "
            f"{FGD_SEEN} that of the pods that have arrived, and Phalanx what runs and waits.",
        ),
    )


def _sites(hosts: Sequence[Host]) -> tuple[Site, ...]:
    return tuple(Site(id=site) for site in dict.fromkeys(host.path.site for host in hosts))


def _document(each: Filled) -> dict[str, Any]:
    return {
        "method": each.method,
        "seed": each.seed,
        "curve": each.curve,
        "dropped": each.dropped,
        "violations": each.violations,
        "cpu_s": round(each.cpu_s, 2),
    }
