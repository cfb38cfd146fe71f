"""Fields of a sample and how their rows lie in a shard file.

A shard is a safetensors file. Its header is padded with spaces so that the data starts at a page boundary, and
its tensors (rows first) stand in order of falling alignment: the largest power of two, up to a page, that divides
the bytes of a row. So each starts at a multiple of its own alignment, in a shard of any length.

A field of fixed shape is one tensor. One of variable length is two: the items of all samples after one another,
and NAME.span with the first item and the end of each sample.
"""

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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


SPAN_SUFFIX = ".span"
OFFSETS_SUFFIX = ".offsets"


@dataclass(frozen=True, slots=True)
class Field:
    """One array in every sample.

    `dtype` is a key of `DTYPES`. `shape` is the shape of the array, each size >= 1, () for a scalar; with `variable`
    it is that of one item, and a sample has any number of items (>= 0). Raises DatasetError for anything else.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    variable: bool = False

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith("__") or self.name.endswith((SPAN_SUFFIX, OFFSETS_SUFFIX)):
            raise DatasetError(
                f"field name {self.name!r}: must be non-empty, not start with '__', and not end with "
                f"{SPAN_SUFFIX!r} or {OFFSETS_SUFFIX!r}"
            )
        if self.dtype not in DTYPES:
            raise DatasetError(f"field {self.name!r}: unknown dtype {self.dtype!r}; known: {', '.join(DTYPES)}")
        if any(size < 1 for size in self.shape):
            raise DatasetError(f"field {self.name!r}: every size of shape {self.shape} must be at least 1")

    @property
    def item_bytes(self) -> int:
        return int(DTYPES[self.dtype][1][2:])

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample, or of one item of a variable field."""
        return self.item_bytes * math.prod(self.shape)


def fixed_fields(fields: Iterable[Field]) -> list[Field]:
    """What has one row of fixed size per sample: the fixed fields, and the span of each variable one."""
    return [Field(f.name, f.dtype, f.shape) if not f.variable else span_field(f) for f in fields]


def span_field(field: Field) -> Field:
    """The tensor that says where a variable field's samples begin and end among the shard's items."""
    span = Field(field.name, "int64", (2,))
    object.__setattr__(span, "name", field.name + SPAN_SUFFIX)  # a name that no user's field may have
    return span


def row_bytes(fields: Iterable[Field]) -> int:
    """Bytes of one sample over all its fields, without the items of variable ones."""
    return sum(field.row_bytes for field in fixed_fields(fields))


def in_file_order(fields: Iterable[Field]) -> list[Field]:
    """The tensors of a shard as they follow one another in its file; items of a variable field are `variable`."""
    fields = list(fields)
    tensors = [*fixed_fields(fields), *(field for field in fields if field.variable)]
    return sorted(tensors, key=lambda field: (-min(field.row_bytes & -field.row_bytes, PAGE_BYTES), field.name))


def shard_header(fields: Sequence[Field], rows: int, items: Mapping[str, int] | None = None) -> bytes:
    """The first bytes of a shard of `rows` samples, up to its data; a whole number of pages.

    `items` counts the items of each variable field. The same arguments always give the same bytes.
    """
    return _header(tuple(fields), rows, tuple((items or {}).items()))


@lru_cache(maxsize=64)  # most shards of a data set have the same
def _header(fields: tuple[Field, ...], rows: int, counts: tuple[tuple[str, int], ...]) -> bytes:
    items = dict(counts)
    entries: dict[str, object] = {"__metadata__": {"format": "phalanx-shard-1"}}
    begin = 0
    for field in in_file_order(fields):
        count = items[field.name] if field.variable and items else rows
        end = begin + count * field.row_bytes
        code = DTYPES[field.dtype][0]
        entries[field.name] = {"dtype": code, "shape": [count, *field.shape], "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    size = math.ceil((8 + len(text)) / PAGE_BYTES) * PAGE_BYTES
    return struct.pack("<Q", size - 8) + text.ljust(size - 8)


def field_offsets(fields: Sequence[Field], rows: int, items: Mapping[str, int] | None = None) -> dict[str, int]:
    """Where each tensor's first byte lies in a shard file of `rows` samples."""
    offset = len(shard_header(fields, rows, items))
    offsets = {}
    for field in in_file_order(fields):
        offsets[field.name] = offset
        offset += (items[field.name] if field.variable and items else rows) * field.row_bytes
    return offsets
