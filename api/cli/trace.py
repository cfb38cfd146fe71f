"""`phalanx import-trace`: a snapshot of a public trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...model.codec import document, dumps
from .. import units
from ..traces import ASSUMPTIONS, ImportedTrace
from ..traces import import_trace as build
from .files import write_text
from .options import FILE, json_option, print_json
from .tables import console, seconds


@click.command("import-trace")
@click.argument("jobs_file", metavar="JOBS.csv", type=FILE)
@click.option("--hosts", "hosts_file", type=FILE, required=True, help="The trace's hosts.")
@click.option("--at", required=True, help='Moment of the snapshot from the start of the trace: "432000", "5d", "12h".')
@click.option("--carry-in", type=FILE, help="Jobs that ran or waited before the trace begins.")
@click.option("--out", type=FILE, help="Write the snapshot here; else it goes to stdout.")
@click.option("--limit", type=click.IntRange(1), help="Take only the first so many jobs of the trace.")
@click.option("--limit-hosts", type=click.IntRange(1), help="Take only the first so many hosts.")
@click.option("--undecided", default="0s", help='Start nothing in the last "6h" before the moment, so that jobs wait.')
@click.option("--all-waiting", is_flag=True, help="Start nothing at all: a packing benchmark.")
@json_option
def import_trace(
    jobs_file: Path,
    hosts_file: Path,
    at: str,
    carry_in: Path | None,
    out: Path | None,
    limit: int | None,
    limit_hosts: int | None,
    undecided: str,
    all_waiting: bool,
    as_json: bool,
) -> None:
    """Writes the snapshot of a public trace as it would stand at a moment.

    Jobs submitted before then run where a plain first-fit scheduler would have put them, or wait. Assumptions for what
    the trace leaves out are told on stderr; docs/traces.md has the columns and where the traces come from.
    """
    at_s = _moment_s(at)
    with _progress(jobs_file) as progress:
        trace = build(
            jobs_file,
            hosts_file,
            at_s,
            carry_in=carry_in,
            first_jobs=limit,
            first_hosts=limit_hosts,
            undecided_s=at_s if all_waiting else _moment_s(undecided),
            progress=progress,
        )
    if out:
        write_text(out, dumps(trace.snapshot) + "\n")
    _tell(trace, out, as_json)


def _tell(trace: ImportedTrace, out: Path | None, as_json: bool) -> None:
    if as_json and out:
        told = {"ended": trace.ended, "running": trace.running, "waiting": trace.waiting, "gpus": trace.gpus}
        print_json({"out": str(out), **told, "gpus_held": trace.gpus_held, "assumptions": list(ASSUMPTIONS)})
        return
    if not out:
        print_json(document(trace.snapshot)) if as_json else click.echo(dumps(trace.snapshot))
    notes = console(stderr=True)
    notes.print(
        f"At {seconds(trace.snapshot.now_s)}: {trace.running} jobs run on {trace.gpus_held:g} of {trace.gpus} GPUs "
        f"({len(trace.snapshot.hosts)} hosts), {trace.waiting} wait, {trace.ended} have ended."
    )
    for line in ASSUMPTIONS:
        notes.print(f"  - {line}", style="dim")


def _moment_s(at: str) -> int:
    return int(at) if at.isascii() and at.isdigit() and len(at) < 13 else units.duration_s("--at", at)


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr over the bytes of the file; nothing where stderr is no terminal."""
    out = console(stderr=True)
    if not out.is_terminal or not path.is_file():
        yield None
        return
    from rich.progress import Progress

    with Progress(console=out, transient=True) as bar:
        task = bar.add_task(f"reading {path.name}", total=max(1, path.stat().st_size))
        yield lambda position: bar.update(task, completed=position)
