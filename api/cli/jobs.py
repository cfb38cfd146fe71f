"""`phalanx jobs`: the list of jobs."""

from __future__ import annotations

from typing import Any

import click

from ...model.job_state import JobState
from .client import Service
from .options import json_option, print_json, service_options
from .tables import console, gpus, seconds, table

PAGE = 500


@click.command()
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in JobState]),
    help="Only these; repeatable.",
)
@click.option("--team", help="Only this team's.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many, newest first.")
@service_options
@json_option
def jobs(states: tuple[str, ...], team: str | None, limit: int, url: str, token: str, as_json: bool) -> None:
    """Lists jobs, newest first: state, size, where they run or why they wait."""
    service = Service(url, token)
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < limit:
        page = service.get(
            "/v1/jobs",
            state=list(states),
            team=team,
            limit=min(PAGE, limit - len(found)),
            cursor=cursor,
        )
        found.extend(page["jobs"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    if as_json:
        print_json({"jobs": found, "more": cursor is not None})
        return
    columns = ("job", "state", "team", "tier", "GPUs", "waited", "where or why")
    console().print(table("", columns, [_row(job) for job in found], right=("tier", "GPUs", "waited")))
    if cursor is not None:
        click.echo(f"... and more; --limit {limit * 2} shows some of them.")


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    tail = " ".join(job["hosts"]) or (job["reason"] or {}).get("sentence") or job["message"]
    waited = seconds(job["waited_s"])
    return (job["id"], job["state"], job["team"], str(job["tier"]), gpus(job["gpu_milli"]), waited, tail)
