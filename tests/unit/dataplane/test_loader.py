import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phalanx.dataplane import Loader, Order, ShardCache, ShardDataset
from phalanx.dataplane.errors import CorruptShard, DataplaneError, LoaderError

from .conftest import MakeDataset


@pytest.fixture
def dataset(make_dataset: MakeDataset, tmp_path: Path) -> Iterator[ShardDataset]:
    make_dataset(count=100, per_shard=8)
    with ShardDataset(tmp_path / "set") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    # What an earlier test left to the collector may still be on its way out.
    before = set(threading.enumerate())
    yield
    gc.collect()
    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name.startswith("phalanx")] == []


def take(loader: Loader, count: int) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader.batches(count)]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def stream(dataset: ShardDataset, count: int, **options: Any) -> list[list[int]]:
    with Loader(dataset, 12, **options) as loader:
        return take(loader, count)


def test_a_batch_is_a_dict_of_tensors_with_the_samples_of_the_order(dataset: ShardDataset) -> None:
    order = Order(dataset.shard_rows, seed=4)
    with Loader(dataset, 12, rank=1, world_size=3, seed=4) as loader:
        for step, batch in enumerate(loader.batches(20)):
            ids = order.rank_ids(12 * step, 12, 1, 3)
            assert batch["id"].tolist() == ids.tolist()
            assert batch["wave"].dtype == torch.int16
            assert torch.equal(batch["wave"], torch.tensor(ids)[:, None, None].expand(4, 4, 8).short())
            assert batch["target"][:, 1].tolist() == (-ids).tolist()


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("read_ahead", [True, False])
def test_neither_depth_nor_threads_nor_read_ahead_change_the_stream(
    dataset: ShardDataset, depth: int, threads: int, read_ahead: bool
) -> None:
    expected = [Order(dataset.shard_rows, 1).rank_ids(12 * step, 12, 0, 1).tolist() for step in range(30)]
    assert stream(dataset, 30, seed=1, depth=depth, threads=threads, read_ahead=read_ahead) == expected


def test_without_shuffle_samples_come_as_written(dataset: ShardDataset) -> None:
    assert flat(stream(dataset, 9, shuffle=False)) == [g % 100 for g in range(108)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_stays_valid_until_the_next_is_asked_for(dataset: ShardDataset, threads: int) -> None:
    with Loader(dataset, 10, depth=1, threads=threads, shuffle=False) as loader:
        batch = next(loader)
        memory = {batch["id"].data_ptr()}
        for step in range(1, 20):
            assert batch["id"].tolist() == [g % 100 for g in range(10 * step - 10, 10 * step)]
            batch = next(loader)
            memory.add(batch["id"].data_ptr())
        assert len(memory) <= 2 + threads


def test_who_computes_at_times_only_gets_the_same_stream(
    dataset: ShardDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.dataplane.loader.few_cores", lambda: True)
    with Loader(dataset, 10, shuffle=False) as loader:
        for step in range(60):
            batch = next(loader)
            assert batch["id"].tolist() == [g % 100 for g in range(10 * step, 10 * step + 10)]
            time.sleep(0.01 if step // 10 % 2 else 0)
            assert batch["id"].tolist() == [g % 100 for g in range(10 * step, 10 * step + 10)], "overwritten"


def test_an_interrupted_batch_comes_again(dataset: ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.dataplane.loader.few_cores", lambda: True)
    monkeypatch.setattr("phalanx.dataplane.feeder._TIMES", 0)  # whatever it computes, it counts as only waiting
    expected = stream(dataset, 20)
    with Loader(dataset, 12) as loader:
        assert [next(loader)["id"].tolist() for _ in range(10)] == expected[:10]
        with monkeypatch.context() as interrupting:

            def interrupted(*_: object) -> None:
                raise KeyboardInterrupt

            interrupting.setattr(type(dataset.shards), "gather", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(loader)
        done = loader.samples // 12
        assert [next(loader)["id"].tolist() for _ in range(20 - done)] == expected[done:]


def test_resume_at_every_step_and_world_size_goes_on_without_a_gap(dataset: ShardDataset) -> None:
    expected = [sorted(ids) for ids in stream(dataset, 20, seed=2)]
    for step in range(1, 18):
        with Loader(dataset, 12, 0, 1, seed=2, depth=1 + step % 3) as first:
            take(first, step)
            state = first.state_dict()
        world_size = (1, 2, 3, 4, 6)[step % 5]
        pieces = []
        for rank in range(world_size):
            with Loader(dataset, 12, rank, world_size, seed=2) as loader:
                loader.load_state_dict(state)
                assert loader.state_dict() == state
                pieces.append(take(loader, 20 - step))
        union = [sorted(flat(parts)) for parts in zip(*pieces, strict=True)]
        assert union == expected[step:]


def test_resume_with_another_global_batch(dataset: ShardDataset) -> None:
    with Loader(dataset, 12, seed=2) as loader:
        seen = flat(take(loader, 3))
        state = loader.state_dict()
    with Loader(dataset, 16, seed=2) as loader:
        loader.load_state_dict(state)
        seen += flat(take(loader, 4))
    assert loader.samples == 100
    assert loader.epoch == 1
    assert sorted(seen) == list(range(100))


def test_a_state_can_be_loaded_again_into_a_running_loader(dataset: ShardDataset) -> None:
    with Loader(dataset, 12, seed=2) as loader:
        start = loader.state_dict()
        first = take(loader, 5)
        loader.load_state_dict(start)
        assert take(loader, 5) == first


def test_only_batches_handed_out_count(dataset: ShardDataset) -> None:
    with Loader(dataset, 50, depth=4) as loader:
        assert (loader.samples, loader.epoch) == (0, 0)
        next(loader)
        assert (loader.samples, loader.epoch) == (50, 0)
        next(loader)
        assert (loader.samples, loader.epoch) == (100, 1)


@pytest.mark.parametrize(
    ("options", "key"),
    [({"seed": 1}, "seed"), ({"lanes": 3}, "lanes"), ({"shards_per_block": 2}, "shards_per_block"), ({}, "dataset")],
)
def test_a_state_of_another_order_or_data_set_is_refused(
    dataset: ShardDataset, make_dataset: MakeDataset, tmp_path: Path, options: dict[str, int], key: str
) -> None:
    make_dataset("other", count=101)
    with ShardDataset(tmp_path / "other") as other, Loader(other if not options else dataset, 12, **options) as loader:
        state = Loader(dataset, 12).state_dict()
        with pytest.raises(LoaderError, match=f"does not fit: {key}"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("samples", [-1, None, 1.5])
def test_a_broken_state_is_refused(dataset: ShardDataset, samples: object) -> None:
    loader = Loader(dataset, 12)
    with pytest.raises(LoaderError, match="samples"):
        loader.load_state_dict({**loader.state_dict(), "samples": samples})


def test_a_batch_larger_than_the_data_set_spans_epochs(dataset: ShardDataset) -> None:
    with Loader(dataset, 250) as loader:
        counts = np.bincount(flat(take(loader, 2)), minlength=100)
    assert counts.tolist() == [5] * 100


def test_an_error_in_the_background_reaches_the_batch_that_needs_it(dataset: ShardDataset, tmp_path: Path) -> None:
    shard = tmp_path / "set" / "shard-000003.safetensors"
    shard.write_bytes(b"x" * shard.stat().st_size)
    with Loader(dataset, 12, shuffle=False) as loader:
        assert take(loader, 2) == [list(range(12)), list(range(12, 24))]
        for _ in range(2):
            with pytest.raises(CorruptShard, match="shard-000003"):
                next(loader)
        assert loader.samples == 24


def test_a_closed_loader_says_so(dataset: ShardDataset) -> None:
    loader = Loader(dataset, 12)
    next(loader)
    loader.close()
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(loader)


def test_a_forgotten_loader_ends_its_threads(dataset: ShardDataset) -> None:
    next(Loader(dataset, 12))


def test_rank_and_world_size_from_the_environment(dataset: ShardDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Loader.from_env(dataset, 12, seed=3) as loader:
        assert take(loader, 4) == stream(dataset, 4, rank=1, world_size=2, seed=3)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(LoaderError, match="RANK and WORLD_SIZE must be integers"):
        Loader.from_env(dataset, 12)


def test_values_out_of_range_are_refused(dataset: ShardDataset) -> None:
    with pytest.raises(LoaderError, match="multiple of 5"):
        Loader(dataset, 12, 0, 5)
    with pytest.raises(LoaderError, match="depth 0"):
        Loader(dataset, 12, depth=0)


def test_a_cpu_device_and_pinning_without_cuda_change_nothing(dataset: ShardDataset) -> None:
    assert stream(dataset, 3, device="cpu", pin_memory=torch.cuda.is_available()) == stream(dataset, 3)


@pytest.mark.parametrize("shards_in_budget", [2, 20])
def test_through_a_cache_even_a_small_one(
    make_dataset: MakeDataset, tmp_path: Path, shards_in_budget: int, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = make_dataset(count=100, per_shard=8)
    with ShardDataset(tmp_path / "set") as plain:
        expected = stream(plain, 30, seed=5)
    cache = ShardCache(tmp_path / "cache", shards_in_budget * manifest.shards[0].size_bytes)
    with ShardDataset(tmp_path / "set", cache) as cached:
        assert stream(cached, 30, seed=5) == expected
    assert cache.used_bytes() <= cache.budget_bytes
    assert ("no read-ahead" in caplog.text) == (shards_in_budget == 2)


def test_the_interpreter_exits_with_a_loader_still_open(dataset: ShardDataset, tmp_path: Path) -> None:
    script = (
        "import sys; from phalanx.dataplane import Loader, ShardDataset\n"
        "loader = Loader(ShardDataset(sys.argv[1]), 12, depth=4); print(next(loader)['id'].shape[0])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, tmp_path / "set"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "12", "")


def test_errors_have_one_root() -> None:
    assert issubclass(LoaderError, DataplaneError)
    assert issubclass(CorruptShard, DataplaneError)
