"""Fields of a sample and how their rows lie in a shard file.

A shard is a safetensors file. Its header is padded with spaces so that the data starts at a page boundary, and
its tensors (one per field, rows first) stand in order of falling alignment: the largest power of two, up to a page,
that divides the bytes of a row. So each starts at a multiple of its own alignment, in a shard of any length.
"""

import json
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import DatasetError
from .files import PAGE_BYTES

# name -> (safetensors code, numpy dtype). numpy has no bfloat16: its raw bits travel as uint16.
DTYPES: dict[str, tuple[str, str]] = {
    "float64": ("F64", "<f8"),
    "float32": ("F32", "<f4"),
    "float16": ("F16", "<f2"),
    "bfloat16": ("BF16", "<u2"),
    "int64": ("I64", "<i8"),
    "int32": ("I32", "<i4"),
    "int16": ("I16", "<i2"),
    "int8": ("I8", "|i1"),
    "uint64": ("U64", "<u8"),
    "uint32": ("U32", "<u4"),
    "uint16": ("U16", "<u2"),
    "uint8": ("U8", "|u1"),
    "bool": ("BOOL", "|b1"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One array of fixed shape in every sample.

    `dtype` is a key of `DTYPES`; `shape` is the shape of one row, each size >= 1, () for a scalar.
    Raises DatasetError for anything else.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith("__"):
            raise DatasetError(f"field name {self.name!r}: must be non-empty and not start with '__'")
        if self.dtype not in DTYPES:
            raise DatasetError(f"field {self.name!r}: unknown dtype {self.dtype!r}; known: {', '.join(DTYPES)}")
        if any(size < 1 for size in self.shape):
            raise DatasetError(f"field {self.name!r}: every size of shape {self.shape} must be at least 1")

    @property
    def item_bytes(self) -> int:
        return int(DTYPES[self.dtype][1][2:])

    @property
    def row_bytes(self) -> int:
        return self.item_bytes * math.prod(self.shape)


def row_bytes(fields: Iterable[Field]) -> int:
    """Bytes of one sample over all its fields."""
    return sum(field.row_bytes for field in fields)


def in_file_order(fields: Iterable[Field]) -> list[Field]:
    """The fields as they follow one another in a shard file."""
    return sorted(fields, key=lambda field: (-min(field.row_bytes & -field.row_bytes, PAGE_BYTES), field.name))


def shard_header(fields: Sequence[Field], rows: int) -> bytes:
    """The first bytes of a shard of `rows` samples, up to its data; a whole number of pages.

    The same fields and rows always give the same bytes.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "phalanx-shard-1"}}
    begin = 0
    for field in in_file_order(fields):
        end = begin + rows * field.row_bytes
        code = DTYPES[field.dtype][0]
        entries[field.name] = {"dtype": code, "shape": [rows, *field.shape], "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    size = math.ceil((8 + len(text)) / PAGE_BYTES) * PAGE_BYTES
    return struct.pack("<Q", size - 8) + text.ljust(size - 8)


def field_offsets(fields: Sequence[Field], rows: int) -> dict[str, int]:
    """Where each field's first byte lies in a shard file of `rows` samples."""
    offset = len(shard_header(fields, rows))
    offsets = {}
    for field in in_file_order(fields):
        offsets[field.name] = offset
        offset += rows * field.row_bytes
    return offsets
