"""`phalanx serve`: the whole service in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from .options import FILE


@click.command()
@click.option("--config", type=FILE, help="Settings in TOML; default: ./phalanx.toml where it exists.")
@click.option("--data", help="Folder of the store, logs and checkpoints. [PHALANX_DATA]")
@click.option("--fleet", help="Fleet file: sites, hosts, teams. [PHALANX_FLEET]")
@click.option("--store", help="Database address; default: SQLite in the data folder. [PHALANX_STORE]")
@click.option("--bind", help="Address to listen on; beyond this machine only with a token. [PHALANX_BIND]")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port, default 8642. [PHALANX_PORT]")
def serve(
    config: Path | None, data: str | None, fleet: str | None, store: str | None, bind: str | None, port: int | None
) -> int:
    """Runs API, status page, scheduler and site adapters until Ctrl-C; then stops them all.

    Without Ray addresses in the settings it starts a local Ray cluster that plays all sites of the fleet file.
    """
    from ..serve import serve as run
    from ..settings import load_settings

    overrides = {"data": data, "fleet": fleet, "store": store, "bind": bind, "port": port}
    return run(load_settings(config, overrides=overrides))
