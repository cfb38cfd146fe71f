"""The objects below one address, as whoever writes a data set there needs them: each request tried again."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .errors import DatasetError
from .remote import note_use, object_store

# The key of an object's own metadata; Azure takes letters and digits only.
CHECKSUM_KEY = "xxh3"
_REQUEST_S = 120.0
Answer = TypeVar("Answer")


class StoreFolder:
    """Objects by their names below an s3://, gs:// or az:// address.

    A request that fails is tried again, `tries` times in all, after pauses that double from `pause_s`, until `stop`.
    Every method raises DatasetError after the last try; the class does for an address that cannot be written to.
    """

    def __init__(self, url: str, *, tries: int = 4, pause_s: float = 0.5) -> None:
        if url.startswith(("http://", "https://")):
            raise DatasetError(f"{url}: data sets cannot be written over HTTP; give an s3://, gs:// or az:// address")
        self.url = url.rstrip("/")
        self._store = object_store(self.url, timeout_s=_REQUEST_S)
        note_use()
        self._tries, self._pause_s = tries, pause_s
        self.stop = threading.Event()

    def found(self, name: str) -> bytes | None:
        """The bytes of a small object, None if it is not there."""
        import obstore

        return self._tried("read", name, _or_none(lambda: bytes(obstore.get(self._store, name).bytes())))

    def noted(self, name: str) -> tuple[int, str] | None:
        """The size of an object and the checksum that was noted when it was put, None if it is not there."""
        import obstore

        def ask() -> tuple[int, str]:
            answer = obstore.get(self._store, name, options={"head": True})
            return int(answer.meta["size"]), str(answer.attributes.get(CHECKSUM_KEY, ""))

        return self._tried("looked up", name, _or_none(ask))

    def names(self) -> list[str]:
        """The objects that lie directly here."""
        import obstore

        def ask() -> list[str]:
            return [meta["path"] for page in obstore.list(self._store) for meta in page if "/" not in meta["path"]]

        return self._tried("listed", "", ask)

    def put(self, name: str, content: bytes | Path, checksum: str = "") -> None:
        """Writes an object, which others see when it is whole, and notes a checksum with it."""
        import obstore

        options: dict[str, Any] = {"attributes": {CHECKSUM_KEY: checksum}} if checksum else {}
        self._tried("written", name, lambda: obstore.put(self._store, name, content, **options))

    def delete(self, name: str) -> None:
        """Removes an object."""
        import obstore

        self._tried("removed", name, lambda: obstore.delete(self._store, name))

    def _tried(self, what: str, name: str, request: Callable[[], Answer]) -> Answer:
        from obstore.exceptions import NotFoundError, PermissionDeniedError, UnauthenticatedError

        final = (FileNotFoundError, NotFoundError, PermissionError, PermissionDeniedError, UnauthenticatedError)
        for attempt in range(self._tries):
            try:
                return request()
            except Exception as error:  # every store has errors of its own
                if attempt == self._tries - 1 or isinstance(error, final) or self.stop.is_set():
                    cause = " ".join(str(error).split())[:300]
                    raise DatasetError(f"{self.url}/{name} cannot be {what}: {cause}") from error
                self.stop.wait(self._pause_s * 2**attempt)
        raise AssertionError("unreachable")


def _or_none(request: Callable[[], Answer]) -> Callable[[], Answer | None]:
    from obstore.exceptions import NotFoundError

    def ask() -> Answer | None:
        try:
            return request()
        except (FileNotFoundError, NotFoundError):
            return None

    return ask
