"""Where batches begin and end: in one endless stream, or in epochs that stand alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .errors import LoaderError

Tail = Literal["run_on", "drop", "pad"]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cuts sample numbers into global batches.

    `epoch_samples` (>= 1) sample numbers are an epoch. With the tail `run_on` batches go across its end and there is
    no remainder; with `drop` an epoch's last samples that fill no batch are left out; with `pad` the last batch is
    filled with samples from the epoch's beginning, marked as repeats. Every rank has equally many batches, of equal
    size, in all three. Raises LoaderError for values out of range.
    """

    epoch_samples: int
    global_batch: int
    tail: Tail = "run_on"

    def __post_init__(self) -> None:
        if self.tail not in get_args(Tail):
            raise LoaderError(f"tail {self.tail!r} must be one of {', '.join(get_args(Tail))}")
        if self.epoch_samples < 1:
            raise LoaderError(f"epoch_samples {self.epoch_samples} must be at least 1")
        if self.tail == "drop" and self.global_batch > self.epoch_samples:
            raise LoaderError(
                f"a global batch of {self.global_batch} cannot be filled by an epoch of {self.epoch_samples} samples; "
                "take a smaller one, or tail='pad' or 'run_on'"
            )

    @property
    def batches_per_epoch(self) -> int:
        """Batches in one epoch; with `run_on` those that begin in the first."""
        whole, rest = divmod(self.epoch_samples, self.global_batch)
        return whole + int(rest > 0 and self.tail != "drop")

    def start(self, g: int) -> int:
        """The sample number of the batch that comes at or after g: with `drop` a remainder is passed over."""
        if self.tail != "drop":
            return g
        left = self.epoch_samples - g % self.epoch_samples
        return g + left if left < self.global_batch else g

    def after(self, g: int) -> int:
        """The sample number that follows the batch which `start(g)` begins."""
        if self.tail == "run_on":
            return g + self.global_batch
        begin = self.start(g)
        end = begin + self.global_batch
        if self.tail == "pad":
            end = min(end, (begin // self.epoch_samples + 1) * self.epoch_samples)
        return self.start(end)

    def positions(self, g: int) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """The sample numbers of the batch at g, and which of them are no repeats."""
        numbers, real = self.table([g])
        return numbers[0], real[0]

    def table(self, starts: Sequence[int]) -> tuple[Positions, npt.NDArray[np.bool_]]:
        """The same for many batches at once, a line for each."""
        begins = np.array([self.start(g) for g in starts], np.int64)[:, None]
        numbers: Positions = begins + np.arange(self.global_batch)
        if self.tail != "pad":
            return numbers, np.ones(numbers.shape, bool)
        firsts = begins // self.epoch_samples * self.epoch_samples
        ends = firsts + self.epoch_samples
        real = numbers < ends
        return np.where(real, numbers, firsts + (numbers - ends) % self.epoch_samples), real
