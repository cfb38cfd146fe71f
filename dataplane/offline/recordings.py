"""Raw recordings, whatever they are stored in. Inputs are small and travel to workers; their data is read there."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import OfflineError


@dataclass(frozen=True, slots=True)
class Recording:
    """What a cleaning function is given: a name that no other recording has, and arrays by their names.

    Arrays of HDF5 and Zarr are read when they are sliced; those of .npy are mapped. A page of SQL rows has an array
    per column, of the column's numbers, or of objects.
    """

    name: str
    arrays: Mapping[str, Any]

    @property
    def data(self) -> Any:
        """The only array. Raises OfflineError if there are several."""
        if len(self.arrays) != 1:
            raise OfflineError(f"{self.name}: has the arrays {sorted(self.arrays)}; say which with --key")
        return next(iter(self.arrays.values()))


class Input(Protocol):
    """Where a recording comes from. `weight` is about its bytes; `stamp` changes when its content does.

    `label` is the name by which it falls into a split: it stays when the folder of all recordings is moved.
    """

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def weight(self) -> int: ...

    @property
    def stamp(self) -> str: ...

    def open(self) -> Any:
        """A context manager that gives the Recording."""
        ...


@dataclass(frozen=True, slots=True)
class _FileInput:
    """A file or folder found in the folder `home`, and the keys of the arrays wanted in it (all of them when empty)."""

    path: Path
    keys: tuple[str, ...] = ()
    home: Path | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def label(self) -> str:
        return self.path.name if self.home is None else self.path.relative_to(self.home).as_posix()

    @property
    def weight(self) -> int:
        files = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return sum(file.stat().st_size for file in files if file.is_file())

    @property
    def stamp(self) -> str:
        return f"{self.weight}/{self.path.stat().st_mtime_ns}"

    def chosen(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays wanted. Raises OfflineError for a key that is not there, or if there is nothing at all."""
        missing = [key for key in self.keys if key not in found]
        if missing or not found:
            raise OfflineError(f"{self.path}: no array {', '.join(missing) or 'at all'}; there is {sorted(found)}")
        return {key: found[key] for key in self.keys or found}


@dataclass(frozen=True, slots=True)
class NpyInput(_FileInput):
    """A .npy file; its only array is called `data`."""

    @contextmanager
    def open(self) -> Iterator[Recording]:
        yield Recording(self.name, self.chosen({"data": np.load(self.path, mmap_mode="r", allow_pickle=False)}))


@dataclass(frozen=True, slots=True)
class Hdf5Input(_FileInput):
    """An HDF5 or NWB file; its arrays are called by their paths in it, without the leading slash."""

    @contextmanager
    def open(self) -> Iterator[Recording]:
        h5py = _needed("h5py", self.name)
        found: dict[str, Any] = {}

        def note(path: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[path] = item

        with h5py.File(self.path, "r") as file:
            file.visititems(note)
            yield Recording(self.name, self.chosen(found))


@dataclass(frozen=True, slots=True)
class ZarrInput(_FileInput):
    """A Zarr folder: an array called `data`, or a group whose arrays are called by their paths in it."""

    @contextmanager
    def open(self) -> Iterator[Recording]:
        zarr = _needed("zarr", self.name)
        opened = zarr.open(str(self.path), mode="r")
        if isinstance(opened, zarr.Array):
            yield Recording(self.name, self.chosen({"data": opened}))
        else:
            members = dict(opened.members(max_depth=None))
            yield Recording(
                self.name, self.chosen({key: each for key, each in members.items() if isinstance(each, zarr.Array)})
            )


@dataclass(frozen=True, slots=True)
class SqlInput:
    """The rows [first, first + count) of a query that orders them. SQLite needs nothing; the rest sqlalchemy."""

    url: str
    query: str
    first: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.label} of {self.url}"

    @property
    def label(self) -> str:
        return f"rows {self.first} to {self.first + self.count - 1}"

    @property
    def weight(self) -> int:
        return self.count

    @property
    def stamp(self) -> str:
        return self.query

    @contextmanager
    def open(self) -> Iterator[Recording]:
        names, rows = run_query(
            self.url, f"SELECT * FROM ({self.query}) AS q LIMIT {int(self.count)} OFFSET {int(self.first)}"
        )
        yield Recording(self.name, {name: _column([row[at] for row in rows]) for at, name in enumerate(names)})


@dataclass(frozen=True, slots=True)
class ReadyInput:
    """A recording that is in memory already, as an iterable gave it; `stamp` is its place there."""

    recording: Recording
    stamp: str

    @property
    def name(self) -> str:
        return self.recording.name

    @property
    def label(self) -> str:
        return self.name

    @property
    def weight(self) -> int:
        return sum(int(np.asarray(array).nbytes) for array in self.recording.arrays.values())

    @contextmanager
    def open(self) -> Iterator[Recording]:
        yield self.recording


def run_query(url: str, query: str) -> tuple[list[str], list[Any]]:
    """The column names and rows of a query. Raises OfflineError if the database does not answer it."""
    if url.startswith("sqlite:///"):
        import sqlite3

        path = Path(url.removeprefix("sqlite:///"))
        if not path.exists():
            raise OfflineError(f"{url}: there is no file {path}")
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                cursor = connection.execute(query)
                return [column[0] for column in cursor.description], cursor.fetchall()
        except sqlite3.Error as error:
            raise OfflineError(f"{url}: {error} (query: {query})") from error
    sqlalchemy = _needed("sqlalchemy", url)
    try:
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            result = connection.execute(sqlalchemy.text(query))
            return list(result.keys()), [tuple(row) for row in result]
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise OfflineError(f"{url}: {error}") from error


def _column(values: list[Any]) -> Any:
    if all(isinstance(value, int | float) for value in values):
        return np.asarray(values)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _needed(package: str, what: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise OfflineError(
            f"{what}: reading it needs the package {package}; install it with: pip install 'phalanx[data]'"
        ) from None
