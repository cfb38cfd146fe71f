"""Where a training step's time goes: waiting for its batch, computing, checkpoints, waiting for slower ranks."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step in seconds: `wait_s` until its batch was there, `checkpoint_s` and `peers_s` as the loop marked them,
    and `compute_s` for the rest until the device was done."""

    wait_s: float
    compute_s: float
    checkpoint_s: float = 0.0
    peers_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.wait_s + self.compute_s + self.checkpoint_s + self.peers_s


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Many steps in seconds; shares are parts of all time, 0 to 1 (0 without steps).

    `compute_share` is the estimate of the device's utilisation that the loop alone can give.
    """

    steps: int
    wait_s: float
    compute_s: float
    checkpoint_s: float = 0.0
    peers_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.wait_s + self.compute_s + self.checkpoint_s + self.peers_s

    @property
    def wait_share(self) -> float:
        return self.wait_s / self.total_s if self.total_s else 0.0

    @property
    def compute_share(self) -> float:
        return self.compute_s / self.total_s if self.total_s else 0.0


class Listener(Protocol):
    """What is told of every step, such as `StepLog`."""

    def add(self, step: StepTime) -> None: ...


class StepTimer:
    """Times the steps of a loop over batches.

        for batch in timer.over(loader):
            ...
            with timer.checkpoint():
                save_checkpoint(...)
            with timer.waiting():
                distributed.barrier()

    With a CUDA `device` it is synchronised at the end of each step and of each marked part: kernels are launched, not
    run, when the Python code goes on, and their time would otherwise be counted as waiting for the next batch. Loops
    that are not ours call `arrived` when a batch is there and `finished` when its step is done. `listener` is told of
    every step.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        clock: Callable[[], float] = time.perf_counter,
        listener: Listener | None = None,
    ) -> None:
        self._device = None if device is None else torch.device(device)
        self._clock = clock
        self._listener = listener
        self._steps: list[StepTime] = []
        self._asked: float | None = None
        self._arrived: float | None = None
        self._checkpoint_s = self._peers_s = self._between_s = 0.0

    def over(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the batches; a step counts once the next batch is asked for or the batches end."""
        source = iter(batches)
        while True:
            self.ask()
            try:
                batch = next(source)
            except StopIteration:
                return
            self.arrived()
            try:
                yield batch
            finally:
                self.finished()

    def ask(self) -> None:
        """The next batch is asked for now; what was marked before belongs to no step."""
        self._asked = self._clock()
        self._checkpoint_s = self._peers_s = self._between_s = 0.0

    def arrived(self) -> None:
        """A batch is there. Without `ask` it was waited for since the last step was done."""
        self._arrived = self._clock()

    def finished(self) -> None:
        """The step of the last batch is done; harmless when there is none."""
        if self._arrived is None:
            return
        self._synchronise()
        now = self._clock()
        asked = self._arrived if self._asked is None else self._asked
        marked = self._checkpoint_s + self._peers_s
        step = StepTime(
            max(0.0, self._arrived - asked - self._between_s),
            max(0.0, now - self._arrived - (marked - self._between_s)),
            self._checkpoint_s,
            self._peers_s,
        )
        self._steps.append(step)
        self._checkpoint_s = self._peers_s = self._between_s = 0.0
        self._asked, self._arrived = now, None
        if self._listener is not None:
            self._listener.add(step)

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Marks the writing of a checkpoint."""
        begun = self._mark()
        try:
            yield
        finally:
            self._checkpoint_s += self._since(begun)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Marks a barrier, or another wait for slower ranks."""
        begun = self._mark()
        try:
            yield
        finally:
            self._peers_s += self._since(begun)

    def drain(self) -> list[StepTime]:
        """The steps since the last call, which are forgotten here."""
        steps, self._steps = self._steps, []
        return steps

    def _mark(self) -> float:
        self._synchronise()
        return self._clock()

    def _since(self, begun: float) -> float:
        spent = self._clock() - begun
        if self._arrived is None:
            self._between_s += spent
        return spent

    def _synchronise(self) -> None:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def summarise(steps: Iterable[StepTime]) -> StepSummary:
    """Adds up steps."""
    taken = list(steps)
    return StepSummary(
        len(taken),
        sum(step.wait_s for step in taken),
        sum(step.compute_s for step in taken),
        sum(step.checkpoint_s for step in taken),
        sum(step.peers_s for step in taken),
    )
