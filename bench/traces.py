"""Workloads from the public traces, from any CSV in their schema, and from Slurm's accounting."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..api.trace_csv import TraceJob, read_hosts, read_jobs
from ..model.errors import InvalidInput
from ..model.ids import TeamId
from ..model.team import Team
from ..model.topology import Site
from .overlay import DAY, Overlay, laid_over
from .sacct import is_sacct, read_sacct
from .workload import SimJob, Workload, scaled, some_hosts

NAMED = {
    "philly": ("philly2017.jobs.csv", "philly2017.hosts.csv", "philly2017.carryin.jobs.csv"),
    "lingjun": ("lingjun2023.jobs.csv", "lingjun2023_fleet256.hosts.csv", None),
    "openb": ("openb2023.jobs.csv", "openb2023.hosts.csv", None),
}
"""Files of the known traces: jobs, hosts, jobs carried in."""

MISSING = (
    "a folder with the reduced public traces (--traces FOLDER or PHALANX_TRACES; docs/traces.md says where they come "
    "from), or --trace founding, which needs none"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which part of a trace is run, and how hard: `load` 2 lets the jobs arrive twice as fast.

    `days` are days of the trace from `from_day` on; `hosts` a smaller fleet of the same mix.
    """

    days: float | None = None
    from_day: float = 0.0
    hosts: int | None = None
    load: float = 1.0
    seed: int = 1
    overlay: Overlay | None = Overlay()


def named(trace: str, folder: Path, choice: Choice) -> Workload:
    """A known trace of the folder. Raises InvalidInput, saying how to get the files where they are missing."""
    jobs, hosts, carry_in = NAMED[trace]
    for file in (jobs, hosts, carry_in):
        if file and not (folder / file).exists():
            raise InvalidInput(str(folder / file), "there is no such file", MISSING)
    shares = _shares(folder / "philly2017.vc_nodes.csv") if trace == "philly" else {}
    carried = folder / carry_in if carry_in and not choice.from_day else None
    return from_files(trace, folder / jobs, folder / hosts, choice, carry_in=carried, shares=shares)


def from_files(
    name: str,
    jobs_file: Path,
    hosts_file: Path,
    choice: Choice,
    *,
    carry_in: Path | None = None,
    shares: dict[str, int] | None = None,
) -> Workload:
    """Any trace in the schema of docs/traces.md, or jobs as `sacct` prints them. Raises InvalidInput."""
    hosts = read_hosts(hosts_file)
    chosen = some_hosts(hosts, choice.hosts)
    first_s = round(choice.from_day * DAY)
    last_s = 10**12 if choice.days is None else first_s + round(choice.days * DAY)
    carried = list(read_jobs(carry_in, last_s)) if carry_in else []
    # A smaller fleet has smaller carried-in work: the same share of the jobs.
    carried = carried[: len(carried) * len(chosen) // len(hosts)]
    arriving = [job for job in _arriving(jobs_file, last_s) if job.submit_s >= first_s]
    jobs = [*_jobs(carried, first_s, carried_in=True), *_jobs(arriving, first_s, carried_in=False)]
    jobs.sort(key=lambda each: (each.submit_s, not each.carried_in))
    _check_names(jobs_file, jobs)
    made = Workload(
        name=name,
        hosts=chosen,
        jobs=scaled(jobs, choice.load),
        sites=tuple(Site(id=site) for site in dict.fromkeys(host.path.site for host in chosen)),
        teams=_teams(jobs, shares or {}),
        synthetic=_told(choice, len(hosts), len(chosen)),
    )
    return made if choice.overlay is None else laid_over(made, choice.overlay, choice.seed)


def _arriving(path: Path, until_s: int) -> Iterable[TraceJob]:
    return read_sacct(path, until_s) if is_sacct(path) else read_jobs(path, until_s)


def _jobs(found: Iterable[TraceJob], first_s: int, *, carried_in: bool) -> list[SimJob]:
    """Jobs that computed for a while; those of unknown duration would never leave, and cannot be replayed."""
    return [
        SimJob(
            job=each.job, submit_s=each.submit_s - (0 if carried_in else first_s), work_s=work_s, carried_in=carried_in
        )
        for each in found
        if (work_s := each.duration_s) is not None
    ]


def _teams(jobs: Sequence[SimJob], shares: dict[str, int]) -> tuple[Team, ...]:
    names = sorted({each.job.team for each in jobs})
    return tuple(Team(id=TeamId(name), weight=max(1, shares.get(name, 10 if shares else 100))) for name in names)


def _shares(path: Path) -> dict[str, int]:
    """Nodes of each virtual cluster; empty where the file is missing."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["team"]: int(row["nodes_of_8_gpus"]) for row in csv.DictReader(file)}


def _told(choice: Choice, hosts: int, chosen: int) -> tuple[str, ...]:
    told = []
    if chosen < hosts:
        told.append(f"{chosen} of the {hosts} hosts, in the same mix")
    if choice.load != 1:
        told.append(f"jobs arrive {choice.load:g} times as fast as in the trace")
    return tuple(told)


def _check_names(path: Path, jobs: Sequence[SimJob]) -> None:
    for name, count in Counter(each.job.id for each in jobs).most_common(1):
        if count > 1:
            raise InvalidInput(str(path), f"job {name!r} stands {count} times", "each job once")
