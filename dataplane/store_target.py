"""Writing a data set to an object store: shard by shard as they are made, each with its checksum, the manifest last.

Whoever begins leaves a marker with a token of its own. A writer that finds another's token in it stops: two would
mix their shards. A writer that takes over from a dead one sends only what is not there yet with the same checksum.
"""

import secrets
import tempfile
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from .errors import DatasetError
from .manifest import MANIFEST_NAME, MARKER_NAME, Manifest, Shard
from .store_folder import StoreFolder
from .targets import SHARD_GLOB


class StoreTarget:
    """An address that one data set is written to. `uploads` shards are on their way at once, in threads.

    A failed upload is told by the `add` or `finish` that follows. Raises DatasetError if the address holds a finished
    data set or cannot be written to.
    """

    def __init__(self, url: str, *, uploads: int = 2) -> None:
        self._files, self._uploads = StoreFolder(url), uploads
        if self._files.found(MANIFEST_NAME) is not None:
            raise DatasetError(f"{self}: holds a finished data set; write to another address")
        self._token = secrets.token_hex(16).encode()
        self._files.put(MARKER_NAME, self._token)
        self._scratch = tempfile.TemporaryDirectory(prefix="phalanx-shards-", ignore_cleanup_errors=True)
        self._pool = ThreadPoolExecutor(uploads, "phalanx-upload")
        self._on_the_way: deque[Future[None]] = deque()

    def __str__(self) -> str:
        return self._files.url

    def path(self, file: str) -> Path:
        return Path(self._scratch.name) / file

    def add(self, shard: Shard, path: Path) -> None:
        self._wait(self._uploads)
        self._on_the_way.append(self._pool.submit(self._upload, shard, path))

    def finish(self, manifest: Manifest) -> None:
        self._wait(0)
        self._check_marker()
        mine = {shard.file for shard in manifest.shards}
        for name in self._files.names():
            if fnmatchcase(name, SHARD_GLOB) and name not in mine:
                self._files.delete(name)  # of an earlier writer that had more
        self._files.put(MANIFEST_NAME, manifest.to_bytes())
        self._files.delete(MARKER_NAME)

    def release(self) -> None:
        self._files.stop.set()
        # Waits: an upload that ends later could overwrite that of a next writer.
        self._pool.shutdown(cancel_futures=True)
        self._scratch.cleanup()

    def _wait(self, most: int) -> None:
        """Waits until at most so many uploads are on their way, and tells of those that failed."""
        while len(self._on_the_way) > most or (self._on_the_way and self._on_the_way[0].done()):
            self._on_the_way.popleft().result()

    def _upload(self, shard: Shard, path: Path) -> None:
        """Sends a shard unless it is there already, as its size and the checksum noted with it say."""
        whole = (shard.size_bytes, shard.xxh3_128)
        if self._files.noted(shard.file) != whole:
            self._check_marker()
            self._files.put(shard.file, path, shard.xxh3_128)
            size, _ = self._files.noted(shard.file) or (0, "")
            if size != shard.size_bytes:
                raise DatasetError(f"{self}/{shard.file}: {shard.size_bytes} bytes were sent, {size} are there")
        if path.parent == Path(self._scratch.name):
            path.unlink()

    def _check_marker(self) -> None:
        if self._files.found(MARKER_NAME) != self._token:
            raise DatasetError(f"{self}: another writer has begun here; this one stops")
