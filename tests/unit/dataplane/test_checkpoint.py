import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from phalanx.dataplane import latest_checkpoint, load_checkpoint, save_checkpoint
from phalanx.dataplane.errors import CheckpointError


def state(step: int) -> dict[str, object]:
    return {"weights": torch.full((1000,), step), "loader": {"samples": step * 64, "seed": 0}, "step": step}


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name[5:15]) for path in folder.glob("step-*.pt"))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "new", state(7), 7)
    assert path is not None
    assert latest_checkpoint(tmp_path / "new") == path
    loaded = load_checkpoint(path)
    assert torch.equal(loaded.pop("weights"), torch.full((1000,), 7))
    assert loaded == {"loader": {"samples": 448, "seed": 0}, "step": 7}
    assert torch.load(path, weights_only=True)["step"] == 7


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    for step in (1, 5, 20, 100):
        save_checkpoint(tmp_path, state(step), step, keep=2)
    assert steps(tmp_path) == [20, 100]
    save_checkpoint(tmp_path, state(100), 100, keep=1)
    assert steps(tmp_path) == [100]


def test_going_on_from_an_older_one_leaves_later_ones_alone(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_checkpoint(tmp_path, state(step), step, keep=3)
    save_checkpoint(tmp_path, state(15), 15, keep=1)
    assert steps(tmp_path) == [15, 20, 30]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_corrupt_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    good, bad = (save_checkpoint(tmp_path, state(step), step) for step in (1, 2))
    assert good is not None
    assert bad is not None
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes({"flip": bytes(data), "cut": bytes(data[:-10]), "empty": b""}[damage])
    assert latest_checkpoint(tmp_path) == good
    with pytest.raises(CheckpointError, match="missing or corrupt"):
        load_checkpoint(bad)


def test_none_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "step-0000000003.pt").write_bytes(b"of another program")
    (tmp_path / ".step-0000000004.tmp").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "absent") is None
    save_checkpoint(tmp_path, state(1), 1)
    assert sorted(path.name[:15] for path in tmp_path.iterdir()) == ["step-0000000001", "step-0000000003"]


@pytest.mark.parametrize(("step", "keep"), [(-1, 1), (10**10, 1), (1, 0)])
def test_values_out_of_range_are_refused(tmp_path: Path, step: int, keep: int) -> None:
    with pytest.raises(CheckpointError, match="must be"):
        save_checkpoint(tmp_path, {}, step, keep=keep)


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_disk_that_fails_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    first = save_checkpoint(tmp_path, state(1), 1)
    working = os.write

    def full(descriptor: int, data: bytes = b"") -> int:
        if call == "write" and len(data) < 1000:  # room for the beginning only
            return working(descriptor, data)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError, match=r"step 2.*No space left"):
        save_checkpoint(tmp_path, state(2), 2)
    assert latest_checkpoint(tmp_path) == first
    assert len(list(tmp_path.iterdir())) == 1


def _save_for_ever(folder: Path) -> None:
    step = 0
    while True:
        step += 1
        save_checkpoint(folder, {"weights": torch.full((200_000,), step), "step": step}, step)


def test_a_killed_writer_leaves_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for round_ in range(3):
        process = context.Process(target=_save_for_ever, args=(tmp_path / str(round_),))
        process.start()
        while latest_checkpoint(tmp_path / str(round_)) is None:
            time.sleep(0.001)
        time.sleep(0.007 * round_)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        found = latest_checkpoint(tmp_path / str(round_))
        assert found is not None
        assert found.name.startswith(f"step-{steps(tmp_path / str(round_))[-1]:010d}")
        loaded = load_checkpoint(found)
        assert loaded["weights"].unique().tolist() == [loaded["step"]]
