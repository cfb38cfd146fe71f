"""`phalanx logs`: what a rank wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from .client import Service, job_path
from .options import json_option, print_json, service_options
from .watch import ENDED

MOST_LINES = 10_000
POLL_S = 1.0


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Global rank.")
@click.option("--tail", type=click.IntRange(1, MOST_LINES), default=200, show_default=True, help="Last lines.")
@click.option("--attempt", type=click.IntRange(1), help="An earlier attempt; default: the newest.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@service_options
@json_option
def logs(
    job_id: str, rank: int, tail: int, attempt: int | None, follow: bool, url: str, token: str, as_json: bool
) -> None:
    """Prints the last lines that a rank of JOB wrote."""
    service = Service(url, token)
    path = job_path(job_id, "logs")
    answer = service.get(path, rank=rank, tail=tail, attempt=attempt)
    if as_json:
        print_json(answer)
        return
    _print(answer["lines"])
    known = answer["lines"]
    while follow:
        # The state is read before the lines: what was written before the end is then never missed.
        ended = service.get(job_path(job_id))["state"] in ENDED
        lines = service.get(path, rank=rank, tail=MOST_LINES, attempt=attempt)["lines"]
        _print(fresh(known, lines))
        known = lines
        if ended:
            return
        time.sleep(POLL_S)


def fresh(known: Sequence[str], lines: Sequence[str]) -> Sequence[str]:
    """The lines that follow the known ones: behind the last place where their end stands in `lines`."""
    end = list(known[-20:])
    if not end:
        return lines
    for at in range(len(lines), len(end) - 1, -1):
        if list(lines[at - len(end) : at]) == end:
            return lines[at:]
    return lines


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line)
