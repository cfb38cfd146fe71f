"""Shards in object stores: S3 and what speaks like it, Google's, Azure's, and plain HTTP.

Each shard is read in ranges, several at once, because one connection is slow; each range is tried again with growing
pauses. Needs the extra `remote`. Credentials and endpoints are those of the environment, as each vendor names them
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...).
"""

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from .bandwidth import Bandwidth
from .errors import DatasetError, UnfinishedDataset
from .manifest import MANIFEST_NAME, MARKER_NAME, Manifest, manifest_path, parse_manifest, read_manifest
from .source import FolderSource, Source

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https")
Answer = TypeVar("Answer")
_ROW_READS = 32
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT")
_COALESCE_BYTES = 64 << 10

# The client's threads do not survive a fork: a child that inherits a used one would hang.
_used_in: list[int] = []


class ObjectSource:
    """A data set's files below an address such as s3://bucket/folder.

    Shards are read in ranges of `range_bytes`, `at_once` of them at a time; a loader reads `fetches` shards ahead at
    once. A request that fails, or takes longer than
    `timeout_s`, is tried again up to `retries` times, after pauses that double from `pause_s`. `bytes_per_s` bounds
    the bandwidth over all threads. Raises DatasetError for an address that no store can have.
    """

    _row_pool: ThreadPoolExecutor | None

    def __init__(
        self,
        url: str,
        *,
        range_bytes: int = 4 << 20,
        at_once: int = 4,
        retries: int = 4,
        timeout_s: float = 30.0,
        pause_s: float = 0.2,
        bytes_per_s: int | None = None,
        fetches: int = 4,
    ) -> None:
        if (
            min(range_bytes, at_once, fetches) < 1
            or retries < 0
            or timeout_s <= 0
            or (bytes_per_s is not None and bytes_per_s < 1)
        ):
            raise DatasetError(f"{url}: range_bytes, at_once, fetches, timeout_s and bytes_per_s must be positive")
        self.url = url.removesuffix("/" + MANIFEST_NAME).rstrip("/")
        self.range_bytes, self._at_once, self.fetches = range_bytes, at_once, fetches
        self._retries, self._timeout_s, self._pause_s = retries, timeout_s, pause_s
        self._bytes_per_s = bytes_per_s
        self._reset()
        self._made(check_only=True)

    def __str__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_lock", "_store", "_pool", "_row_pool", "_bandwidth")
        return {key: value for key, value in self.__dict__.items() if key not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def read(self, file: str) -> bytes:
        """A small file, in one request."""
        import obstore

        store = self._made()
        return self._tried(file, lambda: bytes(obstore.get(store, file).bytes()))

    def stream(self, file: str) -> Iterator[memoryview]:
        """The whole object from its start on, in pieces of `range_bytes`, several of which are under way at once."""
        import obstore

        store = self._made()

        def first() -> tuple[memoryview, int]:
            answer = obstore.get(store, file, options={"range": (0, self.range_bytes)})
            return memoryview(bytes(answer.bytes())), int(answer.meta["size"])

        def part(begin: int, size: int) -> memoryview:
            length = min(self.range_bytes, size - begin)
            piece = self._tried(file, lambda: memoryview(obstore.get_range(store, file, start=begin, length=length)))
            if len(piece) != length:
                raise OSError(f"{self.url}/{file}: {len(piece)} bytes came for a range of {length}")
            self._bandwidth.take(length)
            return piece

        piece, size = self._tried(file, first)
        self._bandwidth.take(len(piece))
        starts = iter(range(len(piece), size, self.range_bytes))
        ahead: deque[Future[memoryview]] = deque()
        yield piece
        while True:
            while len(ahead) < self._at_once and (begin := next(starts, None)) is not None:
                ahead.append(self._pool.submit(part, begin, size))
            if not ahead:
                return
            yield ahead.popleft().result()

    def ranges(self, file: str, starts: list[int], sizes: list[int]) -> "Future[list[memoryview]]":
        """Pieces of a file, asked for at once in a thread; neighbours closer than 64 KiB come in one request.

        The result raises OSError as `stream` does, after as many tries, and for a piece of another length.
        """
        import obstore

        store = self._made()

        def request() -> list[memoryview]:
            found = obstore.get_ranges(store, file, starts=starts, lengths=sizes, coalesce=_COALESCE_BYTES)
            pieces = [memoryview(piece) for piece in found]
            lengths = [len(piece) for piece in pieces]
            if lengths != sizes:
                raise OSError(f"{sum(lengths)} bytes in {len(lengths)} ranges came for {sum(sizes)} in {len(sizes)}")
            return pieces

        def read() -> list[memoryview]:
            pieces = self._tried(file, request)
            self._bandwidth.take(sum(sizes))
            return pieces

        with self._lock:
            if self._row_pool is None:
                # Apart from the whole shards: the first rows must not queue behind what is read ahead.
                self._row_pool = ThreadPoolExecutor(_ROW_READS, "phalanx-rows")
            return self._row_pool.submit(read)

    def rest(self) -> None:
        """Lets go of the threads of `ranges`, which only the start needs; what is asked for already still comes."""
        with self._lock:
            pool, self._row_pool = self._row_pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._store: Any = None
        self._bandwidth = Bandwidth(self._bytes_per_s)
        self._pool = ThreadPoolExecutor(self._at_once * 4, "phalanx-remote")
        self._row_pool = None

    def _made(self, *, check_only: bool = False) -> Any:
        """The client. Raises DatasetError in a process that was forked after its parent used one."""
        with self._lock:
            if self._store is None or not check_only:
                # After a fork even a client that was already made is of no use.
                made = self._store if self._store is not None and _used_in == [os.getpid()] else None
                self._store = made or object_store(self.url, timeout_s=self._timeout_s)
            if not check_only:
                note_use()
            return self._store

    def _tried(self, file: str, request: Callable[[], Answer]) -> Answer:
        """The answer of a request, tried again with pauses.

        Raises FileNotFoundError and PermissionError at once, OSError with the last cause after the last try.
        """
        from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

        for attempt in range(self._retries + 1):
            try:
                return request()
            except (NotFoundError, FileNotFoundError) as error:
                raise FileNotFoundError(f"{self.url}/{file}: not there") from error
            except (PermissionDeniedError, UnauthenticatedError) as error:
                raise PermissionError(f"{self.url}/{file}: access refused") from error
            except (BaseError, OSError) as error:
                if attempt == self._retries:
                    cause = " ".join(str(error).split())[:300]
                    raise OSError(f"{self.url}/{file}: {cause}, after {attempt + 1} tries") from error
                time.sleep(self._pause_s * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")


def object_store(url: str, *, timeout_s: float) -> Any:
    """The client for an address. Raises DatasetError if there is none, or in a child forked after one was used."""
    try:
        store = import_module("obstore.store")
    except ImportError:
        raise DatasetError(
            f"{url}: object stores need the package obstore; install it with: pip install 'phalanx[remote]'"
        ) from None
    if _used_in and os.getpid() not in _used_in:
        raise DatasetError(
            f"{url}: this process was forked from one that had already read from an object store, whose "
            "threads are gone here; start workers with spawn, or open the data set in the workers only"
        )
    return _client(store, url, timeout_s)


def note_use() -> None:
    """Remembers that this process has used a client: its children must not be forked to use one, too."""
    _used_in[:] = [os.getpid()]


def is_remote(location: object) -> bool:
    """Whether an address is one of an object store."""
    return str(location).partition("://")[0] in SCHEMES and "://" in str(location)


def open_source(location: str | Path | Source, *, bytes_per_s: int | None = None) -> Source:
    """The source behind a folder, a manifest, a file:// address or an address of an object store."""
    if not isinstance(location, str | Path):
        return location
    if is_remote(location):
        return ObjectSource(str(location), bytes_per_s=bytes_per_s)
    return FolderSource(manifest_path(location).parent)


def open_dataset_source(location: str | Path | Source, *, bytes_per_s: int | None = None) -> tuple[Source, Manifest]:
    """The source of a data set and its manifest. Raises DatasetError if there is none that can be read."""
    source = open_source(location, bytes_per_s=bytes_per_s)
    if isinstance(source, FolderSource):
        return source, read_manifest(source.folder)
    try:
        data = source.read(MANIFEST_NAME)
    except FileNotFoundError:
        raise _why_missing(source) from None
    except OSError as error:
        raise DatasetError(f"{source}: its {MANIFEST_NAME} cannot be read: {error}") from error
    return source, parse_manifest(data, f"{source}/{MANIFEST_NAME}")


def _why_missing(source: Source) -> DatasetError:
    try:
        source.read(MARKER_NAME)
    except OSError:
        return DatasetError(f"{source}: no data set here (no {MANIFEST_NAME})")
    return UnfinishedDataset(f"{source}: unfinished data set (no {MANIFEST_NAME}); run the job that writes it again")


def _client(store: Any, url: str, timeout_s: float) -> Any:
    plain = any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
    options: dict[str, Any] = {"timeout": f"{timeout_s:g}s", "connect_timeout": f"{min(timeout_s, 5.0):g}s"}
    if plain or url.startswith("http://"):
        options["allow_http"] = True
    # Tries are made here, where they are counted and told.
    retry = {"max_retries": 0, "retry_timeout": timedelta(seconds=timeout_s)}
    try:
        return store.from_url(url, client_options=options, retry_config=retry)
    except Exception as error:  # the client raises what its builder of the day raises
        raise DatasetError(f"{url}: is no address of an object store: {' '.join(str(error).split())[:300]}") from error
