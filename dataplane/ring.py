"""Reusable batch buffers, filled by background threads."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .fields import OFFSETS_SUFFIX, Field
from .tensors import buffer

Array = np.ndarray[Any, np.dtype[Any]]


class Buffer:
    """One batch in host memory, page-locked if `pinned`.

    `tensors` and `arrays` lie over the same memory: a field of fixed shape, or NAME.offsets of a variable one.
    `casts` are tensors for fields that are handed out in another type. `busy` is the event after which copies out of
    it are done, if any is under way.
    """

    def __init__(self, fields: tuple[Field, ...], rows: int, casts: Mapping[str, torch.dtype], *, pinned: bool) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: dict[str, Array] = {}
        self.casts: dict[str, torch.Tensor] = {}
        self.busy: Any = None
        self.pinned = pinned
        self._grown: dict[str, tuple[torch.Tensor, Array]] = {}
        self._fields = {each.name: each for each in fields}
        for each in fields:
            if each.variable:
                name = each.name + OFFSETS_SUFFIX
                self.tensors[name], self.arrays[name] = buffer(Field(each.name, "int64", ()), rows + 1, pinned=pinned)
            else:
                self.tensors[each.name], self.arrays[each.name] = buffer(each, rows, pinned=pinned)
                if each.name in casts:
                    self.casts[each.name] = torch.empty((rows, *each.shape), dtype=casts[each.name], pin_memory=pinned)

    def grow(self, name: str, items: int) -> Array:
        """Memory for the items of a variable field; it is kept, and grows by a quarter more than is needed."""
        made = self._grown.get(name)
        if made is None or len(made[1]) < items:
            made = self._grown[name] = buffer(self._fields[name], items + items // 4 + 1, pinned=self.pinned)
        return made[1]

    def items(self, name: str, count: int) -> torch.Tensor:
        """The first `count` items of a variable field, after `grow`."""
        return self._grown[name][0][:count]


Make = Callable[[int, Buffer], dict[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Filled:
    """A batch that is ready: its tensors, and the buffer they lie in, or were copied from as of the event `copied`."""

    tensors: dict[str, torch.Tensor]
    buffer: Buffer
    copied: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """What ended the thread."""

    error: BaseException


class Job:
    """A buffer to fill with the batch at g (None: one to be made); what became of it is put on `ready`."""

    __slots__ = ("buffer", "g", "ready")

    def __init__(self, g: int, buffer: Buffer | None) -> None:
        self.g, self.buffer = g, buffer
        self.ready: queue.SimpleQueue[Filled | Failed] = queue.SimpleQueue()


Jobs = queue.SimpleQueue[Job | None]


def fill(
    jobs: Jobs, new_buffer: Callable[[], Buffer], make: Make, device: torch.device | None, stop: threading.Event
) -> None:
    """Thread body: does one job after the other until told to stop, by None or between two.

    The first that fails is the last one done. With a CUDA device the copy is enqueued here, on a stream of its own, so
    that it overlaps with compute; a buffer that comes back waits for its copy before it is filled again.
    """
    stream = None
    while (job := jobs.get()) is not None and not stop.is_set():
        try:
            if stream is None and device is not None and device.type == "cuda":
                stream = torch.cuda.Stream(device)
            empty = job.buffer or new_buffer()
            if empty.busy is not None:
                empty.busy.synchronize()
                empty.busy = None
            tensors = make(job.g, empty)
            job.ready.put(Filled(tensors, empty) if stream is None else _copy_to_device(tensors, empty, device, stream))
        except BaseException as error:
            job.ready.put(Failed(error))
            return


def _copy_to_device(
    tensors: dict[str, torch.Tensor], source: Buffer, device: torch.device | None, stream: Any
) -> Filled:
    with torch.cuda.stream(stream):
        copies = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        source.busy = torch.cuda.Event(blocking=True)  # whoever waits for it does not spin
        source.busy.record(stream)
    return Filled(copies, source, copied=source.busy)


def receive(filled: Filled) -> dict[str, torch.Tensor]:
    """The tensors of a batch, safe to use on the caller's current stream."""
    if filled.copied is not None:
        for tensor in filled.tensors.values():
            current = torch.cuda.current_stream(tensor.device)
            current.wait_event(filled.copied)
            # Otherwise the allocator could hand the memory to the copy stream while this stream still reads it.
            tensor.record_stream(current)
    return filled.tensors


def done_with(used: Buffer) -> None:
    """Notes that the caller is done with a host buffer; if it is page-locked, its copies may still be under way."""
    if used.pinned:
        used.busy = torch.cuda.Event(blocking=True)
        used.busy.record()
