"""Where a training step's time goes: waiting for its batch, or computing."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step in seconds: `wait_s` until its batch was there, `compute_s` from then until the device was done."""

    wait_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class StepSummary:
    """Many steps in seconds; `wait_share` is the part of all time spent waiting, 0 to 1 (0 without steps)."""

    steps: int
    wait_s: float
    compute_s: float

    @property
    def wait_share(self) -> float:
        total = self.wait_s + self.compute_s
        return self.wait_s / total if total else 0.0


class StepTimer:
    """Times the steps of a loop over batches.

        for batch in timer.over(loader):
            ...

    With a CUDA `device` it is synchronised at the end of each step: kernels are launched, not run, when the Python
    code goes on, and their time would otherwise be counted as waiting for the next batch.
    """

    def __init__(
        self, device: torch.device | str | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._device = None if device is None else torch.device(device)
        self._clock = clock
        self._steps: list[StepTime] = []

    def over(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the batches; a step counts once the next batch is asked for or the batches end."""
        source = iter(batches)
        while True:
            asked = self._clock()
            try:
                batch = next(source)
            except StopIteration:
                return
            arrived = self._clock()
            try:
                yield batch
            finally:
                self._synchronise()
                self._steps.append(StepTime(arrived - asked, self._clock() - arrived))

    def drain(self) -> list[StepTime]:
        """The steps since the last call, which are forgotten here."""
        steps, self._steps = self._steps, []
        return steps

    def _synchronise(self) -> None:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def summarise(steps: Iterable[StepTime]) -> StepSummary:
    """Adds up steps."""
    taken: list[Any] = list(steps)
    return StepSummary(len(taken), sum(step.wait_s for step in taken), sum(step.compute_s for step in taken))
