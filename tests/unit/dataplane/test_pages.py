"""Where rows lie in memory, and how files come there."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Field, Manifest, ShardDataset, ShardWriter
from phalanx.dataplane.errors import CorruptShard
from phalanx.dataplane.fields import field_offsets
from phalanx.dataplane.manifest import Shard
from phalanx.dataplane.pages import HUGE_BYTES, fresh_bytes
from phalanx.dataplane.row_ranges import RowRanges
from phalanx.dataplane.shard_file import in_memory, open_checked, read_into_memory

LARGE = Field("wave", "int16", (256, 64))  # rows of 32 KiB
ODD = Field("odd", "uint8", (48, 1024))  # an odd multiple of 16 KiB
SMALL = Field("id", "int32", ())


def written(folder: Path, fields: tuple[Field, ...], count: int, shard_bytes: int) -> Manifest:
    with ShardWriter(folder, fields, name="set", shard_bytes=shard_bytes) as writer:
        for first in range(0, count, 16):
            ids = np.arange(first, min(count, first + 16), dtype=np.int32)
            rows = {SMALL.name: ids}
            for field in fields:
                if field is not SMALL:
                    values = ids.reshape(-1, *[1] * len(field.shape)).astype(np.dtype(field.dtype))
                    rows[field.name] = np.broadcast_to(values, (len(ids), *field.shape)).copy()
            writer.write(rows)
        return writer.close()


def places(manifest: Manifest, field: Field) -> list[int]:
    """How far the address of each shard's first row is from its place in the file, in bytes of a huge page."""
    ranges = RowRanges(manifest)._ranges[field.name]
    offsets = [field_offsets(manifest.fields, shard.rows)[field.name] for shard in manifest.shards]
    first = [ranges._base + int(row) * field.row_bytes for row in ranges.first]
    return [(address - offset) % HUGE_BYTES for address, offset in zip(first, offsets, strict=True)]


@pytest.mark.parametrize("fields", [(LARGE, SMALL), (ODD, SMALL), (LARGE, ODD, SMALL)])
def test_rows_of_large_fields_lie_as_in_their_files_by_huge_pages(tmp_path: Path, fields: tuple[Field, ...]) -> None:
    manifest = written(tmp_path / "set", fields, 300, 8 << 20)
    assert len(manifest.shards) >= 2
    assert len({shard.rows for shard in manifest.shards}) == 2, "the last one is shorter"
    assert places(manifest, fields[0]) == [0] * len(manifest.shards)
    assert {place % 4096 for place in places(manifest, SMALL)} == {0}
    ids = np.random.default_rng(0).permutation(300)
    with ShardDataset(tmp_path / "set") as dataset:
        got = dataset.gather(ids)
    assert got["id"].tolist() == ids.tolist()
    for field in fields[:-1]:
        values = ids.astype(np.dtype(field.dtype))
        flat = got[field.name].reshape(300, -1)
        assert (flat.min(axis=1) == values).all()
        assert (flat.max(axis=1) == values).all()


def test_small_shards_take_few_addresses(tmp_path: Path) -> None:
    manifest = written(tmp_path / "set", (LARGE, SMALL), 64, 200_000)
    assert len(manifest.shards) >= 10
    ranges = RowRanges(manifest)._ranges
    assert sum(each.array.nbytes for each in ranges.values()) < 3 * manifest.size_bytes


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file of 11 MB that is on the disk only."""
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(0).bytes(11_000_001))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if resident(path):
        pytest.skip("this file system cannot tell what is in memory, or forgets nothing")
    return path


def resident(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        return in_memory(file.fileno(), path.stat().st_size)


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_is_read_into_memory_until_told_to_stop(cold: Path, whole: bool) -> None:
    stop = threading.Event()
    stop.set()
    read_into_memory(cold, 11_000_001, stop, whole=whole)
    assert not resident(cold)
    read_into_memory(cold, 11_000_001, threading.Event(), whole=whole)
    for _ in range(500):
        if resident(cold):  # the last pieces may still be under way
            break
        stop.wait(0.01)
    else:
        pytest.fail("the file was never read")


def test_a_cold_shard_is_hashed_as_it_is_read(tmp_path: Path) -> None:
    manifest = written(tmp_path / "set", (LARGE, SMALL), 64, 12 << 20)
    shard = manifest.shards[0]
    path = tmp_path / "set" / shard.file
    for content, right in ((path.read_bytes(), True), (path.read_bytes()[:-1] + b"!", False)):
        path.write_bytes(content)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        assert opened(shard, path, manifest) == right, "from the disk"
        assert opened(shard, path, manifest) == right, "from memory"


def opened(shard: Shard, path: Path, manifest: Manifest) -> bool:
    """Whether the shard passes; what does not must be told by its checksum."""
    try:
        open_checked(shard, path, manifest.fields, verify=True).close()
    except CorruptShard as error:
        return f"shard {shard.file}: xxh3_128" not in str(error)
    return True


@pytest.mark.parametrize("size", [10, HUGE_BYTES - 1, HUGE_BYTES, 5_000_001])
def test_fresh_memory_is_its_owners_alone_and_begins_at_a_huge_page_where_it_is_large(size: int) -> None:
    one, other = fresh_bytes(size), fresh_bytes(size)
    one[:], other[:] = 1, 2
    assert len(one) == size
    assert one.min() == one.max() == 1
    assert size < HUGE_BYTES or one.ctypes.data % HUGE_BYTES == 0
