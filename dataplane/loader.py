"""Batches for one rank, gathered ahead of use, in an order that does not depend on the number of ranks."""

import logging
import os
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch

from .batches import MASK, BatchMaker, BatchTransform, SampleTransform, Transforms
from .early_rows import EarlyRows
from .errors import LoaderError
from .feeder import Feeder, buffers_for, few_cores, gather_threads, ranks_here
from .order import DEFAULT_LANES, DEFAULT_SHARDS_PER_BLOCK, check_cut
from .plan import Planner
from .read_ahead import LATEST_START_S, ReadAhead
from .ring import Buffer, Failed, receive
from .schedule import Schedule, Tail
from .shard_file import on_disk_only
from .source import FolderSource
from .views import Readable

_STATE_VERSION = 1
_FAR_START_S = 0.5
_log = logging.getLogger(__name__)


class Loader:
    """An iterator over the batches of one rank: endless, epochs following one another without a gap, or by epochs.

    A batch is a dict with a tensor of shape (global_batch_size / world_size, *field.shape) per field (a variable field
    has the items of all samples in NAME, and in NAME.offsets where each sample's begin, with their end). It is valid
    until the next one is asked for; then its memory is filled anew (with a CUDA `device`, batches are the caller's
    own). `depth` >= 1 batches are kept ready by `threads` >= 1 background threads (default: 2, on one core or with a
    transform 1). `pin_memory` page-locks the buffers where CUDA is available; copies that are under way when the next
    batch is asked for must be on the current stream of the current device. "cuda" without a number is the current
    device when the first batch is asked for. All ranks must be given the same data, global batch, seed,
    `shards_per_block` and `lanes`.

    With `tail` "drop" or "pad" each `for` loop is one epoch, with equally many batches on every rank: the samples that
    fill no batch are left out, or the last batch is filled with repeats and `mask` says which samples count.
    `epoch_samples` is the length of an epoch (default: all samples); it may be longer or shorter than the data.

    `cast` hands fields out in another type, such as {"data": torch.bfloat16}; `sample_transform` (in
    `transform_threads` threads) and `transform` are called with a sample's, or the whole batch's, dict of tensors, and
    where they have a second parameter with a numpy Generator that is the same again when the run is resumed.

    `state_dict` counts the batches handed out, whatever is ready behind them; it may be loaded with another world
    size or global batch. Close the loader, or use it as a context manager, to end its threads.

    Raises LoaderError for values out of range. An error in the background is raised by the `next` that it meets.
    """

    def __init__(
        self,
        dataset: Readable,
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
        tail: Tail = "run_on",
        epoch_samples: int | None = None,
        cast: Mapping[str, torch.dtype] | None = None,
        sample_transform: SampleTransform | None = None,
        transform: BatchTransform | None = None,
        transform_threads: int = 2,
        threads: int | None = None,
    ) -> None:
        check_cut(global_batch_size, rank, world_size)
        if depth < 1 or (threads is not None and threads < 1):
            raise LoaderError(f"depth {depth} and threads {threads} must be at least 1")
        self._data, self._dataset = dataset, dataset.base
        self._schedule = Schedule(len(dataset) if epoch_samples is None else epoch_samples, global_batch_size, tail)
        self._rank, self._world_size = rank, world_size
        self._depth, self._seed = depth, seed
        transformed = transform is not None or sample_transform is not None
        self._threads = gather_threads(threads, transformed=transformed)
        # A user's function is called in one thread, which may take long; copies to a device have a thread's stream.
        self._by_caller = threads is None and device is None and not transformed
        self._device = None if device is None else torch.device(device)
        on_cuda = self._device is not None and self._device.type == "cuda"
        self._pinned = torch.cuda.is_available() and (pin_memory or on_cuda)
        self._options = {"shards_per_block": shards_per_block, "lanes": lanes, "shuffle": shuffle}
        self._order = dataset.order(seed, shards_per_block=shards_per_block, lanes=lanes, shuffle=shuffle)
        self._transforms = self._made_transforms(cast or {}, sample_transform, transform, transform_threads)
        self._read_ahead = read_ahead and self._fits_ahead()
        self._g = 0
        self._at_end = self._closed = False
        self._failure: BaseException | None = None
        self._feeder: Feeder | None = None
        self._early: EarlyRows | None = None

    @classmethod
    def from_env(cls, dataset: Readable, global_batch_size: int, **options: Any) -> Self:
        """A loader for RANK and WORLD_SIZE of the environment, as torchrun and Phalanx set them (default 0, 1)."""
        try:
            rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        except ValueError as error:
            raise LoaderError(f"RANK and WORLD_SIZE must be integers: {error}") from error
        return cls(dataset, global_batch_size, rank, world_size, **options)

    @property
    def epoch(self) -> int:
        """Whole epochs that the batches handed out so far have covered."""
        return self._g // self._schedule.epoch_samples

    @property
    def samples(self) -> int:
        """Sample numbers passed so far, over all ranks."""
        return self._g

    def __len__(self) -> int:
        """Batches in one epoch."""
        return self._schedule.batches_per_epoch

    def __iter__(self) -> Self:
        self._at_end = False
        return self

    def __next__(self) -> dict[str, torch.Tensor]:
        if self._closed:
            raise LoaderError("the loader is closed")
        if self._failure is not None:
            raise self._failure
        if self._at_end:
            raise StopIteration
        item = self._started().take()
        if isinstance(item, Failed):
            self._failure = item.error
            raise item.error
        if self._schedule.tail == "run_on":
            self._g += self._schedule.global_batch
        else:
            epoch = self._schedule.start(self._g) // self._schedule.epoch_samples
            self._g = self._schedule.after(self._g)
            self._at_end = self.epoch > epoch
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
        self._g = self._schedule.start(samples)
        self._at_end = False

    def close(self) -> None:
        """Ends the threads, lets go of the buffers. Raises CorruptShard if rows handed out early prove wrong."""
        failed = self._failure is not None
        self._halt()
        self._transforms.close()
        self._closed = True
        self._dataset.shards.prove_later, self._dataset.shards.awaited = False, None
        early, self._early = self._early, None
        if early is not None:
            early.rest()
            if not failed:
                early.finish()
        if not failed and (names := self._dataset.shards.unproved()):
            _log.warning(
                "the loader was closed before %d shards (%s ...), of which it has handed out rows, were compared with "
                "their checksums",
                len(names),
                names[0],
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _constants(self) -> dict[str, Any]:
        schedule = {"tail": self._schedule.tail, "epoch_samples": self._schedule.epoch_samples}
        return {**self._data.identity(), "seed": self._seed, **self._options, **schedule}

    def _made_transforms(
        self,
        cast: Mapping[str, torch.dtype],
        sample: SampleTransform | None,
        batch: BatchTransform | None,
        threads: int,
    ) -> Transforms:
        fields = self._dataset.fields
        if self._schedule.tail == "pad" and any(field.name == MASK for field in fields):
            raise LoaderError(f"tail='pad' adds {MASK!r} to batches, but a field has that name")
        return Transforms(fields, cast, sample, batch, threads)

    def _started(self) -> Feeder:
        if self._feeder is not None and self._feeder.interrupted:
            self._halt()
        if self._feeder is None:
            dataset, shards = self._dataset, self._dataset.shards
            # Without read-ahead its thread is still needed for giving way to other users of the cache.
            threaded = self._read_ahead or dataset.cache is not None
            at_once = self._shards_at_once()
            if dataset.cache is not None:
                shards.keep = min(shards.keep, at_once)
            fetches = max(getattr(source, "fetches", 1) for source in set(shards.sources))
            early = shards.keep >= at_once
            if self._early is None and self._read_ahead and EarlyRows.fits(dataset):
                self._early = EarlyRows(dataset)
            patience_s = LATEST_START_S if self._early is None else _FAR_START_S
            options: dict[str, Any] = {"threads": fetches, "open_too": early, "latest_start_s": patience_s}
            options["hurried_threads"] = 2 if ranks_here() == 1 else 1  # ranks are threads enough for a disk
            shards.prove_later = early and self._read_ahead
            ahead = ReadAhead(self._early or shards, 2 * at_once, **options) if threaded else None
            if ahead is not None:
                shards.awaited = ahead.awaited
            planner = Planner(
                *(self._order, self._schedule, dataset.shard_starts, self._rank, self._world_size, self._g),
                sort=bool(self._options["shuffle"]),
                ahead=ahead.request if ahead is not None and self._read_ahead else None,
            )
            rows = self._schedule.global_batch // self._world_size
            make = BatchMaker(dataset, planner, self._transforms, self._seed, self._schedule.tail == "pad", self._early)
            self._feeder = Feeder(
                partial(Buffer, dataset.fields, rows, self._transforms.cast, pinned=self._pinned),
                *(make, self._schedule.start(self._g), self._schedule.after, self._copy_device(), ahead),
                threads=self._threads,
                buffers=buffers_for(self._depth, self._threads),
                by_caller=self._by_caller and self._early is None and not self._pinned and few_cores(),
                cold_start=self._on_disk(self._order.block_shards([self._schedule.start(self._g)])[0]),
                disk_needed=lambda: len(shards.cold) > 0,
                start_batches=1 if self._early is not None else self._depth + 1 + self._threads,
            )
            self._end = weakref.finalize(self, self._feeder.end)
        return self._feeder

    def _on_disk(self, index: int) -> bool:
        """Whether a shard, read where it lies, comes from the disk."""
        source = self._dataset.shards.sources[index]
        if self._dataset.cache is not None or not isinstance(source, FolderSource):
            return False
        return on_disk_only(source.folder / self._dataset.manifest.shards[index].file)

    def _copy_device(self) -> torch.device | None:
        """The device, by its number: another thread's current one is the first of the host."""
        if self._device is not None and self._device.type == "cuda" and self._device.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return self._device

    def _halt(self) -> None:
        if self._feeder is not None:
            self._end()
        self._feeder = self._failure = None

    def _shards_at_once(self) -> int:
        lanes = min(self._order.lanes, -(-self._order.lanes // self._world_size) + 1)
        return min(
            len(self._dataset.shard_rows), 2 * self._order.streams * lanes * int(self._options["shards_per_block"])
        )

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
