"""The adapter process of one site: look, read what is wanted, do what brings the two together, tell the store."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from ...model.errors import StaleTerm
from ...model.event import Event
from ...model.ids import SiteId
from ...model.intent import ObservedHost
from ..ports import Clock, Executor, Lease, Store
from ..progress import ProgressReader
from ..reconcile import events_of, reconcile
from ..retention import AttemptFolder, Key, Retention, attempt_folders, expired, remove_attempts

log = logging.getLogger(__name__)
WATCHDOG_EXIT = 75
"""Exit code of a process whose call to Ray did not return; the supervisor starts a new one."""
HOSTS_EVERY_S = 5
CLEAN_EVERY_S = 600


class SiteExecutor(Executor, Protocol):
    """An executor as the adapter process drives it."""

    def lead(self, term: int) -> None:
        """The term of the adapter's lease; orders of an older one are refused from now on."""

    def mirror_logs(self, folder: Path) -> None:
        """Appends what the ranks have written since to `folder/<job>/<attempt>/<rank>.log`."""

    def clean_up(self, choose: Callable[[Sequence[AttemptFolder]], Sequence[Key]]) -> int:
        """Removes the folders of attempts that `choose` names, on all hosts; returns how many are gone."""


def run_adapter(
    *,
    site: SiteId,
    store: Store,
    executor: SiteExecutor,
    clock: Clock,
    holder: str,
    log_dir: Path,
    stop: Callable[[], bool],
    interval_s: float = 0.25,
    ttl_s: int = 15,
    patience_s: float = 120.0,
    retention: Retention | None = None,
) -> None:
    """Drives the site while it holds the lease "adapter:<site>", until `stop()`; without the lease it only waits.

    Folders of attempts go, on its hosts and here, as `retention` says. The process exits with WATCHDOG_EXIT if one step
    takes longer than `patience_s` (Ray's calls have no time limit).
    """
    watchdog = Watchdog(patience_s)
    adapter = _Adapter(site, store, executor, clock, holder, log_dir, ttl_s, watchdog, retention or Retention())
    try:
        while not stop():
            adapter.step()
            clock.sleep(interval_s)
    finally:
        adapter.close()


class Watchdog:
    """Ends the process when it was not patted for `patience_s`."""

    def __init__(self, patience_s: float, end: Callable[[int], object] = os._exit) -> None:
        self._patience_s = patience_s
        self._end = end
        self._patted = time.monotonic()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def pat(self) -> None:
        """All is well."""
        self._patted = time.monotonic()

    def close(self) -> None:
        """Watches no longer."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._patience_s / 10):
            if time.monotonic() - self._patted > self._patience_s:
                print(f"a call to Ray did not return in {self._patience_s:g} s; the adapter ends", file=sys.stderr)
                self._end(WATCHDOG_EXIT)
                return


class _Adapter:
    def __init__(
        self,
        site: SiteId,
        store: Store,
        executor: SiteExecutor,
        clock: Clock,
        holder: str,
        log_dir: Path,
        ttl_s: int,
        watchdog: Watchdog,
        retention: Retention,
    ) -> None:
        self._site, self._store, self._executor, self._clock = site, store, executor, clock
        self._holder, self._log_dir, self._ttl_s, self._watchdog = holder, log_dir, ttl_s, watchdog
        self._lease: Lease | None = None
        self._told: set[str] = set()
        self._hosts: tuple[tuple[ObservedHost, ...], int] = ((), 0)
        self._progress = ProgressReader(log_dir)
        self._retention = retention
        self._cleaned_s: int | None = None

    def step(self) -> None:
        """One round; does nothing without the lease, and stops in the middle when it is lost."""
        if not self._leads():
            return
        observation = self._executor.observe()  # before the intents: a newborn gang must never look like an orphan
        self._watchdog.pat()
        intents = self._store.intents(self._site)
        hosts = self._store.hosts() if self._hosts_due(observation.hosts) else ()
        ours = tuple(host for host in hosts if host.path.site == self._site)
        self._tell(events_of(intents, observation, self._clock.now_s(), ours), once=True)
        self._executor.mirror_logs(self._log_dir)
        # Before the instructions: what an attempt saved last must count before it is released.
        self._tell(self._progress.events(intents, observation, self._store.job, self._clock.now_s()))
        try:
            for instruction in reconcile(intents, observation):
                if not self._leads():
                    return
                self._tell(self._executor.apply(instruction))
        except StaleTerm:
            self._lease = None  # a later adapter has taken over: its lease will keep this one waiting
            return
        self._clean_up()

    def close(self) -> None:
        """Gives the lease back, so that another need not wait for its end."""
        self._watchdog.close()
        if self._lease is not None:
            self._store.release(self._lease)
            self._lease = None

    def _leads(self) -> bool:
        self._watchdog.pat()
        now_s = self._clock.now_s()
        if self._lease is None or self._lease.expires_s - now_s < 2 * self._ttl_s / 3:
            self._lease = self._store.acquire(f"adapter:{self._site}", self._holder, ttl_s=self._ttl_s, now_s=now_s)
            if self._lease is None:
                self._told.clear()
                return False
            self._executor.lead(self._lease.term)
        return True

    def _tell(self, events: Iterable[Event], *, once: bool = False) -> None:
        """Appends events; those that an observation repeats at every round only `once`, for the store knows them."""
        events = tuple(events)
        fresh = [event for event in events if not (once and event.id in self._told)]
        if fresh:
            self._store.append(fresh, now_s=self._clock.now_s())
        if once:
            self._told = {event.id for event in events}

    def _clean_up(self) -> None:
        now_s = self._clock.now_s()
        if self._cleaned_s is not None and now_s - self._cleaned_s < CLEAN_EVERY_S:
            return
        self._cleaned_s = now_s

        def choose(folders: Sequence[AttemptFolder]) -> Sequence[Key]:
            self._watchdog.pat()
            return expired(folders, self._store.job, self._retention, now_s)

        count = self._executor.clean_up(choose) + remove_attempts(self._log_dir, choose(attempt_folders(self._log_dir)))
        if count:
            log.info("the folders of %d attempts were removed: they are past what is kept", count)

    def _hosts_due(self, seen: tuple[ObservedHost, ...]) -> bool:
        now_s = self._clock.now_s()
        if seen == self._hosts[0] and now_s - self._hosts[1] < HOSTS_EVERY_S:
            return False
        self._hosts = (seen, now_s)
        return True
