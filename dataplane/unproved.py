"""Shards whose first rows were handed out before their bytes were compared with the checksum."""

import socket
import threading

import numpy as np
import numpy.typing as npt

from .errors import CorruptShard

_SHARE = 4


class Unproved:
    """Numbers of shards, each with the rows that it may still give, until it is hashed. Safe for threads."""

    def __init__(self) -> None:
        self._rows_left: dict[int, int] = {}
        self._fault: CorruptShard | None = None
        self._lock = threading.Lock()

    def __contains__(self, shard: int) -> bool:
        return shard in self._rows_left

    def add(self, shard: int, rows: int) -> None:
        """Notes a shard of so many rows, of which a quarter may be handed out."""
        with self._lock:
            self._rows_left[shard] = rows // _SHARE

    def beyond_share(self, shard_of: npt.NDArray[np.intp]) -> list[int]:
        """The shards that this batch asks for more rows than they may still give; those of the others are counted."""
        if not self._rows_left:
            return []
        beyond = []
        with self._lock:
            for shard in [shard for shard in self._rows_left if (shard_of == shard).any()]:
                self._rows_left[shard] -= int((shard_of == shard).sum())
                if self._rows_left[shard] < 0:
                    beyond.append(shard)
        return beyond

    def right(self, shard: int) -> None:
        """A shard has its checksum."""
        with self._lock:
            self._rows_left.pop(shard, None)

    def wrong(self, shard: int, error: CorruptShard) -> CorruptShard:
        """A shard has not: the error that `tell` raises from now on."""
        with self._lock:
            self._rows_left.pop(shard, None)
            if self._fault is None:
                self._fault = CorruptShard(
                    f"{error}; rows of it were in the first batches, before it was compared as a whole: go on from a "
                    f"checkpoint before them (host {socket.gethostname()})"
                )
            return self._fault

    def left(self) -> list[int]:
        """The shards not hashed yet."""
        with self._lock:
            return sorted(self._rows_left)

    def tell(self) -> None:
        """Raises CorruptShard if a shard proved wrong."""
        if self._fault is not None:
            raise self._fault
