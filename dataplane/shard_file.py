"""One shard's file: whether it is what the manifest says, whether it is in memory, and the items in it."""

import errno
import mmap
import os
from collections.abc import Callable, Mapping
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
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                digest = xxhash.xxh3_128_hexdigest(data)
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
