"""The processes of `phalanx serve`: python -m phalanx.api.worker KIND [NAME]. Each stops with its parent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..adapters.clock import SystemClock
from ..model.errors import InvalidInput, PhalanxError
from ..model.ids import SiteId
from . import wiring
from .holder import holder_name, reclaim
from .settings import Settings, load_settings

log = logging.getLogger(__name__)
STOP_WAIT_S = 20.0


def main(arguments: list[str]) -> int:
    """Runs one process of the service until it is told to stop. Returns its exit code: 2 for wrong settings."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # httpx and alembic tell of each request and migration; that is noise here.
    for name in ("httpx", "httpcore", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    kind, *names = arguments
    stop = threading.Event()
    _stop_on_signals(stop)
    _stop_with_parent(stop)
    try:
        settings = load_settings()
        PROCESSES[kind](settings, stop, *names)
    except InvalidInput as fault:
        log.error("%s", fault)
        return 2
    except PhalanxError as fault:
        log.error("%s: %s", type(fault).__name__, fault)
        return 1
    return 0


def api(settings: Settings, stop: threading.Event) -> None:
    """The HTTP API and the pages."""
    import uvicorn

    from .app import create_app

    store = wiring.open_the_store(settings)
    app = create_app(settings, store, settings.policy, SystemClock())
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    # The signals are ours: uvicorn would take them over and raise them again when it has stopped.
    watcher = threading.Thread(target=_ask_to_exit, args=(server, stop), daemon=True)
    watcher.start()
    try:
        asyncio.run(server.serve())
    finally:
        store.close()


def loop(settings: Settings, stop: threading.Event) -> None:
    """The scheduler."""
    from .loop import LEASE, run_loop

    store = wiring.open_the_store(settings)
    reclaim(store, LEASE)
    try:
        run_loop(
            store,
            settings.policy,
            SystemClock(),
            holder=holder_name(),
            interval_s=settings.round_interval_s,
            replay_dir=settings.data_dir / "replay",
            stop=stop.is_set,
        )
    finally:
        store.close()


def cluster(settings: Settings, stop: threading.Event) -> None:
    """A local Ray cluster that plays every host of the fleet."""
    from ..adapters.ray.local_cluster import LocalCluster

    store = wiring.open_the_store(settings)
    hosts = store.hosts()
    store.close()
    wiring.clear_cluster(settings)
    made = LocalCluster(hosts, folder=wiring.cluster_folder(settings))
    # Ray takes the signals over, and would drain for half a minute first.
    _stop_on_signals(stop)
    path = settings.data_dir / wiring.RAY_ADDRESS
    try:
        _write_whole(path, made.address)
        stop.wait()
    finally:
        path.unlink(missing_ok=True)
        made.stop()


def adapter(settings: Settings, stop: threading.Event, site: str) -> None:
    """The adapter of one site."""
    from ..adapters.ray.process import run_adapter
    from ..adapters.retention import Retention

    clock = SystemClock()
    store = wiring.open_the_store(settings)
    reclaim(store, f"adapter:{site}")
    executor = wiring.executor_for(settings, SiteId(site), store, clock)
    _stop_on_signals(stop)
    try:
        run_adapter(
            site=SiteId(site),
            store=store,
            executor=executor,
            clock=clock,
            holder=holder_name(),
            log_dir=settings.log_dir,
            stop=stop.is_set,
            retention=Retention(age_s=settings.keep_logs_s, attempts=settings.keep_attempts),
        )
    finally:
        executor.close()
        store.close()


def agents(settings: Settings, stop: threading.Event) -> None:
    """The agents of all hosts that this machine plays, a thread each; a real host runs `phalanx agent`."""
    from ..adapters.agent.agent import run_agent
    from .inventory import cache_inventory
    from .prefill import CacheFiller

    store = wiring.open_the_store(settings)
    hosts = store.hosts()
    store.close()
    threads = [
        threading.Thread(
            target=run_agent,
            kwargs={
                "host": host.id,
                "site": host.path.site,
                "url": settings.url,
                "cache": wiring.cache_dir(settings, host.id),
                "clock": SystemClock(),
                "stop": stop.is_set,
                "token": settings.token,
                "inventory": cache_inventory,
                "fill": CacheFiller(
                    cache=wiring.cache_dir(settings, host.id),
                    datasets=settings.datasets or None,
                    budget=settings.cache_budget_mib * 2**20 or None,
                ),
            },
        )
        for host in hosts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PROCESSES: dict[str, Callable[..., None]] = {
    "api": api,
    "loop": loop,
    "cluster": cluster,
    "adapter": adapter,
    "agents": agents,
}


def _ask_to_exit(server: object, stop: threading.Event) -> None:
    stop.wait()
    server.should_exit = True  # type: ignore[attr-defined]


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _stop_with_parent(stop: threading.Event) -> None:
    """The supervisor holds the other end of stdin: its end is the supervisor's end, whatever killed it."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        stop.set()
        # A process that does not heed the stop must not outlive its supervisor.
        time.sleep(STOP_WAIT_S)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def _write_whole(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
