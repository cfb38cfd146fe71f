"""One range of addresses per field, in which the rows of all shards stand at whole multiples of a row.

A batch from many shards is then one `np.take` per field. One call per shard would let go of the interpreter lock
and fight for it again dozens of times a batch, and starve beside a training loop that is busy in Python.

Shards are mapped into the range page by page. Row `first + r` of the range is row r of a shard, where `first` is
chosen so that the address has the same offset within its page as the field has in the shard's file. That has a
solution because fields lie in a file in order of falling powers of two in their row size (see fields.py).

Where a field is large the same holds for huge pages of 2 MiB: where the file system keeps a file's memory in such
pages, the processor's tables name one of them at once instead of 512 small ones.
"""

import mmap
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DatasetError
from .fields import DTYPES, Field, field_offsets, fixed_fields
from .files import PAGE_BYTES
from .manifest import Manifest
from .order import distinct
from .pages import HUGE_BYTES, NO_ACCESS, advise, map_over

Array = np.ndarray[Any, np.dtype[Any]]
Rows = npt.NDArray[np.int64]


class RowRanges:
    """Address space for every row of a data set; only that of the shards placed may be read.

    Raises DatasetError if the system does not grant the addresses.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._shards = manifest.shards
        self._asking = threading.Lock()
        offsets = [field_offsets(manifest.fields, shard.rows, dict(shard.items)) for shard in manifest.shards]
        self._ranges = {
            f.name: _Range(f, manifest, [each[f.name] for each in offsets]) for f in fixed_fields(manifest.fields)
        }

    def place(self, index: int, descriptor: int) -> None:
        """Maps a shard's open file, which must be whole."""
        for each in self._ranges.values():
            each.place(index, self._shards[index].rows, descriptor)

    def clear(self, index: int) -> None:
        """Unmaps a shard."""
        for each in self._ranges.values():
            each.clear(index, self._shards[index].rows)

    def places(self, index: int) -> list[tuple[int, int]]:
        """Where a placed shard's fields are mapped: the address of each, and bytes from there on."""
        return [each.pages(index, self._shards[index].rows) for each in self._ranges.values()]

    def will_need(self, shard_of: npt.NDArray[np.intp], rows: Rows) -> None:
        """Asks the system to read these rows of placed shards, all at once and nothing around them.

        Other threads' rows are asked for after them: in turn row by row, both batches would come late.
        """
        with self._asking:
            for each in self._ranges.values():
                each.will_need(each.first[shard_of] + rows)

    def take(self, shard_of: npt.NDArray[np.intp], rows: Rows, out: Mapping[str, Array]) -> None:
        """Copies row rows[i] of the placed shard shard_of[i] to out[field][i], for every field and i."""
        for name, each in self._ranges.items():
            # Any other mode copies through a buffer, at less than half the speed.
            each.array.take(each.first[shard_of] + rows, axis=0, out=out[name], mode="clip")


class _Range:
    def __init__(self, field: Field, manifest: Manifest, offsets: list[int]) -> None:
        self._row_bytes = row = field.row_bytes
        self._offsets = offsets
        most = max(shard.rows for shard in manifest.shards)
        unit = _unit(row, most, offsets)
        power = min(row & -row, unit)
        # Rows after which a row starts at the same place in its page again.
        period = unit // power
        # All rows stand that far behind a place from which they could have started at whole multiples of `power`.
        shift = offsets[0] % power
        apart = -(-(most + period + -(-PAGE_BYTES // row)) // period) * period
        inverse = pow(row // power, -1, period) if period > 1 else 0
        self.first: Rows = np.array(
            [index * apart + (offset - shift) // power * inverse % period for index, offset in enumerate(offsets)],
            np.int64,
        )
        rows = apart * len(offsets)
        size = -(-rows * row // unit) * unit + 2 * unit
        try:
            self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=NO_ACCESS)
        except (OSError, OverflowError) as error:
            raise DatasetError(
                f"data set {manifest.name!r}: the system does not grant {size} bytes of addresses for field "
                f"{field.name!r} ({error}); lift the limit on virtual memory (ulimit -v)"
            ) from error
        start = int(np.ndarray(0, np.uint8, buffer=self._memory).ctypes.data)
        lead = -start % unit + shift
        self.array: Array = np.ndarray((rows, *field.shape), DTYPES[field.dtype][1], buffer=self._memory, offset=lead)
        self._base = start + lead

    def place(self, index: int, rows: int, descriptor: int) -> None:
        address, size = self.pages(index, rows)
        offset = self._offsets[index] // PAGE_BYTES * PAGE_BYTES
        map_over(address, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)

    def clear(self, index: int, rows: int) -> None:
        # Not unmapped: somebody else's memory could land in the gap.
        address, size = self.pages(index, rows)
        map_over(address, size, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)

    def will_need(self, rows: Rows) -> None:
        begins = self._base + rows * self._row_bytes
        ends = begins + self._row_bytes
        begins -= begins % PAGE_BYTES
        if self._row_bytes < PAGE_BYTES:  # many rows share a page
            begins = distinct(begins // PAGE_BYTES) * PAGE_BYTES
            ends = begins + PAGE_BYTES
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            advise(begin, end - begin, mmap.MADV_WILLNEED)

    def pages(self, index: int, rows: int) -> tuple[int, int]:
        """Where a shard is mapped: an address at the beginning of a page, and bytes from there on."""
        within = self._offsets[index] % PAGE_BYTES
        return self._base + int(self.first[index]) * self._row_bytes - within, within + rows * self._row_bytes


def _unit(row: int, most: int, offsets: list[int]) -> int:
    """The pages to align with: huge ones for a large field that lies alike in every shard, if that wastes little."""
    power = min(row & -row, HUGE_BYTES)
    alike = len({offset % power for offset in offsets}) == 1
    return HUGE_BYTES if alike and most * row >= max(HUGE_BYTES, HUGE_BYTES // power * row) else PAGE_BYTES
