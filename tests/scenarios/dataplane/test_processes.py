"""Processes that die, stop, or come in numbers (D1, D2, D22, D23)."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phalanx.dataplane import Field, Loader, ShardCache, ShardDataset, ShardWriter, collate
from phalanx.dataplane.cache_room import try_exclusive
from phalanx.dataplane.errors import CacheError
from phalanx.dataplane.source import FolderSource
from phalanx.dataplane.stall import note_holder

Make = Callable[..., Any]
fork = multiprocessing.get_context("fork")
SHARD = 4096 + 8 * 84


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def read_for_ever(folder: Path, cache: Path, first: Any) -> None:
    with ShardDataset(folder, ShardCache(cache, 10**6)) as dataset, Loader(dataset, 12, depth=4) as loader:
        for batch in loader:
            assert torch.equal(batch["target"][:, 0], batch["id"].float())
            first.set()


def test_d1_a_loader_killed_twenty_times_starts_again_and_leaves_nothing(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=100)
    before = shared_memory()
    for turn in range(20):
        first = fork.Event()
        process = fork.Process(target=read_for_ever, args=(tmp_path / "set", tmp_path / "cache", first))
        process.start()
        if turn % 2:  # half of them in the middle of fetching
            assert first.wait(60)
        time.sleep(0.002 * (turn % 7))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    cache = ShardCache(tmp_path / "cache", 10**6)
    with ShardDataset(tmp_path / "set", cache) as dataset:
        assert dataset.gather(np.arange(100))["id"].tolist() == list(range(100))
    assert list((tmp_path / "cache" / "objects").glob("*.part")) == []
    assert shared_memory() <= before


def read_all(folder: Path, cache: Path, uid: int, shared: bool, answer: Any) -> None:
    try:
        if uid:
            os.setgid(uid)
            os.setuid(uid)
        with ShardDataset(folder, ShardCache(cache, 10**6, shared=shared)) as dataset:
            answer.put(dataset.gather(np.arange(len(dataset)))["id"].tolist())
    except CacheError as error:
        answer.put(str(error))


def test_d2_eight_processes_open_the_same_data_at_once(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=96)
    answer = fork.SimpleQueue()
    arguments = (tmp_path / "set", tmp_path / "cache", 0, False, answer)
    processes = [fork.Process(target=read_all, args=arguments) for _ in range(8)]
    for process in processes:
        process.start()
    assert [answer.get() for _ in processes] == [list(range(96))] * 8
    for process in processes:
        process.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
@pytest.mark.parametrize("shared", [True, False])
def test_d2_two_users_of_one_host(shared: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o777)
        with ShardWriter(root / "set", [Field("id", "int64", ())], name="set", shard_bytes=80) as writer:
            writer.write({"id": np.arange(100)})
        answers = []
        for uid in (65_533, 65_534):
            answer = fork.SimpleQueue()
            process = fork.Process(target=read_all, args=(root / "set", root / "cache", uid, shared, answer))
            process.start()
            answers.append(answer.get())
            process.join()
        assert answers[0] == list(range(100))
        if shared:
            assert answers[1] == answers[0]
        else:
            assert re.search("may not be written by user 65534.*shared=True", answers[1])


def read_plain(folder: Path, answer: Any) -> None:
    os.setuid(65_534)
    with ShardDataset(folder) as dataset, Loader(dataset, 10, tail="drop") as loader:
        answer.put(sorted(sample for batch in loader for sample in batch["id"].tolist()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_d2_a_read_only_shared_folder_is_read_by_a_user_who_may_write_nowhere() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        with ShardWriter(root / "set", [Field("id", "int64", ())], name="set", shard_bytes=80) as writer:
            writer.write({"id": np.arange(100)})
        (root / "set").chmod(0o555)
        root.chmod(0o555)
        answer = fork.SimpleQueue()
        process = fork.Process(target=read_plain, args=(root / "set", answer))
        process.start()
        assert answer.get() == list(range(100))
        process.join()
        root.chmod(0o755)


def test_d22_batches_larger_than_64_mib_need_no_shared_memory(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, [Field("x", "uint8", (1 << 20,))], name="big") as writer:
        for number in range(20):
            writer.write({"x": np.full((2, 1 << 20), number, np.uint8)})
    before = shared_memory()
    with ShardDataset(tmp_path) as dataset, Loader(dataset, 80, depth=1, shuffle=False) as loader:
        batch = next(loader)
        assert batch["x"].nbytes == 80 << 20
        assert batch["x"][:, 0].tolist() == [number // 2 for number in range(40)] * 2
        assert shared_memory() <= before


def test_d23_a_killed_worker_of_torchs_dataloader_is_named(make_dataset: Make, tmp_path: Path) -> None:
    make_dataset(count=100)
    with ShardDataset(tmp_path / "set") as dataset:
        loader = torch.utils.data.DataLoader(dataset, batch_size=2, num_workers=2, collate_fn=collate, timeout=10)
        batches = iter(loader)
        next(batches)
        victim = batches._workers[1].pid  # type: ignore[attr-defined]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=f"worker.*{victim}"):
            list(batches)


HOLDER = """
import sys, time
from phalanx.dataplane.cache_room import Room, try_exclusive
from phalanx.dataplane.stall import note_holder
from pathlib import Path
room = Room(Path(sys.argv[1]), 10**6, 60.0, shared=False)
lock = room.open_lock(sys.argv[2])
assert try_exclusive(lock)
note_holder(lock)
print("held", flush=True)
time.sleep(600)
"""


def wait_for(root: Path, shard: Any, source: FolderSource) -> None:
    with ShardCache(root, 10**6, stall_s=0.5).pin(shard, source):
        pass


@pytest.mark.parametrize("what", ["shard", "evict"])
def test_d23_who_waits_for_a_stopped_process_is_told_which(make_dataset: Make, tmp_path: Path, what: str) -> None:
    shard = make_dataset(count=96).shards[3]
    name = shard.xxh3_128 if what == "shard" else "evict"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "cache"), name], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        with pytest.raises(CacheError, match=rf"process {holder.pid} of host \S+ \(stopped by a signal\)"):
            wait_for(tmp_path / "cache", shard, FolderSource(tmp_path / "set"))
    finally:
        holder.kill()
        holder.communicate()
    with ShardDataset(tmp_path / "set", ShardCache(tmp_path / "cache", 10**6, stall_s=5.0)) as dataset:
        assert dataset.gather([24])["id"].tolist() == [24]


def test_d23_a_holder_that_works_is_waited_for(make_dataset: Make, tmp_path: Path) -> None:
    """The fetch takes much longer than the bound, but it goes on."""
    shard = make_dataset(count=96).shards[3]

    class Slow(FolderSource):
        def stream(self, file: str) -> Any:
            for piece in super().stream(file):
                for start in range(0, len(piece), 300):
                    time.sleep(0.1)
                    yield piece[start : start + 300]

    def fetch() -> None:
        with ShardCache(tmp_path / "cache", 10**6).pin(shard, Slow(tmp_path / "set")):
            pass

    other = fork.Process(target=fetch)
    other.start()
    cache = ShardCache(tmp_path / "cache", 10**6, stall_s=0.7)
    while not list((tmp_path / "cache" / "objects").glob("*.part")):
        time.sleep(0.005)
    with cache.pin(shard, FolderSource(tmp_path / "none")) as path:
        assert path.stat().st_size == SHARD
    other.join()
    assert other.exitcode == 0


def test_a_lock_that_was_given_up_waiting_for_does_not_stay_locked(make_dataset: Make, tmp_path: Path) -> None:
    shard = make_dataset(count=8).shards[0]
    cache = ShardCache(tmp_path / "cache", 10**6, stall_s=0.1)
    lock = cache._room.open_lock(shard.xxh3_128)
    assert try_exclusive(lock)
    note_holder(lock)
    with pytest.raises(CacheError, match=f"process {os.getpid()}"), cache.pin(shard, FolderSource(tmp_path / "set")):
        pass
    os.close(lock)
    with cache.pin(shard, FolderSource(tmp_path / "set")) as path:
        assert path.exists()
