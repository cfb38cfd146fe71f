"""`phalanx agent`: the process of one host that reports its disk and shard cache, and fills the cache ahead."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from ...model.ids import HostId, SiteId
from .dataplane import Size
from .options import service_options


@click.command()
@click.option("--host", required=True, help="Name of this host in the fleet.")
@click.option("--site", required=True, help="Its site.")
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), required=True, help="Its shard cache.")
@click.option(
    "--interval", type=click.IntRange(1, 3_600), default=5, show_default=True, help="Seconds between reports."
)
@click.option("--datasets", help="Folder or address below which data sets lie by their names: s3://bucket/sets.")
@click.option("--budget", type=Size(), help="Bytes that the cache may take, as the jobs use it: 500G.")
@click.option("--bandwidth", type=Size(), help="Bytes per second at most for data sets that are loaded ahead.")
@service_options
def agent(
    host: str,
    site: str,
    cache: Path,
    interval: int,
    datasets: str | None,
    budget: int | None,
    bandwidth: int | None,
    url: str,
    token: str,
) -> None:
    """Reports this host to the service until it is stopped: that it lives, its free disk, its cached shards.

    With --datasets and --budget it also loads data sets ahead, for gangs that are planned to start here.
    """
    from ...adapters.agent.agent import run_agent
    from ...adapters.clock import SystemClock
    from ..inventory import cache_inventory
    from ..prefill import CacheFiller

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run_agent(
        host=HostId(host),
        site=SiteId(site),
        url=url,
        cache=cache,
        clock=SystemClock(),
        stop=stop.is_set,
        token=token,
        inventory=cache_inventory,
        fill=CacheFiller(cache=cache, datasets=datasets, budget=budget, bandwidth=bandwidth),
        interval_s=float(interval),
    )
