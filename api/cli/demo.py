"""`phalanx demo`: an example mix of jobs on a small pretended fleet, start to end."""

from __future__ import annotations

from pathlib import Path

import click

from .tables import console


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), help="Keep data here; else a temporary folder."
)
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the API and the page; default 8642, if free.")
@click.option("--stay", is_flag=True, help="Keep serving after the summary, until Ctrl-C.")
@click.option(
    "--limit", "limit_s", type=click.IntRange(10), default=300, show_default=True, help="Give up after, in s."
)
def demo(data: Path | None, port: int | None, stay: bool, limit_s: int) -> int:
    """Starts the service with a local Ray cluster that plays three sites, and runs an example mix of jobs.

    Small jobs, shares of cards, an 8-GPU job, a gang that really trains on two hosts, one that can never run and one
    that must wait. Ends with a summary; exit code 0 if every job succeeded. Ctrl-C leaves nothing behind.
    """
    from ..demo import run_demo

    return run_demo(console(), data=data, port=port, stay=stay, limit_s=limit_s)
