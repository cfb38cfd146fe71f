"""Batches for one rank, gathered ahead of use, in an order that does not depend on the number of ranks."""

import functools
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from .dataset import ShardDataset
from .errors import LoaderError
from .order import DEFAULT_LANES, DEFAULT_SHARDS_PER_BLOCK, Order, check_cut
from .read_ahead import ReadAhead
from .ring import Failed, Filled, Ring, fill, give_back, new_ring, receive

Array = np.ndarray[Any, np.dtype[Any]]

_STATE_VERSION = 1
_JOIN_S = 5.0
_log = logging.getLogger(__name__)


class Loader:
    """An endless iterator over the batches of one rank; epochs follow one another without a gap.

    A batch is a dict with a tensor of shape (global_batch_size / world_size, *field.shape) per field. It is valid
    until the next one is asked for; then its memory is filled anew (with a CUDA `device`, batches are the caller's
    own). `depth` >= 1 batches are kept ready by a background thread. `pin_memory` page-locks the buffers where CUDA
    is available. All ranks must be given the same data set, global batch, seed, `shards_per_block` and `lanes`.

    `state_dict` counts the batches handed out, whatever is ready behind them; it may be loaded with another world
    size or global batch. Close the loader, or use it as a context manager, to end its threads.

    Raises LoaderError for values out of range. An error in the background is raised by the `next` that it meets.
    """

    def __init__(
        self,
        dataset: ShardDataset,
        global_batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        depth: int = 2,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        shuffle: bool = True,
        *,
        shards_per_block: int = DEFAULT_SHARDS_PER_BLOCK,
        lanes: int = DEFAULT_LANES,
        read_ahead: bool = True,
    ) -> None:
        check_cut(global_batch_size, rank, world_size)
        if depth < 1:
            raise LoaderError(f"depth {depth} must be at least 1")
        self._dataset = dataset
        self._global_batch, self._rank, self._world_size = global_batch_size, rank, world_size
        self._depth = depth
        self._device = None if device is None else torch.device(device)
        on_cuda = self._device is not None and self._device.type == "cuda"
        self._pinned = torch.cuda.is_available() and (pin_memory or on_cuda)
        self._order = Order(dataset.shard_rows, seed, shards_per_block=shards_per_block, lanes=lanes, shuffle=shuffle)
        self._read_ahead = read_ahead and self._fits_ahead()
        self._g = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._ring: Ring | None = None
        self._held: Filled | None = None

    @classmethod
    def from_env(cls, dataset: ShardDataset, global_batch_size: int, **options: Any) -> Self:
        """A loader for RANK and WORLD_SIZE of the environment, as torchrun and Phalanx set them (default 0, 1)."""
        try:
            rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        except ValueError as error:
            raise LoaderError(f"RANK and WORLD_SIZE must be integers: {error}") from error
        return cls(dataset, global_batch_size, rank, world_size, **options)

    @property
    def epoch(self) -> int:
        """Whole epochs that the batches handed out so far have covered."""
        return self._g // self._order.rows

    @property
    def samples(self) -> int:
        """Samples handed out so far, over all ranks."""
        return self._g

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, torch.Tensor]:
        if self._closed:
            raise LoaderError("the loader is closed")
        if self._failure is not None:
            raise self._failure
        ring = self._started()
        if self._held is not None and self._held.buffer is not None:
            give_back(ring, self._held.buffer)
        self._held = None
        item = ring.ready.get()
        if isinstance(item, Failed):
            self._failure = item.error
            raise item.error
        self._held = item
        self._g += self._global_batch
        batch = receive(item)
        if self._device is not None and item.copied is None:
            return {name: tensor.to(self._device) for name, tensor in batch.items()}
        return batch

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The next `count` batches."""
        return (next(self) for _ in range(count))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, in plain JSON: the samples handed out, and the constants of their order."""
        return {"version": _STATE_VERSION, "samples": self._g, **self._constants()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken, on any world size and global batch.

        Raises LoaderError if it was taken from another data set or another order.
        """
        mine = {"version": _STATE_VERSION, **self._constants()}
        differing = [
            f"{key}: {state.get(key)!r}, here {value!r}" for key, value in mine.items() if state.get(key) != value
        ]
        samples = state.get("samples")
        if differing or not isinstance(samples, int) or samples < 0:
            raise LoaderError("this loader state does not fit: " + ("; ".join(differing) or f"samples {samples!r}"))
        self._halt()
        self._g = samples

    def close(self) -> None:
        """Ends the threads and lets go of the buffers. Harmless when repeated."""
        self._halt()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _constants(self) -> dict[str, Any]:
        order = self._order
        return {
            "dataset": self._dataset.manifest.digest,
            "seed": order.seed,
            "shards_per_block": order.shards_per_block,
            "lanes": order.lanes,
            "shuffle": order.shuffle,
        }

    def _started(self) -> Ring:
        if self._ring is None:
            rows = self._global_batch // self._world_size
            self._ring = ring = new_ring(self._dataset.fields, rows, self._depth, pinned=self._pinned)
            shards = self._dataset.shards
            # Without read-ahead its thread is still needed for giving way to other users of the cache.
            threaded = self._read_ahead or self._dataset.cache is not None
            ahead = ReadAhead(shards, 2 * self._shards_at_once()) if threaded else None
            if self._dataset.cache is not None:
                shards.keep = min(shards.keep, self._shards_at_once())
            cut = (self._global_batch, self._rank, self._world_size)
            gather = functools.partial(_gather, self._dataset, self._order, cut, ahead if self._read_ahead else None)
            # Neither thread refers to the loader, so that a forgotten one can be collected and ends them, too.
            arguments = (ring, gather, self._g, self._global_batch, self._device)
            thread = threading.Thread(target=fill, args=arguments, name="phalanx-loader", daemon=True)
            thread.start()
            self._end = weakref.finalize(self, _end, ring, thread, ahead)
        return self._ring

    def _halt(self) -> None:
        if self._ring is not None:
            self._end()
        self._ring = self._held = self._failure = None

    def _shards_at_once(self) -> int:
        lanes = min(self._order.lanes, -(-self._order.lanes // self._world_size) + 1)
        return min(len(self._dataset.shard_rows), 2 * lanes * self._order.shards_per_block)

    def _fits_ahead(self) -> bool:
        cache = self._dataset.cache
        if cache is None:
            return True
        needed = self._shards_at_once() * max(shard.size_bytes for shard in self._dataset.manifest.shards)
        if needed > cache.budget_bytes:
            _log.warning(
                "no read-ahead: the blocks in use and the next ones take %d bytes, the cache's budget is %d",
                needed,
                cache.budget_bytes,
            )
        return needed <= cache.budget_bytes


def _gather(
    dataset: ShardDataset,
    order: Order,
    cut: tuple[int, int, int],
    ahead: ReadAhead | None,
    g: int,
    out: Mapping[str, Array],
) -> None:
    """Fills `out` with this rank's piece of the batch at `g`, and asks for the blocks that follow those in use."""
    if ahead is not None:
        ahead.request(order.block_shards(order.rank_positions(g, *cut)))
        ahead.request(order.block_shards(order.rank_positions(g + order.block_span, *cut)))
    dataset.gather(order.rank_ids(g, *cut), out)


def _end(ring: Ring, thread: threading.Thread, ahead: ReadAhead | None) -> None:
    """Ends the threads; also runs when the loader is collected and before the interpreter exits."""
    ring.stop.set()
    ring.free.put(None)
    if ahead is not None:
        ahead.stop(_JOIN_S)
    thread.join(_JOIN_S)
