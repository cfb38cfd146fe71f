"""First batches from an object store by ranged reads, whole shards behind them, both compared."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from phalanx.dataplane import Field, Loader, Manifest, ObjectSource, ShardCache, ShardDataset, ShardWriter
from phalanx.dataplane.early_rows import EarlyRows
from phalanx.dataplane.errors import CacheError, CorruptShard

from .conftest import FIELDS, rows
from .object_server import ObjectServer

pytest.importorskip("obstore", reason="obstore is not installed")

RANGE = 1024  # a shard of 64 samples takes several requests, and so gives single rows early
WHOLE = 200  # no read of single rows is as long, where neighbours are not read with them


@pytest.fixture
def stored(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """Twelve shards of 64 samples at s3://bucket/set, and in tmp_path/set."""
    monkeypatch.setattr("phalanx.dataplane.remote._COALESCE_BYTES", 0)
    with ShardWriter(tmp_path / "set", FIELDS, name="set", shard_bytes=64 * 84) as writer:
        writer.write(rows(np.arange(12 * 64)))
        manifest = writer.close()
    for path in (tmp_path / "set").iterdir():
        object_server.objects[f"bucket/set/{path.name}"] = path.read_bytes()
    return manifest


@pytest.fixture
def held_back(object_server: ObjectServer) -> Iterator[threading.Event]:
    """Until it is set, the store answers reads of whole shards' ranges with nothing."""
    release = threading.Event()

    def hold(key: str, body: bytes) -> bytes:
        if key.endswith(".safetensors") and len(body) >= WHOLE:
            release.wait(20)
        return body

    object_server.misdeed = hold
    yield release
    release.set()


def opened(cache: Path, **options: object) -> ShardDataset:
    settings = {"range_bytes": RANGE, "pause_s": 0.01, "timeout_s": 30.0, **options}
    return ShardDataset(ObjectSource("s3://bucket/set", **settings), ShardCache(cache, 10**7, attempts=1))  # type: ignore[arg-type]


def fetched(cache: Path) -> int:
    return len(list((cache / "objects").glob("*.shard")))


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_first_batches_come_before_any_whole_shard_and_are_the_same(
    stored: Manifest, held_back: threading.Event, tmp_path: Path
) -> None:
    with ShardDataset(tmp_path / "set") as plain, Loader(plain, 16, seed=3) as loader:
        expected = [{name: tensor.clone() for name, tensor in batch.items()} for batch in loader.batches(96)]
    with opened(tmp_path / "cache") as dataset, Loader(dataset, 16, seed=3) as loader:
        for number, (batch, right) in enumerate(zip(loader.batches(96), expected, strict=True)):
            assert all(batch[name].equal(right[name]) for name in right)
            if number == 2:
                assert fetched(tmp_path / "cache") == 0
                assert row_readers()
                held_back.set()
        until(lambda: not row_readers())
    assert fetched(tmp_path / "cache") == 12


def row_readers() -> list[str]:
    """Threads that read single rows; the start over, none is kept."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("phalanx-rows")]


def test_a_shard_gives_a_quarter_of_its_rows_and_then_is_waited_for(
    stored: Manifest, held_back: threading.Event, tmp_path: Path
) -> None:
    with opened(tmp_path / "cache") as dataset:
        early = EarlyRows(dataset)

        def gather(first: int, end: int) -> list[int]:
            numbers = np.arange(first, end) * 3
            out = dataset.empty(len(numbers))
            early.gather(np.zeros(len(numbers), np.intp), numbers, out, lambda _name, _count: out["id"])
            return out["id"].tolist()

        assert gather(0, 10) == [3 * each for each in range(10)]
        assert gather(10, 16) == [3 * each for each in range(10, 16)]
        assert fetched(tmp_path / "cache") == 0
        held_back.set()
        assert gather(16, 20) == [3 * each for each in range(16, 20)]
        assert fetched(tmp_path / "cache") == 1


def test_rows_that_differ_from_their_whole_shard_are_an_error_naming_it(
    stored: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    def lie(key: str, body: bytes) -> bytes:
        short = key.endswith("shard-000002.safetensors") and len(body) < WHOLE
        return bytes(len(body) - 1) + b"\x07" if short else body

    object_server.misdeed = lie
    match = r"shard-000002\.safetensors from s3://bucket/set: .*handed out before the shard was whole.*\(host"
    with opened(tmp_path / "cache") as dataset:
        early = EarlyRows(dataset)
        out = dataset.empty(2)
        early.gather(np.full(2, 2), np.array([5, 9]), out, lambda _name, _count: out["id"])
        early.warm(2, threading.Event())
        with pytest.raises(CorruptShard, match=match):
            early.gather(np.full(2, 2), np.array([6, 10]), out, lambda _name, _count: out["id"])
        with pytest.raises(CorruptShard, match=match):
            early.finish()


def test_rows_of_a_shard_that_is_bad_at_the_source_are_an_error(
    stored: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    body = object_server.objects["bucket/set/shard-000005.safetensors"]
    object_server.objects["bucket/set/shard-000005.safetensors"] = body[:-1] + b"\x99"
    with opened(tmp_path / "cache") as dataset:
        early = EarlyRows(dataset)
        out = dataset.empty(2)
        early.gather(np.full(2, 5), np.array([1, 2]), out, lambda _name, _count: out["id"])
        assert out["id"].tolist() == [321, 322]
        with pytest.raises(CorruptShard, match=r"shard-000005\.safetensors"):
            early.warm(5, threading.Event())
        with pytest.raises(CorruptShard, match=r"shard-000005\.safetensors from s3://bucket/set"):
            early.gather(np.zeros(2, np.intp), np.array([1, 2]), out, lambda _name, _count: out["id"])


@pytest.mark.parametrize("kind", ["error", "cut", "slow"])
def test_reads_of_rows_are_tried_again_within_bounds(
    stored: Manifest, object_server: ObjectServer, tmp_path: Path, kind: str
) -> None:
    left = [3]

    def fail(key: str, body: bytes) -> bytes | int | None:
        if not key.endswith(".safetensors") or not left[0]:
            return body
        left[0] -= 1
        if kind == "slow":
            time.sleep(1.0)
            return body
        return 503 if kind == "error" else None

    object_server.misdeed = fail
    with (
        opened(tmp_path / "cache", timeout_s=0.5 if kind == "slow" else 30.0) as dataset,
        Loader(dataset, 16, seed=3) as loader,
    ):
        assert len(next(loader)["id"]) == 16
        until(lambda: fetched(tmp_path / "cache") == 12)
    assert left == [0]


def test_a_store_that_stays_down_ends_the_loader_with_shard_store_host_and_cause(
    stored: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    with opened(tmp_path / "cache", retries=1) as dataset, Loader(dataset, 16, seed=3) as loader:
        object_server.misdeed = lambda key, body: 503
        with pytest.raises(
            CacheError, match=r"shard shard-\d+\.safetensors from s3://bucket/set: .*503.*2 tries.*\(host"
        ):
            next(loader)


def test_a_loader_closed_early_says_what_was_not_compared(
    stored: Manifest, held_back: threading.Event, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "cache") as dataset:
        early = EarlyRows(dataset)
        out = dataset.empty(1)
        early.gather(np.array([4]), np.array([9]), out, lambda _name, _count: out["id"])
        with caplog.at_level(logging.WARNING, "phalanx.dataplane"):
            early.finish()
        assert "closed before 1 shards (shard-000004.safetensors ...)" in caplog.text
        held_back.set()


def test_small_shards_variable_fields_and_folders_are_read_whole(
    stored: Manifest, object_server: ObjectServer, tmp_path: Path
) -> None:
    with ShardWriter(tmp_path / "bag", [Field("x", "int16", (2,), variable=True)], name="bag") as writer:
        writer.write({"x": [np.zeros((3, 2), np.int16)]})
        writer.close()
    for path in (tmp_path / "bag").iterdir():
        object_server.objects[f"bucket/bag/{path.name}"] = path.read_bytes()
    cache = ShardCache(tmp_path / "cache", 10**7)
    with ShardDataset("s3://bucket/bag", cache) as bag, ShardDataset(tmp_path / "set", cache) as folder:
        assert not EarlyRows.fits(bag)
        assert not EarlyRows.fits(folder)
    with opened(tmp_path / "cache", range_bytes=4 << 20) as dataset, Loader(dataset, 16) as loader:
        next(loader)
        until(lambda: fetched(tmp_path / "cache") == 13 or fetched(tmp_path / "cache") == 12)
    assert object_server.gets("shard-000003.safetensors") == 1
