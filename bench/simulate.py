"""`phalanx-bench simulate`: one workload under Phalanx and its rivals, as tables, JSON and an HTML report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from ..api.cli.files import read_policy
from ..api.cli.options import FILE, json_option, print_json
from ..api.cli.tables import console, table
from ..model.errors import InvalidInput
from ..model.policy import Policy
from .compare import Comparison, compare
from .contest import PHALANX, Contest, hold
from .founding import DAYS, founding
from .heterogeneity import mixed_types
from .html_report import html_report
from .idle import table_of as table_of_idle
from .machine import machine_facts
from .overlay import Overlay
from .simulator import Options
from .split import with_split_cost
from .tables import Table, comparisons, engine, preemption, promises, summary, waits_by
from .traces import NAMED, Choice, from_files, named
from .workload import Workload, runnable

FOLDER = click.Path(path_type=Path, file_okay=False)
RIVALS = "best_fit,easy"
DEFAULT_BUDGET_MS = 200
MOST_TEAMS = 8
"""A table by team has no more columns than this."""


@click.command("simulate")
@click.option(
    "--trace", required=True, metavar="NAME|FILE", help="philly, lingjun, openb, founding, or a file of jobs."
)
@click.option("--hosts-file", type=FILE, help="The fleet, for a file of jobs (CSV; docs/traces.md).")
@click.option(
    "--traces", "folder", type=FOLDER, envvar="PHALANX_TRACES", default=Path("../shared/traces"), show_default=True,
    help="Folder of the public traces. [PHALANX_TRACES]",
)  # fmt: skip
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON.")
@click.option("--against", default=RIVALS, show_default=True, help="Rivals, parted by commas; empty for none.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="How many seeds, from 1 on.")
@click.option("--days", type=click.FloatRange(0.01), help="Days of the trace; all of it where left out.")
@click.option("--from-day", type=click.FloatRange(0), default=0.0, help="First day of the trace.")
@click.option("--hosts", type=click.IntRange(1), help="A smaller fleet of the same mix.")
@click.option("--load", type=click.FloatRange(0.01), default=1.0, help="How many times as fast jobs arrive.")
@click.option("--types", type=click.Choice(["trace", "gavel"]), default="trace", help="GPU types and speeds.")
@click.option("--split", is_flag=True, help="Gangs run slower in several racks, by Gavel's measurements (docs).")
@click.option("--fed", is_flag=True, help="founding: the dataplane feeds the jobs, work takes half its time.")
@click.option("--guaranteed", is_flag=True, help="founding: each team is guaranteed the GPUs that it owned.")
@click.option("--plain", is_flag=True, help="Without the synthetic overlay: no tiers, limits, checkpoints, failures.")
@click.option("--interval", type=click.IntRange(1), default=60, show_default=True, help="Seconds between rounds.")
@click.option(
    "--forecast-every", type=click.FloatRange(0.01), help="Hours between forecasts of the queue, judged later."
)
@click.option("--idle", is_flag=True, help="Tell why GPUs stood idle while jobs waited.")
@click.option(
    "--budget-ms", type=click.IntRange(0), help="The solver's deterministic time a round; 200 without policy."
)
@click.option("--jobs", "workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Runs at once.")
@click.option("--html", "html_file", type=FILE, help="Write a report with plots to this file.")
@json_option
def simulate_command(
    trace: str,
    policy_file: Path | None,
    against: str,
    seeds: int,
    interval: int,
    forecast_every: float | None,
    idle: bool,
    budget_ms: int | None,
    workers: int,
    html_file: Path | None,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Simulates a workload under Phalanx and under each rival: the same jobs, rules and information.

    Exit code 1 if any decision broke a rule.
    """
    policy = policy_of(policy_file, budget_ms)
    names = list(dict.fromkeys((PHALANX, *(name.strip() for name in against.split(",") if name.strip()))))
    workloads = [(seed, runnable(_workload(trace, seed, chosen), policy)) for seed in range(1, seeds + 1)]
    forecast_s = None if forecast_every is None else round(3600 * forecast_every)
    options = Options(interval_s=interval, forecast_s=forecast_s, idle=idle)
    contest = hold(workloads, names, policy, options, workers=workers, quiet=as_json)
    compared = [each for name in names[1:] for each in compare(contest.runs[PHALANX], contest.runs[name])]
    tables = tables_of(contest, compared, workloads[0][1], interval, policy)
    if html_file is not None:
        firsts = [runs[0] for runs in contest.runs.values()]
        page = html_report(
            f"{workloads[0][1].name}: {size_of(workloads[0][1])}", facts(), tables, firsts, workloads[0][1].hosts
        )
        html_file.write_text(page, encoding="utf-8")
    if as_json:
        print_json(document(contest, compared, workloads))
    else:
        show(facts(), tables)
    return int(any(each.violations for found in contest.metrics.values() for each in found))


def tables_of(
    contest: Contest, compared: list[Comparison], workload: Workload, interval_s: int, policy: Policy
) -> list[Table]:
    """All tables of one contest."""
    notes = workload.synthetic
    main = replace(summary(contest.metrics, notes), title=f"{workload.name}: {size_of(workload)}")
    left = (f"{workload.left_out} jobs that this fleet can never run were left out.",) if workload.left_out else ()
    budget = (
        f"Rounds at most every {interval_s} s; solver budget {policy.solve.budget_ms} ms deterministic time a round."
    )
    found = [replace(main, notes=(*main.notes, *left, budget))]
    if compared:
        found.append(comparisons(compared))
    told = (tell(contest.metrics) for tell in (table_of_idle, preemption, promises))
    found.extend(each for each in told if each is not None)
    found.append(waits_by("Waits by tier", "wait_by_tier", contest.metrics))
    found.append(waits_by("Waits by GPUs of the job", "wait_by_size", contest.metrics))
    if 1 < len(workload.teams) <= MOST_TEAMS:
        found.append(waits_by("Waits by team", "wait_by_team", contest.metrics))
    found.append(engine(contest.metrics))
    return found


def show(heads: tuple[str, ...], tables: list[Table]) -> None:
    """Prints tables for people."""
    out = console()
    for line in heads:
        out.print(line, markup=False)
    for each in tables:
        out.print(table(each.title, each.columns, each.rows, right=each.columns[1:]))
        for note in each.notes:
            out.print(note, markup=False, style="dim")
        out.print()


def policy_of(policy_file: Path | None, budget_ms: int | None) -> Policy:
    """The policy of the file, or the default one with a smaller solver budget."""
    policy = read_policy(policy_file)
    if budget_ms is None and policy_file is None:
        budget_ms = DEFAULT_BUDGET_MS
    return policy if budget_ms is None else replace(policy, solve=replace(policy.solve, budget_ms=budget_ms))


def _workload(trace: str, seed: int, chosen: dict[str, Any]) -> Workload:
    if trace == "founding":
        return founding(seed, fed=chosen["fed"], guaranteed=chosen["guaranteed"], days=chosen["days"] or DAYS)
    choice = Choice(
        days=chosen["days"],
        from_day=chosen["from_day"],
        hosts=chosen["hosts"],
        load=chosen["load"],
        seed=seed,
        overlay=None if chosen["plain"] else Overlay(),
    )
    if trace in NAMED:
        found = named(trace, chosen["folder"], choice)
    elif chosen["hosts_file"] is None:
        expected = f"one of {', '.join((*NAMED, 'founding'))}; or a file of jobs together with --hosts-file FLEET.csv"
        raise InvalidInput("--trace", f"{trace!r} is no known trace, and no --hosts-file is given", expected)
    else:
        found = from_files(Path(trace).name, Path(trace), chosen["hosts_file"], choice)
    found = mixed_types(found, chosen["folder"], seed) if chosen["types"] == "gavel" else found
    return with_split_cost(found, chosen["folder"], seed) if chosen["split"] else found


def size_of(workload: Workload) -> str:
    """Its size in a few words."""
    return (
        f"{len(workload.jobs):,} jobs, {len(workload.hosts)} hosts, {workload.gpu_milli // 1000:,} GPUs, "
        f"load {workload.load:.2f}"
    )


def facts() -> tuple[str, ...]:
    """The machine, in a line."""
    return (", ".join(f"{name} {value}" for name, value in machine_facts().items()),)


def document(contest: Contest, compared: list[Comparison], workloads: list[tuple[int, Workload]]) -> dict[str, Any]:
    """Everything as plain values."""
    first = workloads[0][1]
    return {
        "machine": machine_facts(),
        "workload": {
            "name": first.name,
            "size": size_of(first),
            "left_out": first.left_out,
            "synthetic": first.synthetic,
        },
        "schedulers": {name: [asdict(each) for each in found] for name, found in contest.metrics.items()},
        "comparisons": [asdict(each) for each in compared],
    }
