"""Where shards come from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

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
