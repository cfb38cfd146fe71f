"""`phalanx serve`: every process of the service under one supervisor, until Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ..adapters.clock import SystemClock
from ..adapters.ports import Store
from ..model.errors import InvalidInput
from ..model.ids import TeamId
from ..model.team import Team
from . import wiring
from .fleet import load_fleet
from .settings import Settings, child_environment
from .supervisor import ChildSpec, Supervisor, kill_marked

READY_WAIT_S = 60.0
TEND_S = 0.2
DEFAULT_TEAM = TeamId("default")


def serve(settings: Settings, *, out: TextIO | None = None, stop: threading.Event | None = None) -> int:
    """Runs the service until SIGINT, SIGTERM or `stop`; then stops every process. Returns the exit code.

    Raises InvalidInput for a data folder in use, a port in use, or a fleet without hosts.
    """
    out = out or sys.stdout
    logging.basicConfig(level=logging.WARNING, format="phalanx serve: %(message)s", stream=sys.stderr)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    stop = stop or threading.Event()
    hurry = threading.Event()
    with _sole_owner(settings), _signals(stop, hurry):
        _check_port(settings)
        instance = wiring.instance(settings)
        # What an earlier service was killed away from would hold ports and cards.
        kill_marked(f"{instance}/")
        wiring.clear_cluster(settings)
        specs = _prepare(settings)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
        supervisor = Supervisor(
            specs=specs,
            environment=environment | child_environment(settings),
            log_dir=settings.data_dir / "log",
            instance=instance,
        )
        try:
            _run(settings, supervisor, stop, out)
        finally:
            print("Stopping ...", file=out, flush=True)
            supervisor.stop(hurry.is_set)
            wiring.clear_cluster(settings)
    print("Stopped.", file=out, flush=True)
    return 0


def _run(settings: Settings, supervisor: Supervisor, stop: threading.Event, out: TextIO) -> None:
    announced = False
    deadline = time.monotonic() + READY_WAIT_S
    while not stop.wait(TEND_S):
        supervisor.tend()
        if not announced and (wiring.answers(settings) or time.monotonic() > deadline):
            announced = True
            print(f"Phalanx serves {settings.url}  (data: {settings.data_dir}; Ctrl-C stops it)", file=out, flush=True)


def _prepare(settings: Settings) -> list[ChildSpec]:
    """Brings the fleet file into the store, and lists the processes that the fleet needs."""
    store = wiring.open_the_store(settings)
    try:
        load_into(store, settings)
        sites = sorted({host.path.site for host in store.hosts()})
    finally:
        store.close()
    return wiring.child_specs(settings, sites)


def load_into(store: Store, settings: Settings) -> None:
    """Writes the fleet of the settings' fleet file into the store. Raises InvalidInput where there is none at all."""
    if settings.fleet_file is None:
        if not store.hosts():
            raise InvalidInput("fleet", "the store has no hosts and no fleet file is set", "--fleet FILE")
        return
    fleet = load_fleet(settings.fleet_file)
    if not fleet.hosts:
        raise InvalidInput(str(settings.fleet_file), "the fleet has no hosts", "[[sites.hosts]] entries")
    now_s = SystemClock().now_s()
    store.put_sites(fleet.sites, fleet.links)
    store.put_teams(fleet.teams or (Team(id=DEFAULT_TEAM),))
    for host in fleet.hosts:
        store.put_host(host, now_s=now_s)


@contextmanager
def _sole_owner(settings: Settings) -> Iterator[None]:
    """Holds the data folder's lock, with who holds it written inside."""
    path = settings.data_dir / "serve.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInput(
                "data",
                f"{settings.data_dir} is in use by {_owner(path)}",
                "one service to a data folder: stop that one, or name another folder",
            ) from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "url": settings.url}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _owner(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(path.read_text())
        return f"the service at {data['url']} (process {data['pid']})"
    return "another service"


@contextmanager
def _signals(stop: threading.Event, hurry: threading.Event) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP ask for the stop; a second one stops waiting for children."""

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _check_port(settings: Settings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as fault:
            raise InvalidInput(
                "port", f"{settings.host}:{settings.port} cannot be listened on: {fault.strerror}", "a free port"
            ) from None
