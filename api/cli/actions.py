"""`phalanx cancel, hold, resume, priority`: steering jobs."""

from __future__ import annotations

import click

from .client import Service, job_path
from .options import json_option, print_json, service_options


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@service_options
@json_option
def cancel(job_ids: tuple[str, ...], url: str, token: str, as_json: bool) -> None:
    """Cancels jobs: waiting ones at once, running ones after their grace period."""
    _each(job_ids, "cancel", url, token, as_json)


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@service_options
@json_option
def hold(job_ids: tuple[str, ...], url: str, token: str, as_json: bool) -> None:
    """Keeps jobs from starting; running ones are stopped first and keep their age."""
    _each(job_ids, "hold", url, token, as_json)


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@service_options
@json_option
def resume(job_ids: tuple[str, ...], url: str, token: str, as_json: bool) -> None:
    """Lets held jobs queue again; requeues failed, cancelled and expired ones."""
    _each(job_ids, "resume", url, token, as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_id", metavar="JOB")
@click.argument("number", metavar="N", type=click.IntRange(-1_000_000, 1_000_000))
@service_options
@json_option
def priority(job_id: str, number: int, url: str, token: str, as_json: bool) -> None:
    """Sets the priority of JOB among its team's own jobs; higher goes first."""
    view = Service(url, token).post(job_path(job_id, "priority"), {"priority": number})
    print_json(view) if as_json else click.echo(f"{view['id']} has priority {view['priority']}")


def _each(jobs: tuple[str, ...], action: str, url: str, token: str, as_json: bool) -> None:
    service = Service(url, token)
    views = []
    for job in dict.fromkeys(jobs):
        view = service.post(job_path(job, action))
        views.append(view)
        if not as_json:
            click.echo(f"{view['id']} is {view['state']}")
    if as_json:
        print_json({"jobs": views})
