"""One shard's file: whether it is what the manifest says, whether it is in memory, and the items in it."""

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from .errors import CorruptShard
from .fields import DTYPES, Field, field_offsets, shard_header
from .manifest import Shard

Array = np.ndarray[Any, np.dtype[Any]]
Grow = Callable[[str, int], Array]

_PROBES = 16
_PIECE_BYTES = 1 << 20
# What a batch asks the disk for must not queue behind much.
_UNDER_WAY_BYTES = 2 << 20


def join(views: list[Array], field: Field, out: Mapping[str, Array], grow: Grow) -> None:
    """Copies the items of many samples into one array, and notes where each sample's begin, with their end."""
    offsets = out[field.name + ".offsets"]
    offsets[0] = 0
    np.cumsum([len(view) for view in views], out=offsets[1:])
    total = int(offsets[-1])
    target = grow(field.name, total)
    if views:
        np.concatenate(views, out=target[:total])


def map_items(descriptor: int, shard: Shard, fields: tuple[Field, ...]) -> dict[str, Array]:
    """Arrays over the items of each variable field; the mapping lives as long as any of them."""
    items = dict(shard.items)
    offsets = field_offsets(fields, shard.rows, items)
    data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    return {
        field.name: np.ndarray(
            (items[field.name], *field.shape), DTYPES[field.dtype][1], buffer=data, offset=offsets[field.name]
        )
        for field in fields
        if field.variable
    }


def check_file(shard: Shard, path: Path, fields: tuple[Field, ...]) -> None:
    """Reads a whole shard. Raises CorruptShard if it is missing or not what the manifest says."""
    open_checked(shard, path, fields, verify=True).close()


def open_checked(shard: Shard, path: Path, fields: tuple[Field, ...], verify: bool) -> FileIO:
    """Opens a shard's file. Raises CorruptShard if it is missing or not what the manifest says."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        raise CorruptShard(f"shard {shard.file} is missing ({path})") from None
    with ExitStack() as on_error:
        on_error.callback(file.close)
        size = os.fstat(file.fileno()).st_size
        if size != shard.size_bytes:
            raise CorruptShard(f"shard {shard.file}: {size} bytes, the manifest says {shard.size_bytes} ({path})")
        if verify:
            try:
                digest = _digest(path, file, size)
            except OSError as error:
                raise CorruptShard(f"shard {shard.file} cannot be read: {error} ({path})") from error
            if digest != shard.xxh3_128:
                raise CorruptShard(
                    f"shard {shard.file}: xxh3_128 {digest}, the manifest says {shard.xxh3_128} ({path})"
                )
        # Looking at a few bytes must not make the system read megabytes around them.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        header = shard_header(fields, shard.rows, dict(shard.items))
        if os.pread(file.fileno(), len(header), 0) != header:
            raise CorruptShard(f"shard {shard.file}: its header does not fit the manifest's fields and rows ({path})")
        on_error.pop_all()
    return file


def _digest(path: Path, file: FileIO, size: int) -> str:
    if size and not on_disk_only(path):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return xxhash.xxh3_128_hexdigest(data)
    digest = xxhash.xxh3_128()
    for piece in _pieces(file):
        digest.update(piece)
    return digest.hexdigest()


def read_into_memory(path: Path, size: int, stop: threading.Event, *, whole: bool) -> None:
    """Has the system read a file into its memory, by pieces, until `stop`. Raises OSError.

    A `whole` file, of which nothing was read yet, is read through: it then lies in memory in large pages, and reading,
    mapping and copying take half the CPU. Of one that batches have taken rows from, or take them from meanwhile, the
    rest is asked for.
    """
    if not on_disk_only(path):
        return
    with path.open("rb", buffering=0) as file:
        for _ in _pieces(file) if whole else _announced(file.fileno(), size):
            if stop.is_set():
                return


def _pieces(file: FileIO) -> Iterator[memoryview]:
    """The bytes of a file in order; a piece is valid until the next is asked for.

    Of a file in which nothing was looked at since it was opened: the system would read ahead by small pieces.
    """
    room = memoryview(bytearray(_PIECE_BYTES))
    file.seek(0)
    while count := file.readinto(room):
        yield room[:count]


def _announced(descriptor: int, size: int) -> Iterator[None]:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for begin in range(0, size, _PIECE_BYTES):
        os.posix_fadvise(descriptor, begin, _PIECE_BYTES, os.POSIX_FADV_WILLNEED)
        if begin >= _UNDER_WAY_BYTES:
            os.pread(descriptor, 1, begin - _UNDER_WAY_BYTES + _PIECE_BYTES - 1)
        yield


def on_disk_only(path: Path) -> bool:
    """Whether the disk is needed to read a file, looked at through an opening of its own; not if it is missing."""
    try:
        with path.open("rb", buffering=0) as file:
            return not in_memory(file.fileno(), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return False


def in_memory(descriptor: int, size: int) -> bool:
    """Whether a file could be read without its disk, as far as some places all over it tell."""
    byte = [bytearray(1)]
    for probe in range(_PROBES):
        try:
            os.preadv(descriptor, byte, size * probe // _PROBES, os.RWF_NOWAIT)
        except OSError as error:
            # Some file systems cannot tell.
            return error.errno != errno.EAGAIN
    return True
