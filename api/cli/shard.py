"""`phalanx shard`: makes data sets of shards from raw recordings, and looks at them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .dataplane import Size, size, told
from .exit_codes import Exit, Stop
from .options import json_option, print_json
from .tables import console, seconds, table

if TYPE_CHECKING:
    from ...dataplane.manifest import Manifest
    from ...dataplane.offline.job import Job
    from ...dataplane.offline.unit import Part

LOCATION = click.argument("location", metavar="DATASET")


@click.group()
def shard() -> None:
    """Makes data sets of shards from raw recordings, and looks at them; needs no service."""


@shard.command()
@click.argument("out")
@click.option(
    "--from",
    "addresses",
    multiple=True,
    required=True,
    metavar="WHAT",
    help="A .npy, .h5, .hdf5, .nwb or .zarr; a folder of them; a database address; or MODULE:FUNCTION that gives "
    "recordings. Repeatable.",
)
@click.option("--key", "keys", multiple=True, help="Array wanted in HDF5 or Zarr (default: all). Repeatable.")
@click.option("--query", default="", help="SQL query, with ORDER BY, for a database address.")
@click.option("--clean", metavar="MODULE:FUNCTION", help="Cleaning function; without it windows are cut.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Argument of --clean, in JSON or plain.")
@click.option("--window", type=click.IntRange(1), help="Samples in a window, along the last axis.")
@click.option("--step", type=click.IntRange(1), help="Samples between windows (default: no overlap).")
@click.option("--zscore", is_flag=True, help="Mean 0 and deviation 1 for each channel of a recording.")
@click.option("--split", default="", metavar="NAME=SHARE,...", help="Such as train=0.9,val=0.1.")
@click.option("--split-by", type=click.Choice(["recording", "sample"]), default="recording", show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the splits.")
@click.option("--name", help="Name of the data set (default: that of the folder).")
@click.option("--shard-size", type=Size(), default="32M", show_default=True)
@click.option("--unit-size", type=Size(), default="256M", show_default=True, help="Raw bytes done at a time.")
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes (default: all cores).")
@click.option("--ray", metavar="ADDRESS", help="Tasks of this Ray cluster instead of processes; auto: the local one.")
@click.option("--drop-failing", is_flag=True, help="Leave recordings out whose cleaning fails.")
@click.option("--fresh", is_flag=True, help="Throw away what another job left in the folder.")
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where shards stand until they are sent, if OUT is an address (default: below ~/.cache/phalanx).",
)
@json_option
def make(
    out: str, as_json: bool, workers: int, ray: str | None, fresh: bool, work: Path | None, **options: Any
) -> None:
    """Makes a data set in OUT, a folder or an s3://, gs:// or az:// address. Run again after a crash, it goes on with
    what is not done."""
    with told():
        from ...dataplane.offline.run import make as run

        job = _job(out, **options)
        progress = None if as_json else _tell
        report = run(job, out, work=work, workers=workers, ray=ray, fresh=fresh, progress=progress)
    if as_json:
        print_json(report.to_json())
        return
    for split, manifest in report.manifests.items():
        place = f"{out.rstrip('/')}/{split}".rstrip("/")
        click.echo(
            f"{place}: {manifest.rows:,} samples in {len(manifest.shards):,} shards, {size(manifest.size_bytes)}"
        )
    for split in job.splits.names:
        if split not in report.manifests and job.splits.shares:
            click.echo(f"{out.rstrip('/')}/{split}: nothing fell into this split")
    for reason, count in report.dropped.items():
        click.echo(f"dropped {count:,}: {reason}")
    reused = f", {report.units_reused} of them done before" if report.units_reused else ""
    click.echo(f"{report.recordings:,} recordings, {report.units:,} units{reused}, {seconds(report.seconds)}")


@shard.command()
@LOCATION
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Draw sample windows into this SVG.")
@click.option("--field", help="Field to draw (default: the first that can be drawn).")
@click.option("--sample", "samples", type=click.IntRange(0), multiple=True, help="Sample to draw. Repeatable.")
@json_option
def inspect(location: str, picture: Path | None, field: str | None, samples: tuple[int, ...], as_json: bool) -> None:
    """Shows what a data set consists of: fields, shards, sizes, where it came from."""
    with told():
        from ...dataplane.remote import open_dataset_source

        _, manifest = open_dataset_source(location)
        if picture is not None:
            _draw(location, picture, field, samples)
    if as_json:
        print_json({**manifest.to_json(), "digest": manifest.digest})
        return
    _show(location, manifest)
    if picture is not None:
        click.echo(f"sample windows: {picture}")


@shard.command()
@LOCATION
@json_option
def verify(location: str, as_json: bool) -> int:
    """Reads every shard and compares its checksum; exit code 1 if one is missing or wrong."""
    with told():
        from ...dataplane.look import verify as check
        from ...dataplane.remote import open_dataset_source

        source, manifest = open_dataset_source(location)
        faults = check(source, manifest)
    if as_json:
        print_json({"shards": len(manifest.shards), "faults": faults})
    else:
        for fault in faults:
            click.echo(fault)
        click.echo(f"{len(manifest.shards) - len(faults):,} of {len(manifest.shards):,} shards are whole")
    return int(Exit.NO if faults else Exit.OK)


@shard.command()
@LOCATION
@json_option
def stats(location: str, as_json: bool) -> None:
    """Reads every sample: smallest, largest, mean and deviation of each field."""
    with told():
        from ...dataplane.dataset import ShardDataset
        from ...dataplane.look import stats as measure

        with ShardDataset(location) as dataset:
            found = measure(dataset)
    if as_json:
        print_json({"fields": [{key: getattr(each, key) for key in each.__slots__} for each in found]})
        return
    columns = ("field", "values", "not finite", "smallest", "largest", "mean", "deviation")
    rows = [
        (
            *(s.name, f"{s.values:,}", f"{s.not_finite:,}"),
            *(f"{value:.6g}" for value in (s.smallest, s.largest, s.mean, s.deviation)),
        )
        for s in found
    ]
    console().print(table("", columns, rows, right=columns[1:]))


def _job(
    out: str,
    *,
    addresses: tuple[str, ...],
    keys: tuple[str, ...],
    query: str,
    clean: str | None,
    params: tuple[str, ...],
    window: int | None,
    step: int | None,
    zscore: bool,
    split: str,
    split_by: str,
    seed: int,
    name: str | None,
    shard_size: int,
    unit_size: int,
    drop_failing: bool,
) -> Job:
    from ...dataplane.offline.inputs import find_inputs
    from ...dataplane.offline.job import Job
    from ...dataplane.offline.splits import parse_splits
    from ...dataplane.offline.steps import Windowing

    if (clean is None) == (window is None):
        raise Stop(Exit.BAD_INPUT, "give either --clean MODULE:FUNCTION or --window N")
    if clean is not None and (step is not None or zscore):
        raise Stop(Exit.BAD_INPUT, "--step and --zscore belong to --window; pass them to --clean with --param")
    if params and clean is None:
        raise Stop(Exit.BAD_INPUT, "--param belongs to --clean")
    return Job(
        name=name or Path(out.partition("://")[2] or out).resolve().name,
        inputs=find_inputs(addresses, keys=keys, query=query),
        clean=Windowing(window, step, zscore) if window is not None else str(clean),
        params=dict(_param(text) for text in params),
        splits=parse_splits(split, by_sample=split_by == "sample", seed=seed),
        shard_bytes=shard_size,
        unit_bytes=unit_size,
        drop_failing=drop_failing,
    )


def _param(text: str) -> tuple[str, Any]:
    name, mark, value = text.partition("=")
    if not mark or not name.isidentifier():
        raise Stop(Exit.BAD_INPUT, f"--param {text}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _tell(done: int, units: int, part: Part) -> None:
    dropped = sum(part.dropped.values())
    more = f", {dropped:,} dropped" if dropped else ""
    click.echo(f"unit {done} of {units}: {sum(part.samples.values()):,} samples{more}", err=True)


def _draw(location: str, target: Path, field: str | None, samples: tuple[int, ...]) -> None:
    from ...dataplane.dataset import ShardDataset
    from ...dataplane.look import picture

    with ShardDataset(location) as dataset:
        chosen = list(samples) or list(range(0, len(dataset), max(1, len(dataset) // 4)))[:4]
        wrong = [number for number in chosen if number >= len(dataset)]
        if wrong:
            raise Stop(Exit.BAD_INPUT, f"--sample {wrong[0]}: the data set has {len(dataset)} samples, from 0")
        drawable = next((each.name for each in dataset.fields if each.shape or each.variable), "")
        target.write_text(picture(dataset, chosen, field or drawable), encoding="utf-8")


def _show(location: str, manifest: Manifest) -> None:
    out = console()
    click.echo(f"{manifest.name} at {location}")
    click.echo(
        f"{manifest.rows:,} samples in {len(manifest.shards):,} shards, {size(manifest.size_bytes)}, "
        f"digest {manifest.digest[:16]}"
    )
    fields = [
        (f.name, f.dtype, " x ".join(map(str, f.shape)) or "scalar", "any number of items" if f.variable else "fixed")
        for f in manifest.fields
    ]
    out.print(table("Fields", ("field", "type", "shape", "length"), fields))
    for key, value in sorted(manifest.provenance.items()):
        click.echo(f"{key}: {json.dumps(value)}"[:200])
