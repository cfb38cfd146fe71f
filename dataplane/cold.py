"""Shards that may lie on the disk only, whose rows are asked for batch by batch until they have been read ahead."""

from typing import Any

import numpy as np
import numpy.typing as npt


class ColdShards:
    """Numbers of shards, each until it is forgotten or was asked for as many rows as it has."""

    def __init__(self) -> None:
        self._rows_left: dict[int, int] = {}

    def __contains__(self, shard: int) -> bool:
        return shard in self._rows_left

    def __len__(self) -> int:
        return len(self._rows_left)

    def add(self, shard: int, rows: int) -> None:
        """Notes a shard of so many rows that was not in memory when it was opened."""
        self._rows_left[shard] = rows

    def forget(self, shard: int) -> None:
        """Notes that a shard has been read, or is no longer open."""
        self._rows_left.pop(shard, None)

    def among(self, shard_of: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """The places of a batch whose rows the disk should be asked for; they count as asked for."""
        if not self._rows_left:
            return np.empty(0, np.intp)
        places = [place for place, shard in enumerate(shard_of.tolist()) if shard in self._rows_left]
        for place in places:
            shard = int(shard_of[place])
            left = self._rows_left.get(shard, 0) - 1
            if left > 0:
                self._rows_left[shard] = left
            else:
                self._rows_left.pop(shard, None)
        return np.asarray(places, np.intp)
