"""`phalanx job` and `phalanx why`: one job."""

from __future__ import annotations

import time
from typing import Any

import click

from .client import Service, job_path
from .options import json_option, print_json, service_options
from .tables import console, gpus, seconds, table


@click.command()
@click.argument("job_id", metavar="JOB")
@service_options
@json_option
def job(job_id: str, url: str, token: str, as_json: bool) -> None:
    """Shows JOB: state, placement by rank, why it waits, and its story."""
    view = Service(url, token).get(job_path(job_id))
    if as_json:
        print_json(view)
        return
    out = console()
    out.print(f"[bold]{view['id']}[/] is {view['state']}, attempt {view['attempt']}", highlight=False)
    for name, value in _facts(view):
        out.print(f"  {name:<10} {value}", markup=False)
    ranks = [
        (str(r["rank"]), f"{r['role']}[{r['index']}]", r["host"], ",".join(map(str, r["gpus"])) or "-")
        for r in view["placement"]
    ]
    if ranks:
        out.print(table("Ranks", ("rank", "worker", "host", "GPUs"), ranks, right=("rank",)))
    story = [(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e["at_s"])), e["text"]) for e in view["story"]]
    if story:
        out.print(table("Story", ("when", "what"), story))


@click.command()
@click.argument("job_id", metavar="JOB")
@service_options
@json_option
def why(job_id: str, url: str, token: str, as_json: bool) -> None:
    """Says in one sentence why JOB waits, what would help, and when it is expected to start."""
    view = Service(url, token).get(job_path(job_id))
    reason = view["reason"]
    if as_json:
        print_json({"job": view["id"], "state": view["state"], "reason": reason, "forecast": view.get("forecast")})
        return
    if reason is None:
        click.echo(_not_waiting(view))
    else:
        click.echo(reason["sentence"])
        for help_line in reason["helps"]:
            if help_line not in reason["sentence"]:
                click.echo(f"  would help: {help_line}")
    told = _forecast(view)
    if told:
        click.echo(f"  forecast: it {told}")


def _not_waiting(view: dict[str, Any]) -> str:
    told = f"{view['id']} is {view['state']}"
    if view["state"] in ("queued", "blocked"):
        return f"{told}; no round has looked at it yet."
    return f"{told}, so it does not wait{': ' + view['message'] if view['message'] else '.'}"


def _forecast(view: dict[str, Any]) -> str:
    """When it starts, and when it does if all jobs before it run to their limits; "" where nothing is told."""
    told = view.get("forecast")
    if not told:
        return ""
    sentence: str = told["sentence"]
    if told["start_s"] is None or told["latest_s"] is None or told["latest_s"] <= told["start_s"]:
        return sentence
    later = seconds(told["latest_s"] - told["start_s"])
    return f"{sentence}; {later} later if all jobs before it run to their limits"


_PARTS = (
    ("compute", "computing"),
    ("wait", "waiting for batches"),
    ("checkpoint", "in checkpoints"),
    ("peers", "waiting for slower ranks"),
)


def _steps(steps: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Where the time of its steps goes, and the ranks that hold the others up."""
    if not steps:
        return []
    shares = ", ".join(f"{steps[f'{name}_milli'] / 10:.1f} % {what}" for name, what in _PARTS)
    told = f"{shares}; {steps['step_us'] / 1000:.1f} ms a step, step {steps['last_step']}, {steps['ranks']} ranks"
    slow = [f"rank {s['rank']} on {s['host']} ({s['times_milli'] / 1000:.2f} times the median)" for s in steps["slow"]]
    return [("steps", told), ("slow", ", ".join(slow))]


def _facts(view: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("name", view["name"]),
        ("team", f"{view['team']}, tier {view['tier']}, priority {view['priority']}"),
        ("asks", f"{view['workers']} workers, {gpus(view['gpu_milli'])} GPUs"),
        ("guarantee", "started inside that of its team" if view["inside_guarantee"] else ""),
        ("waited", seconds(view["waited_s"])),
        ("saved", seconds(view["saved_work_s"]) + " of work in checkpoints" if view.get("saved_work_s") else ""),
        *_steps(view.get("steps")),
        ("exit code", "" if view["exit_code"] is None else str(view["exit_code"])),
        ("message", view["message"]),
        ("why", view["reason"]["sentence"] if view["reason"] else ""),
        ("forecast", _forecast(view)),
    ]
    return [(name, value) for name, value in facts if value]
