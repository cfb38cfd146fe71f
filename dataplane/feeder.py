"""The threads behind a loader: batches are dealt out to them in turn, and handed out in order."""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from .read_ahead import ReadAhead
from .ring import Buffer, Failed, Filled, Job, Jobs, Make, done_with, fill

_JOIN_S = 5.0
# A caller is hungry that has lately waited so many times longer than it computed; of each batch that passes, what was
# before counts so much less. The first ones are waited for by everybody, often with nothing computed in between.
_TIMES, _FADES, _FIRST = 10, 0.75, 3
# With fewer cores than that for a rank, two threads copy no faster than the caller, who would but wait for them: they
# take each other's memory bandwidth and the interpreter's lock, and each is woken for every batch.
_CORES_FOR_THREADS = 4


class Feeder:
    """Makes the batches at g, after(g), ... in so many threads, and hands them out in order.

    Reading ahead begins with the first batch that was ready before it was asked for, or after `start_batches`: until
    then the disk is better used for the batches that are waited for. `ahead` is told, batch by batch, whether the
    caller does nothing but wait for them.

    With `by_caller`, such a caller makes its batches itself, from the fifth on, but while the disk is needed for them:
    nothing could be kept ready, and two buffers do. For one that computes, and with a `cold_start`, there are as many
    as `buffers`. They go back to all threads at once, each of which keeps to cores of its own: a step on all cores,
    which is over when its slowest part is, is then held up once for several batches. Who waits is served at once.

    `interrupted` is set when an exception from outside, such as KeyboardInterrupt, has cut short the making of a batch
    by the caller; this feeder is then of no use any more.

    Refers to no loader, so that a forgotten one can be collected and ends the threads, too.
    """

    def __init__(
        self,
        new_buffer: Callable[[], Buffer],
        make: Make,
        g: int,
        after: Callable[[int], int],
        device: torch.device | None,
        ahead: ReadAhead | None,
        *,
        threads: int,
        buffers: int,
        by_caller: bool = False,
        cold_start: bool = False,
        disk_needed: Callable[[], bool] = lambda: False,
        start_batches: int = 1,
    ) -> None:
        self._new_buffer, self._make, self._ahead = new_buffer, make, ahead
        self._g, self._after, self._start_batches = g, after, start_batches
        self._taken_s, self._taken = time.perf_counter(), 0
        self._waited_s = self._computed_s = 0.0
        self._may_make, self._by_caller, self._disk_needed = by_caller, by_caller, disk_needed
        self.interrupted = False
        self._turn = 0
        self._held: Filled | None = None
        self._freed: list[Buffer] = []
        self._given: deque[Job] = deque()
        self._stop = threading.Event()
        self._jobs: list[Jobs] = [queue.SimpleQueue() for _ in range(threads)]
        self._threads = [
            threading.Thread(
                target=fill, args=(jobs, new_buffer, make, device, self._stop), name="phalanx-loader", daemon=True
            )
            for jobs in self._jobs
        ]
        self._to_make = buffers
        if cold_start or not by_caller:
            self._make_buffers()

    def take(self) -> Filled | Failed:
        """The next batch, or what ended its thread; the buffer of the one before is free from now on."""
        waits = not self._given or self._given[0].ready.empty()
        asked_s = self._tell_hunger()
        self._free_held(at_once=waits)
        if self._given:
            item = self._given[0].ready.get()
            self._given.popleft()
        else:
            item = self._made_here()
        if self._may_make and self._disk_needed():
            self._make_buffers()
        elif self._by_caller and self._taken < _FIRST and not self._given:
            self._give(self._free_buffer())
        self._taken_s = time.perf_counter()
        self._waited_s += self._taken_s - asked_s
        self._taken += 1
        if self._ahead is not None and self._start_batches:
            self._start_batches = self._start_batches - 1 if waits else 0
            if not self._start_batches:
                self._ahead.go()
        if not isinstance(item, Failed):
            self._held = item
        return item

    def _made_here(self) -> Filled | Failed:
        """The next batch, made by the caller; at the very first with the one after it beside."""
        job = self._next_job(self._free_buffer())
        if not self._taken:
            self._give(self._free_buffer())
        buffer = job.buffer or self._new_buffer()
        try:
            return Filled(self._make(job.g, buffer), buffer)
        except Exception as error:
            return Failed(error)
        except BaseException:
            self.interrupted = True
            raise

    def _free_buffer(self) -> Buffer | None:
        """A free buffer, the last used if any; None stands for one that is still to be made."""
        if self._freed:
            return self._freed.pop()
        self._to_make -= 1
        return None

    def _make_buffers(self) -> None:
        """Has those made that are missing, and puts them to use."""
        count, self._to_make = self._to_make, 0
        for _ in range(count):
            self._give(None)

    def _next_job(self, buffer: Buffer | None) -> Job:
        job = Job(self._g, buffer)
        self._g = self._after(self._g)
        return job

    def _give(self, buffer: Buffer | None) -> None:
        """Has a thread fill a buffer with the next batch."""
        if self._threads[self._turn].ident is None:
            self._threads[self._turn].start()
            if self._turn == len(self._threads) - 1:  # the last of them
                _keep_apart(self._threads)
        job = self._next_job(buffer)
        self._given.append(job)
        self._jobs[self._turn].put(job)
        self._turn = (self._turn + 1) % len(self._jobs)

    def _free_held(self, *, at_once: bool) -> None:
        if self._held is not None:
            if self._held.copied is None:  # else the caller has never seen the buffer
                done_with(self._held.buffer)
            self._freed.append(self._held.buffer)
        self._held = None
        if self._by_caller:
            return
        if at_once or len(self._freed) >= len(self._threads):
            while self._freed:
                self._give(self._freed.pop())
        if self._to_make:
            self._make_buffers()

    def _tell_hunger(self) -> float:
        """Says whether the caller has but waited until now, before it waits again; the time."""
        asked_s = time.perf_counter()
        computed_s = asked_s - self._taken_s if self._taken else 0.0
        self._computed_s = self._computed_s * _FADES + computed_s
        self._waited_s *= _FADES
        only_waits = not self._taken or self._waited_s > _TIMES * self._computed_s
        if self._ahead is not None:
            self._ahead.hurry(self._taken >= _FIRST and only_waits)
        self._by_caller = self._may_make and only_waits and not self._disk_needed()
        return asked_s

    def end(self) -> None:
        """Ends the threads; also called when the loader is collected and before the interpreter exits."""
        self._stop.set()
        for jobs in self._jobs:
            jobs.put(None)
        if self._ahead is not None:
            self._ahead.stop(_JOIN_S)
        for thread in self._threads:
            if thread.ident is not None:
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


def few_cores() -> bool:
    """Whether each rank of the host has too few cores to gather in other threads than the one that waits for it."""
    return len(os.sched_getaffinity(0)) // ranks_here() < _CORES_FOR_THREADS


def ranks_here() -> int:
    """How many ranks share this host, as torchrun and Phalanx say it."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(ranks) if ranks.isdecimal() else 1)


def buffers_for(depth: int, threads: int) -> int:
    """Buffers in all: one in use, one being filled by each thread, `depth` ready in between."""
    return max(depth + 1 + threads, 2 * threads)
