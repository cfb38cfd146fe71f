"""From what a user names (files, folders, a query, a function) to the recordings of a job, in a fixed order."""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import OfflineError
from .recordings import Hdf5Input, Input, NpyInput, ReadyInput, Recording, SqlInput, ZarrInput, run_query

KINDS: dict[str, type[NpyInput] | type[Hdf5Input] | type[ZarrInput]] = {
    ".npy": NpyInput,
    ".h5": Hdf5Input,
    ".hdf5": Hdf5Input,
    ".nwb": Hdf5Input,
    ".zarr": ZarrInput,
}
ROWS_PER_PAGE = 4096


def find_inputs(addresses: Sequence[str], *, keys: Sequence[str] = (), query: str = "") -> list[Input]:
    """The recordings behind addresses: files and folders (see `KINDS`; folders are searched), database addresses
    (with `query`), and MODULE:FUNCTION, which is called and gives recordings or (name, arrays) pairs.

    Raises OfflineError for what is none of these, for nothing found, and for two recordings of one name.
    """
    found: list[Input] = []
    for address in addresses:
        if "://" in address:
            found += sql_pages(address, query)
        elif Path(address).exists():
            found += _files(Path(address), tuple(keys))
        elif ":" in address:
            found += from_iterable(load_function(address)())
        else:
            raise OfflineError(f"{address}: no such file or folder, no database address and no MODULE:FUNCTION")
    names = [each.name for each in found]
    if not found:
        raise OfflineError(f"no recordings in {', '.join(addresses)}; known endings: {', '.join(KINDS)}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise OfflineError(f"two recordings are called {twice!r}; each needs a name of its own")
    return found


def from_iterable(values: Iterable[Any]) -> list[Input]:
    """Recordings from any iterable of Recording or of (name, array or mapping of arrays)."""
    inputs: list[Input] = []
    for place, value in enumerate(values):
        if not isinstance(value, Recording):
            try:
                name, arrays = value
            except (TypeError, ValueError):
                raise OfflineError(
                    f"item {place} of the iterable is a {type(value).__name__}, not a Recording or (name, arrays)"
                ) from None
            value = Recording(str(name), arrays if hasattr(arrays, "items") else {"data": arrays})
        inputs.append(ReadyInput(value, str(place)))
    return inputs


def sql_pages(url: str, query: str, rows_per_page: int = ROWS_PER_PAGE) -> list[Input]:
    """A query's rows in pages. It must order them: a job that is resumed has to see the same rows again."""
    query = query.strip().rstrip(";")
    if "order by" not in query.lower():
        raise OfflineError(f"{url}: give a query with ORDER BY (--query), so that its rows always come alike")
    _, ((count,),) = run_query(url, f"SELECT COUNT(*) FROM ({query}) AS q")
    return [SqlInput(url, query, first, min(rows_per_page, count - first)) for first in range(0, count, rows_per_page)]


def load_function(name: str) -> Callable[..., Any]:
    """The function MODULE:FUNCTION, from the current folder or an installed package. Raises OfflineError."""
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function = getattr(import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OfflineError(f"{name}: cannot be imported as MODULE:FUNCTION ({error})") from error
    if not callable(function):
        raise OfflineError(f"{name}: is no function")
    return function  # type: ignore[no-any-return]


def code_digest(function: Callable[..., Any]) -> str:
    """A digest of the file that a function stands in; of its name if there is none."""
    try:
        source = Path(inspect.getfile(inspect.unwrap(function))).read_bytes()
    except (TypeError, OSError):
        source = repr(function).encode()
    return hashlib.sha256(source).hexdigest()[:16]


def _files(path: Path, keys: tuple[str, ...]) -> list[Input]:
    kind = KINDS.get(path.suffix)
    if kind is not None:
        return [kind(path, keys)]
    if not path.is_dir():
        raise OfflineError(f"{path}: unknown ending; known: {', '.join(KINDS)}")
    inside = sorted(each for each in path.rglob("*") if each.suffix in KINDS)
    zarrs = {each for each in inside if each.suffix == ".zarr"}
    return [KINDS[each.suffix](each, keys, path) for each in inside if zarrs.isdisjoint(each.parents)]
