"""A ring of reusable batch buffers, filled by a background thread."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .fields import Field
from .tensors import buffer

Array = np.ndarray[Any, np.dtype[Any]]
Gather = Callable[[int, Mapping[str, Array]], None]


@dataclass(slots=True, eq=False)
class Buffer:
    """One batch in host memory. `busy` is the event after which copies out of it are done, if any is under way."""

    tensors: dict[str, torch.Tensor]
    arrays: dict[str, Array]
    busy: Any = None


@dataclass(frozen=True, slots=True)
class Filled:
    """A batch that is ready: its tensors, and the buffer they lie in, or the event when their device copy is done."""

    tensors: dict[str, torch.Tensor]
    buffer: Buffer | None = None
    copied: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """What ended the thread."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Ring:
    """Buffers on their way round: `free` ones to fill (None: stop), `ready` ones to use."""

    free: "queue.SimpleQueue[Buffer | None]" = field(default_factory=queue.SimpleQueue)
    ready: "queue.SimpleQueue[Filled | Failed]" = field(default_factory=queue.SimpleQueue)
    stop: threading.Event = field(default_factory=threading.Event)


def new_ring(fields: tuple[Field, ...], rows: int, depth: int, *, pinned: bool) -> Ring:
    """A ring of depth + 2 free buffers: one in use, one being filled, `depth` ready in between."""
    ring = Ring()
    for _ in range(depth + 2):
        made = {f.name: buffer(f, rows, pinned=pinned) for f in fields}
        ring.free.put(Buffer({n: t for n, (t, _) in made.items()}, {n: a for n, (_, a) in made.items()}))
    return ring


def fill(ring: Ring, gather: Gather, g: int, step: int, device: torch.device | None) -> None:
    """Thread body: fills free buffers with the batches at g, g + step, ... until told to stop.

    Puts one `Filled` per batch on `ready`, in order, or one `Failed` and ends. With a CUDA device the copy is
    enqueued here, on a stream of its own, so that it overlaps with compute; the buffer is free at once and waits for
    its copy before it is filled again.
    """
    try:
        stream = torch.cuda.Stream(device) if device is not None and device.type == "cuda" else None
        while (empty := ring.free.get()) is not None and not ring.stop.is_set():
            if empty.busy is not None:
                empty.busy.synchronize()
                empty.busy = None
            gather(g, empty.arrays)
            g += step
            if stream is None:
                ring.ready.put(Filled(dict(empty.tensors), empty))
            else:
                ring.ready.put(_copy_to_device(empty, device, stream))
                ring.free.put(empty)
    except BaseException as error:
        ring.ready.put(Failed(error))


def _copy_to_device(source: Buffer, device: torch.device | None, stream: Any) -> Filled:
    with torch.cuda.stream(stream):
        copies = {name: tensor.to(device, non_blocking=True) for name, tensor in source.tensors.items()}
        source.busy = torch.cuda.Event()
        source.busy.record(stream)
    return Filled(copies, copied=source.busy)


def receive(filled: Filled) -> dict[str, torch.Tensor]:
    """The tensors of a batch, safe to use on the caller's current stream."""
    if filled.copied is not None:
        for tensor in filled.tensors.values():
            current = torch.cuda.current_stream(tensor.device)
            current.wait_event(filled.copied)
            # Otherwise the allocator could hand the memory to the copy stream while this stream still reads it.
            tensor.record_stream(current)
    return filled.tensors


def give_back(ring: Ring, used: Buffer) -> None:
    """Frees a host buffer; if it is page-locked, the caller's copies out of it may still be under way."""
    if any(tensor.is_pinned() for tensor in used.tensors.values()):
        used.busy = torch.cuda.Event()
        used.busy.record()
    ring.free.put(used)
