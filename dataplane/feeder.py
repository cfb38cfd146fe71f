"""The threads behind a loader: batches are dealt out to them in turn, each has a ring of buffers of its own."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from .read_ahead import ReadAhead
from .ring import Buffer, Failed, Filled, Make, Ring, done_with, fill

_JOIN_S = 5.0
# A caller is hungry that has lately waited so many times longer than it computed; of each batch that passes, what was
# before counts so much less. The first ones are waited for by everybody, often with nothing computed in between.
_TIMES, _FADES, _FIRST = 10, 0.75, 3


class Feeder:
    """Makes the batches at g, after(g), ... in as many threads as there are rings, and hands them out in order.

    Reading ahead begins with the first batch that was ready before it was asked for, or after `start_batches`: until
    then the disk is better used for the batches that are waited for. `hungry` is told, batch by batch, whether the
    caller does nothing but wait for them.

    Buffers go back to all threads at once, each of which keeps to cores of its own: a step on all cores, which is over
    when its slowest part is, is then held up once for several batches. Who waits is served at once.

    Refers to no loader, so that a forgotten one can be collected and ends the threads, too.
    """

    def __init__(
        self,
        rings: list[Ring],
        make: Make,
        g: int,
        after: Callable[[int], int],
        device: torch.device | None,
        ahead: ReadAhead | None,
        start_batches: int = 1,
    ) -> None:
        self._rings, self._ahead = rings, ahead
        self._taken_s, self._taken = time.perf_counter(), 0
        self._waited_s = self._computed_s = 0.0
        self._start_batches = start_batches
        self._turn = 0
        self._held: tuple[Ring, Filled] | None = None
        self._freed: list[tuple[Ring, Buffer]] = []

        def next_of_its_own(g: int) -> int:
            for _ in rings:
                g = after(g)
            return g

        self._threads = []
        for ring in rings:
            arguments = (ring, make, g, next_of_its_own, device)
            self._threads.append(threading.Thread(target=fill, args=arguments, name="phalanx-loader", daemon=True))
            g = after(g)
        for thread in self._threads:
            thread.start()
        _keep_apart(self._threads)

    def take(self) -> Filled | Failed:
        """The next batch, or what ended its thread; the buffer of the one before is free from now on."""
        ring = self._rings[self._turn]
        waits = ring.ready.empty()
        self._free_held(at_once=waits)
        asked_s = self._tell_hunger()
        item = ring.ready.get()
        self._taken_s = time.perf_counter()
        self._waited_s += self._taken_s - asked_s
        self._taken += 1
        if self._ahead is not None and self._start_batches:
            self._start_batches = self._start_batches - 1 if waits else 0
            if not self._start_batches:
                self._ahead.go()
        if not isinstance(item, Failed):
            self._held = ring, item
            self._turn = (self._turn + 1) % len(self._rings)
        return item

    def _free_held(self, *, at_once: bool) -> None:
        if self._held is not None:
            ring, used = self._held
            if used.copied is None:  # else the caller has never seen the buffer
                done_with(used.buffer)
            self._freed.append((ring, used.buffer))
        self._held = None
        if at_once or len(self._freed) >= len(self._rings):
            for ring, buffer in self._freed:
                ring.free.put(buffer)
            self._freed.clear()

    def _tell_hunger(self) -> float:
        """Says whether the caller has but waited until now, before it waits again; the time."""
        asked_s = time.perf_counter()
        self._computed_s = self._computed_s * _FADES + asked_s - self._taken_s
        self._waited_s *= _FADES
        if self._ahead is not None:
            self._ahead.hurry(self._taken >= _FIRST and self._waited_s > _TIMES * self._computed_s)
        return asked_s

    def end(self) -> None:
        """Ends the threads; also called when the loader is collected and before the interpreter exits."""
        for ring in self._rings:
            ring.stop.set()
            ring.free.put(None)
        if self._ahead is not None:
            self._ahead.stop(_JOIN_S)
        for thread in self._threads:
            thread.join(_JOIN_S)


def _keep_apart(threads: Sequence[threading.Thread]) -> None:
    """Divides the cores among threads that are woken together: they may else be put on one."""
    cores = sorted(os.sched_getaffinity(0))
    if 1 < len(threads) <= len(cores):
        for place, thread in enumerate(threads):
            if thread.native_id is not None:
                with suppress(OSError):  # one that has failed and ended, or cores just taken away
                    os.sched_setaffinity(thread.native_id, cores[place :: len(threads)])


def gather_threads(wanted: int | None, *, transformed: bool) -> int:
    """How many threads gather: two where each rank of the host has the cores, for the interpreter's part of one batch
    then lies beside the copying of another; but one where a user's function might not expect two calls at once."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) // ranks_here()
    return 1 if transformed else min(2, max(1, cores))


def ranks_here() -> int:
    """How many ranks share this host, as torchrun and Phalanx say it."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(ranks) if ranks.isdecimal() else 1)


def ring_sizes(depth: int, threads: int) -> list[int]:
    """Buffers of each ring: over all, one in use, one being filled per thread, `depth` ready in between."""
    buffers = depth + 1 + threads
    return [max(2, buffers // threads + int(ring < buffers % threads)) for ring in range(threads)]
