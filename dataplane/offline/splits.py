"""Which split a sample belongs to: a pure function of names and a seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ..errors import OfflineError

WHOLE = ""


@dataclass(frozen=True, slots=True)
class Splits:
    """Splits by their shares, which add up to 1; without any, all samples stay together.

    Whole recordings fall into one split, so that overlapping windows never stand on both sides; with `by_sample`
    each sample is drawn for itself. Raises OfflineError for shares or names that cannot be.
    """

    shares: tuple[tuple[str, float], ...] = ()
    by_sample: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        names = [name for name, _ in self.shares]
        if any(not name.isidentifier() for name in names) or len(set(names)) != len(names):
            raise OfflineError(f"splits {names}: each needs a name of its own, of letters, digits and _")
        if self.shares and (min(s for _, s in self.shares) <= 0 or abs(sum(s for _, s in self.shares) - 1) > 1e-9):
            raise OfflineError(f"the shares of the splits must be above 0 and add up to 1: {dict(self.shares)}")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.shares] or [WHOLE]

    def drawer(self, recording: str) -> "Drawer":
        """What draws for the samples of one recording, in their order."""
        return Drawer(self, recording)


class Drawer:
    """Draws the split of each sample of one recording."""

    def __init__(self, splits: Splits, recording: str) -> None:
        self._splits = splits
        digest = xxhash.xxh3_64_intdigest(f"{splits.seed}/{recording}".encode())
        self._whole = digest / 2**64
        self._stream = np.random.PCG64(np.random.SeedSequence(digest))

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        """The numbers of the splits, as in `Splits.names`, of the next `count` samples."""
        bounds = np.cumsum([share for _, share in self._splits.shares[:-1]])
        if self._splits.by_sample and count:
            at = np.asarray(self._stream.random_raw(count)) / 2**64
        else:
            at = np.full(count, self._whole)
        return np.searchsorted(bounds, at, side="right").astype(np.int64)


def parse_splits(text: str, *, by_sample: bool = False, seed: int = 0) -> Splits:
    """Splits as `train=0.9,val=0.1`. Raises OfflineError."""
    pairs: list[tuple[str, float]] = []
    for part in filter(None, text.split(",")):
        name, _, share = part.partition("=")
        try:
            pairs.append((name.strip(), float(share)))
        except ValueError:
            raise OfflineError(f"split {part!r}: write NAME=SHARE, such as train=0.9,val=0.1") from None
    return Splits(tuple(pairs), by_sample, seed)


def select(rows: dict[str, Any], chosen: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The chosen samples of what a cleaning function gave."""
    return {name: value[chosen] if hasattr(value, "shape") else _list(value, chosen) for name, value in rows.items()}


def _list(value: Sequence[Any], chosen: npt.NDArray[np.bool_]) -> list[Any]:
    return [each for each, keep in zip(value, chosen.tolist(), strict=True) if keep]
