"""Where shards come from."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import xxhash

from .errors import CacheError
from .manifest import Shard

PIECE_BYTES = 4 << 20


class Source(Protocol):
    """The port to wherever a data set's shards are stored."""

    def stream(self, file: str) -> Iterator[memoryview]:
        """Yields the bytes of one shard file in order; a piece is valid until the next is asked for.

        Raises OSError if the file cannot be read.
        """
        ...


class FolderSource:
    """Shards in a local or mounted folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def stream(self, file: str) -> Iterator[memoryview]:
        piece = memoryview(bytearray(PIECE_BYTES))
        with (self._folder / file).open("rb", buffering=0) as source:
            while count := source.readinto(piece):
                yield piece[:count]


def copy_checked(shard: Shard, source: Source, target: int) -> str | None:
    """Copies a shard to an open file, hashing on the way, and makes it durable.

    Returns what is wrong with it, None if nothing is. Raises CacheError if the source does not have it.
    """
    digest, size = xxhash.xxh3_128(), 0
    try:
        for piece in source.stream(shard.file):
            size += len(piece)
            if size > shard.size_bytes:
                return f"more than the promised {shard.size_bytes} bytes"
            digest.update(piece)
            _write_all(target, piece)
    except FileNotFoundError as error:
        raise CacheError(f"shard {shard.file} is missing in {source}") from error
    except OSError as error:
        return f"broke off after {size} bytes ({error})"
    if size != shard.size_bytes or digest.hexdigest() != shard.xxh3_128:
        return f"{size} bytes with xxh3_128 {digest.hexdigest()}, promised {shard.size_bytes} with {shard.xxh3_128}"
    os.fsync(target)
    return None


def _write_all(target: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]
