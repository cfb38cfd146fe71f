"""What `phalanx demo` shows: the fleet and the jobs while they run, and a summary at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from . import demo_jobs
from .cli.tables import amount, gpus, seconds, table

_STYLES = {
    "queued": "yellow",
    "planned": "cyan",
    "starting": "cyan",
    "running": "green",
    "stopping": "magenta",
    "succeeded": "bold green",
}
_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan", "bright_red", "bright_green", "bright_blue")


def screen(jobs: Sequence[Mapping[str, Any]], hosts: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The fleet, a cell a GPU in the colour of its job, above the jobs."""
    colours = {job["id"]: _COLOURS[index % len(_COLOURS)] for index, job in enumerate(reversed(jobs))}
    fleet = [Text.assemble((f"  {h['id']:<8}", ""), *_cells(h, colours), f"  {_kind(h)}") for h in hosts]
    rows = [
        (
            Text(job["id"], style=colours[job["id"]]),
            Text(job["state"], style=_STYLES.get(job["state"], "red")),
            gpus(job["gpu_milli"]),
            seconds(job["waited_s"]),
            note(job),
        )
        for job in reversed(jobs)
    ]
    return Group(Text("Fleet", style="bold"), *fleet, Text(), _jobs_table(rows))


def changes(jobs: Sequence[Mapping[str, Any]], told: dict[str, str]) -> list[str]:
    """One line for each job whose state, or reason to wait, was not told yet; for output that is no terminal."""
    lines = []
    for job in reversed(jobs):
        why = note(job) if job["state"] in ("queued", "running", "failed") else ""
        line = f"{job['id']} is {job['state']}{': ' if why else ''}{why}"
        if told.get(job["id"]) != line:
            told[job["id"]] = line
            lines.append(line)
    return lines


def note(job: Mapping[str, Any]) -> str:
    """Where a job runs, or why it waits, or how it ended."""
    if job["hosts"]:
        return "on " + ", ".join(job["hosts"])
    if job["reason"]:
        return str(job["reason"]["sentence"])
    return str(job["message"])


def summary(out: Console, totals: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> None:
    """Waits, allocation, rounds and gaps of the whole run."""
    out.print("\n[bold]Summary[/]")
    for name, told in (
        ("jobs", _counts(totals["states"])),
        ("waits", _waits(totals["waits"])),
        ("allocation", _allocation(totals["allocation"])),
        ("rounds", f"{totals['rounds']} kept: {_counts(totals['outcomes'])}"),
        ("goals", _counts(totals["goal_statuses"]) or "none"),
        ("gaps", _gaps(rounds)),
        ("slowest", f"{max((sum(r['times_ms'].values()) for r in rounds), default=0)} ms for a whole round"),
    ):
        out.print(f"  {name:<11} {told}", markup=False)


def training_told(lines: Sequence[str]) -> str:
    """What the training's first rank reported: loss of its first and last step, and the time waited for batches."""
    steps = []
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and "loss" in data:
            steps.append(data)
    if not steps:
        return ""
    waited = sum(step["wait_share"] for step in steps) / len(steps)
    first, last = steps[0], steps[-1]
    return (
        f"{last['step']} steps of torch.distributed training on two hosts: loss {first['loss']:.3f} -> "
        f"{last['loss']:.3f}, {waited:.1%} of a step spent waiting for its batch"
    )


def preemptions_told(decisions: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each victim and what became of it: for whom it left, by what right, at what loss, and where training went on."""
    for decision in decisions:
        inside = {start["job"] for start in decision.get("starts", ()) if start.get("inside_guarantee")}
        for act in decision.get("preemptions", ()):
            reclaimed = [job for job in act["beneficiaries"] if job in inside]
            right = " reclaiming its team's guarantee" if reclaimed else ""
            told = (
                f"preempted for {', '.join(act['beneficiaries'])}{right} at a loss of {act['loss_gpu_s']:,} GPU-seconds"
            )
            for line in lines if act["job"] == demo_jobs.TRAINING else ():
                if '"resumed_after"' in line:
                    told += f"; went on from its checkpoint after step {json.loads(line)['resumed_after']}"
                    break
            yield act["job"], told


def drains_told(decisions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For each gang that hosts were drained for: how long, how much earlier than promised, and who ran there."""
    first: dict[str, tuple[int, Mapping[str, Any]]] = {}
    started: dict[str, int] = {}
    for decision in decisions:
        for plan in decision.get("reservations", ()):
            first.setdefault(plan["job"], (decision["now_s"], plan))
        for start in decision.get("starts", ()):
            if start["job"] in first:
                started.setdefault(start["job"], decision["now_s"])
    for name, (since_s, plan) in first.items():
        hosts = {worker["host"] for worker in plan["placement"]["workers"]}
        text = f"[bold]{name}[/]: {', '.join(sorted(hosts))} drained for it"
        if name in started:
            text += f"; started {started[name] - since_s} s later"
            early_s = plan["planned_start_s"] - started[name]
            text += f", {early_s} s before the time first promised" if early_s > 0 else ""
        beside = _starts_on(hosts, decisions, since_s, started.get(name))
        yield text + (f"; {', '.join(beside)} ran there meanwhile" if beside else "")


def _starts_on(hosts: set[str], decisions: Sequence[Mapping[str, Any]], since_s: int, until_s: int | None) -> list[str]:
    return [
        start["job"]
        for decision in decisions
        if since_s <= decision["now_s"] and (until_s is None or decision["now_s"] < until_s)
        for start in decision.get("starts", ())
        if hosts & {worker["host"] for worker in start["placement"]["workers"]}
    ]


def _jobs_table(rows: Sequence[Sequence[RenderableType]]) -> RenderableType:
    return table("Jobs", ("job", "state", "GPUs", "waited", "where or why"), rows, right=("GPUs", "waited"))


def _cells(host: Mapping[str, Any], colours: Mapping[str, str]) -> list[tuple[str, str]]:
    cells = []
    for card in host["gpus"]:
        style = colours.get(card["jobs"][0], "white") if card["jobs"] else "dim"
        cells.append(("▄ " if 0 < card["used_milli"] < 1000 else "█ " if card["jobs"] else "· ", style))
    return cells


def _kind(host: Mapping[str, Any]) -> str:
    kinds = sorted({card["gpu_type"] for card in host["gpus"]})
    held = f", drained for {', '.join(host['reserved_for'])}" if host.get("reserved_for") else ""
    return f"{', '.join(kinds)}, site {host['site']}{held}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def _waits(waits: Mapping[str, int]) -> str:
    mean, median, p90 = (seconds(waits[key]) for key in ("mean_s", "p50_s", "p90_s"))
    return f"mean {mean}, median {median}, p90 {p90}, over {waits['jobs']} jobs that started"


def _allocation(share: Mapping[str, int]) -> str:
    return f"{share['share_milli'] / 10:.1f} % ({share['held_gpu_s']:,} of {share['capacity_gpu_s']:,} GPU-seconds)"


def _gaps(rounds: Sequence[Mapping[str, Any]]) -> str:
    """The largest distance of each goal from its bound over all rounds, where there is any."""
    widest: dict[str, tuple[int, str]] = {}
    for each in rounds:
        for goal in each["goals"]:
            if goal["gap"] > widest.get(goal["name"], (0, ""))[0]:
                widest[goal["name"]] = (goal["gap"], goal["unit"])
    if not widest:
        return "none: every goal of every round reached its bound"
    return ", ".join(f"{name} up to {amount(gap, unit)}" for name, (gap, unit) in sorted(widest.items()))
