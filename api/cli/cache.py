"""`phalanx cache`: a host's shard cache."""

from __future__ import annotations

from pathlib import Path

import click

from .dataplane import Size, size, told
from .options import json_option, print_json
from .tables import console, table

CACHE = click.option(
    "--cache",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="PHALANX_CACHE_DIR",
    required=True,
    help="Folder of the host's cache. [PHALANX_CACHE_DIR]",
)


@click.group()
def cache() -> None:
    """Fills a host's shard cache before a job comes, and shows what is in it; needs no service."""


@cache.command("list")
@CACHE
@json_option
def list_command(folder: Path, as_json: bool) -> None:
    """Lists the data sets ever used here, and how much of each is there."""
    from ...dataplane.inventory import inventory

    found = inventory(folder)
    if as_json:
        print_json({"datasets": [{key: getattr(each, key) for key in each.__slots__} for each in found]})
        return
    rows = [
        (
            each.dataset,
            each.digest[:16],
            f"{each.shards_cached:,} of {each.shards_total:,}",
            f"{size(each.bytes_cached)} of {size(each.bytes_total)}",
        )
        for each in found
    ]
    console().print(table("", ("data set", "digest", "shards", "bytes"), rows, right=("shards", "bytes")))


@cache.command()
@click.argument("location", metavar="DATASET")
@CACHE
@click.option("--budget", type=Size(), required=True, help="Bytes that the cache may take, as the jobs use it: 500G.")
@click.option("--threads", type=click.IntRange(1, 64), default=4, show_default=True, help="Shards at a time.")
@click.option("--bandwidth", type=Size(), help="Bytes per second at most.")
@json_option
def prefetch(location: str, folder: Path, budget: int, threads: int, bandwidth: int | None, as_json: bool) -> None:
    """Fetches a data set into the cache, as much as fits; what is there already stays."""
    with told():
        from ...dataplane.cache import ShardCache
        from ...dataplane.prestage import prefetch as fetch
        from ...dataplane.remote import open_dataset_source

        source, manifest = open_dataset_source(location, bytes_per_s=bandwidth)
        got = fetch(manifest, source, ShardCache(folder, budget), threads=threads)
    if as_json:
        print_json({"shards": got.shards, "bytes": got.size_bytes, "left_out": got.left_out})
        return
    click.echo(f"{got.shards:,} of {len(manifest.shards):,} shards of {manifest.name} are here, {size(got.size_bytes)}")
    if got.left_out:
        click.echo(f"{got.left_out:,} shards did not fit in {size(budget)}")
