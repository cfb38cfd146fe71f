"""Where shards come from."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import xxhash

from .errors import CacheError, CorruptShard
from .manifest import Shard

PIECE_BYTES = 4 << 20


class Source(Protocol):
    """The port to wherever a data set's shards are stored."""

    def stream(self, file: str) -> Iterator[memoryview]:
        """Yields the bytes of one shard file in order; a piece is valid until the next is asked for.

        Raises OSError if the file cannot be read, FileNotFoundError if it is not there.
        """
        ...

    def read(self, file: str) -> bytes:
        """The bytes of a small file. Raises OSError as `stream` does."""
        ...


class FolderSource:
    """Shards in a local or mounted folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def stream(self, file: str) -> Iterator[memoryview]:
        piece = memoryview(bytearray(PIECE_BYTES))
        with (self.folder / file).open("rb", buffering=0) as source:
            while count := source.readinto(piece):
                yield piece[:count]

    def read(self, file: str) -> bytes:
        return (self.folder / file).read_bytes()


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one copy: the source broke off, or (`wrong`) its bytes are not those promised."""

    reason: str
    wrong: bool


def copy_checked(shard: Shard, source: Source, target: int) -> Fault | None:
    """Copies a shard to an open file, hashing on the way, and makes it durable.

    Returns what is wrong with it, None if nothing is. Raises CacheError if the source does not have it, may not be
    read, or if the disk takes no more.
    """

    def write(piece: memoryview) -> None:
        try:
            _write_all(target, piece)
        except OSError as error:
            raise CacheError(f"shard {shard.file} cannot be written to the cache: {error}") from error

    fault = _read_checked(shard, source, write)
    if fault is None:
        os.fsync(target)
    return fault


def check_stream(shard: Shard, source: Source) -> None:
    """Reads a shard through. Raises CorruptShard if its bytes are not those promised, CacheError as copy_checked."""
    fault = _read_checked(shard, source, lambda _: None)
    if fault is not None:
        raise CorruptShard(f"shard {shard.file} from {source}: {fault.reason}")


def _read_checked(shard: Shard, source: Source, use: Callable[[memoryview], None]) -> Fault | None:
    digest, size = xxhash.xxh3_128(), 0
    pieces = source.stream(shard.file)
    while True:
        try:
            piece = next(pieces, None)
        except FileNotFoundError as error:
            raise CacheError(f"shard {shard.file} is missing in {source}") from error
        except PermissionError as error:
            raise CacheError(f"shard {shard.file} may not be read from {source}: {error}") from error
        except OSError as error:
            return Fault(f"broke off after {size} bytes ({error})", wrong=False)
        if piece is None:
            break
        size += len(piece)
        if size > shard.size_bytes:
            return Fault(f"more than the promised {shard.size_bytes} bytes", wrong=True)
        digest.update(piece)
        use(piece)
    if size < shard.size_bytes:
        return Fault(f"ended after {size} of {shard.size_bytes} bytes", wrong=True)
    if digest.hexdigest() != shard.xxh3_128:
        return Fault(f"its bytes have the xxh3_128 {digest.hexdigest()}, promised {shard.xxh3_128}", wrong=True)
    return None


def _write_all(target: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]
