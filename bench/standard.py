"""`phalanx-bench standard`: every table and plot of docs/benchmarks.md in one command, with `make bench`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from ..api.cli.tables import console
from ..model.errors import InvalidInput
from ..model.policy import Policy
from .compare import compare
from .contest import PHALANX, Contest, hold
from .families import solve_all
from .families import tables_of as tables_of_families
from .family import FAMILIES
from .founding import founding
from .heterogeneity import mixed_types
from .html_report import html_report
from .overlay import HOUR
from .saturate import Filled, arrivals, fill, packer, table_of
from .simulate import DEFAULT_BUDGET_MS, FOLDER, document, facts, show, size_of, tables_of
from .simulator import Options
from .tables import Table, markdown
from .traces import Choice, named
from .workload import Workload, runnable

WEEK = 7
SATURATE_HOSTS, SATURATE_ORDERS, SATURATE_BATCH, SATURATE_ARRIVE = 150, 2, 20, 1.2
FAMILY_SEEDS, FAMILY_HOSTS = 10, 32
SATURATE_RIVALS = ("fgd", "fgd_seen", "best_fit", "first_fit", "random")


Done = tuple[list[Table], int, float]
"""A scenario's tables, how many violations it saw, and the CPU seconds that its rounds and simulations took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One scenario: how a seed's workload is made from the folder of traces, and whom Phalanx meets in it.

    Rounds are at least `interval_s` apart; every `forecast_s` seconds the service's forecast is made, None for never.
    `idle`: it is told why GPUs stood idle while jobs waited.
    """

    name: str
    make: Callable[[Path, int], Workload]
    against: tuple[str, ...]
    seeds: int
    interval_s: int
    forecast_s: int | None = None
    idle: bool = False


def _lingjun(hosts: int, days: float | None) -> Callable[[Path, int], Workload]:
    return lambda folder, seed: named("lingjun", folder, Choice(days=days, hosts=hosts, seed=seed))


def _philly(hosts: int, days: float) -> Callable[[Path, int], Workload]:
    return lambda folder, seed: named("philly", folder, Choice(days=days, hosts=hosts, load=0.25, seed=seed))


FOUNDING_RIVALS = ("fifo_partitioned", "best_fit", "best_fit_preempt", "easy_preempt")
FAST_RIVALS = ("best_fit_preempt", "easy_preempt")

SUITE = (
    Entry(
        name="founding",
        make=lambda _folder, seed: founding(seed, days=WEEK),
        against=FOUNDING_RIVALS,
        seeds=3,
        interval_s=60,
        forecast_s=HOUR // 2,
        idle=True,
    ),
    Entry(
        name="founding-rivals",
        make=lambda _folder, seed: founding(seed, days=WEEK),
        against=("fifo", "easy", "conservative", "slurm", "slurm_preempt", "fgd"),
        seeds=1,
        interval_s=60,
    ),
    Entry(
        name="founding-guaranteed",
        make=lambda _folder, seed: founding(seed, guaranteed=True, days=WEEK),
        against=("fifo_partitioned", "best_fit_preempt"),
        seeds=3,
        interval_s=60,
    ),
    Entry(
        name="founding-fed",
        make=lambda _folder, seed: founding(seed, fed=True, days=WEEK),
        against=("fifo_partitioned", "best_fit_preempt"),
        seeds=3,
        interval_s=60,
    ),
    Entry(name="lingjun", make=_lingjun(72, 6), against=FAST_RIVALS, seeds=6, interval_s=600),
    Entry(name="philly", make=_philly(72, 1), against=(*FAST_RIVALS, "slurm_preempt"), seeds=3, interval_s=600),
    Entry(
        name="types",
        make=lambda folder, seed: mixed_types(_philly(60, 1)(folder, seed), folder, seed),
        against=("gavel", "best_fit_preempt"),
        seeds=3,
        interval_s=600,
    ),
)
"""What `make bench` runs: parts that two cores do in half an hour."""

LONG = (
    Entry(
        name="founding-month",
        make=lambda _folder, seed: founding(seed),
        against=("fifo_partitioned", *FAST_RIVALS),
        seeds=3,
        interval_s=60,
        idle=True,
    ),
    Entry(name="lingjun-128", make=_lingjun(128, 6), against=FAST_RIVALS, seeds=1, interval_s=600),
    Entry(name="lingjun-256", make=_lingjun(256, 6), against=FAST_RIVALS, seeds=1, interval_s=600),
    Entry(name="philly-week", make=_philly(72, 7), against=FAST_RIVALS, seeds=1, interval_s=600),
)
"""Longer runs, each by its name (`--only`) alone. `founding-month` is the founding scenario as it was frozen."""


@click.command("standard")
@click.option(
    "--traces", "folder", type=FOLDER, envvar="PHALANX_TRACES", default=Path("../shared/traces"), show_default=True
)
@click.option("--out", type=FOLDER, default=Path("build/bench"), show_default=True, help="Where reports are written.")
@click.option("--only", metavar="NAMES", default="", help="Some of them, or long ones, parted by commas.")
@click.option("--jobs", "workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Runs at once.")
def standard_command(folder: Path, out: Path, only: str, workers: int) -> int:
    """Runs the standard suite and writes, for each scenario, its tables, numbers (JSON) and report (HTML).

    A scenario whose trace is missing is passed over with the reason. Exit code 1 if any decision broke a rule.
    """
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    known = [*(entry.name for entry in SUITE), "families", "openb"]
    every = [*known, *(entry.name for entry in LONG)]
    for name in wanted:
        if name not in every:
            raise InvalidInput("--only", f"there is no scenario {name!r}", ", ".join(every))
    out.mkdir(parents=True, exist_ok=True)
    policy = _policy()
    broken = 0
    for name in wanted or known:
        begun = time.perf_counter()
        console(stderr=True).print(f"{name} ...", markup=False)
        try:
            if name == "openb":
                tables, violations, cpu_s = _openb(folder, out, policy)
            elif name == "families":
                tables, violations, cpu_s = _families(out)
            else:
                tables, violations, cpu_s = _scenario(name, folder, out, policy, workers)
        except InvalidInput as fault:
            console(stderr=True).print(f"{name} is passed over: {fault}", markup=False)
            continue
        broken += violations
        show(facts(), tables)
        took = f"{time.perf_counter() - begun:.0f} s, of which {cpu_s:.0f} s of CPU in rounds and simulation"
        console(stderr=True).print(f"{name}: {took}", markup=False)
        head = f"{', '.join(facts())}; {took}.\n\n"
        (out / f"{name}.md").write_text(head + "\n".join(markdown(each) for each in tables), encoding="utf-8")
    return int(broken > 0)


def _policy() -> Policy:
    policy = Policy()
    return replace(policy, solve=replace(policy.solve, budget_ms=DEFAULT_BUDGET_MS))


def _scenario(name: str, folder: Path, out: Path, policy: Policy, workers: int) -> Done:
    entry = next(each for each in (*SUITE, *LONG) if each.name == name)
    workloads = [(seed, runnable(entry.make(folder, seed), policy)) for seed in range(1, entry.seeds + 1)]
    options = Options(interval_s=entry.interval_s, forecast_s=entry.forecast_s, idle=entry.idle)
    contest = hold(workloads, (PHALANX, *entry.against), policy, options, workers=workers)
    tables = write(entry, contest, workloads, policy, out)
    every = [each for found in contest.metrics.values() for each in found]
    return tables, sum(each.violations for each in every), sum(each.cpu_s for each in every)


def write(
    entry: Entry, contest: Contest, workloads: list[tuple[int, Workload]], policy: Policy, out: Path
) -> list[Table]:
    """The tables of a contest; its report and numbers go into the folder."""
    compared = [each for rival in entry.against for each in compare(contest.runs[PHALANX], contest.runs[rival])]
    first = workloads[0][1]
    tables = tables_of(contest, compared, first, entry.interval_s, policy)
    title = f"{first.name}: {size_of(first)}"
    page = html_report(title, facts(), tables, [runs[0] for runs in contest.runs.values()], first.hosts)
    (out / f"{entry.name}.html").write_text(page, encoding="utf-8")
    numbers = json.dumps(document(contest, compared, workloads), indent=1)
    (out / f"{entry.name}.json").write_text(numbers + "\n", encoding="utf-8")
    return tables


def _families(out: Path) -> Done:
    found = solve_all(list(FAMILIES), FAMILY_SEEDS, FAMILY_HOSTS, Policy())
    (out / "families.json").write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", encoding="utf-8")
    tables = tables_of_families(found, FAMILY_HOSTS)
    return tables, sum(each.violations for each in found), sum(each.cpu_s for each in found)


def _openb(folder: Path, out: Path, policy: Policy) -> Done:
    workload = named("openb", folder, Choice(hosts=SATURATE_HOSTS, overlay=None))
    names = (PHALANX, *SATURATE_RIVALS)
    found: list[Filled] = []
    for seed in range(1, SATURATE_ORDERS + 1):
        pods = arrivals(workload, SATURATE_ARRIVE, seed)
        found.extend(fill(name, packer(name, workload), workload, pods, policy, SATURATE_BATCH, seed) for name in names)
    table = table_of(found, names, workload, SATURATE_BATCH)
    numbers = [{"method": each.method, "seed": each.seed, "curve": each.curve} for each in found]
    (out / "openb.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    return [table], sum(each.violations for each in found), sum(each.cpu_s for each in found)
