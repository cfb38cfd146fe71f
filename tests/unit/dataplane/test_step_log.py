"""Parts of a step, their log per rank, stragglers, the picture, callbacks for other loops, and the bfloat16 context."""

import json
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from phalanx.dataplane import (
    StepLog,
    StepTimer,
    bf16,
    lightning_callback,
    plot_steps,
    read_step_logs,
    stragglers,
    trainer_callback,
)
from phalanx.dataplane import stop as stopping
from phalanx.dataplane.bfloat import bf16_supported
from phalanx.dataplane.errors import DataplaneError
from phalanx.dataplane.step_timer import StepTime, summarise


class Clock:
    """A clock that the test moves by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_checkpoints_and_waits_for_peers_are_told_apart() -> None:
    clock = Clock()
    timer = StepTimer(clock=clock)
    for _ in timer.over(range(2)):
        clock.now += 2.0
        with timer.checkpoint():
            clock.now += 3.0
        clock.now += 1.0
        with timer.waiting():
            clock.now += 4.0
    steps = timer.drain()
    assert steps == [StepTime(0.0, 3.0, 3.0, 4.0)] * 2
    total = summarise(steps)
    assert (total.checkpoint_s, total.peers_s, total.total_s) == (6.0, 8.0, 20.0)
    assert total.compute_share == pytest.approx(0.3)


def test_what_is_marked_between_steps_is_no_batch_wait() -> None:
    clock = Clock()
    timer = StepTimer(clock=clock)
    for _ in range(2):
        clock.now += 1.0
        timer.arrived()
        clock.now += 2.0
        timer.finished()
        timer.finished()
        with timer.waiting():
            clock.now += 5.0
    assert timer.drain() == [StepTime(0.0, 2.0), StepTime(1.0, 2.0, 0.0, 5.0)]


def test_a_line_per_rank_and_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PHALANX_JOB": "j",
        "PHALANX_ATTEMPT": "3",
        "PHALANX_HOST": "n1",
        "RANK": "2",
        "WORLD_SIZE": "4",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PHALANX_REPORT_DIR", str(tmp_path / "reports"))
    clock = Clock()
    log = StepLog.from_env(every_s=10.0, first_step=100, clock=clock)
    assert log is not None
    timer = StepTimer(clock=clock, listener=log)
    for _ in timer.over(range(25)):
        clock.now += 1.0
    log.flush()
    log.flush()
    assert log.path.name == "rank-00002.jsonl"
    with log.path.open("a") as file:
        file.write('{"version": 99}\n{"half')
    lines = read_step_logs(tmp_path / "reports")
    assert [(line["step"], line["steps"]) for line in lines] == [(110, 10), (120, 10), (125, 5)]
    assert lines[0] == {
        "version": 1,
        "at_s": 10.0,
        "job": "j",
        "attempt": 3,
        "host": "n1",
        "rank": 2,
        "world_size": 4,
        "step": 110,
        "steps": 10,
        "wait_s": 0.0,
        "compute_s": 10.0,
        "checkpoint_s": 0.0,
        "peers_s": 0.0,
        "longest_s": 1.0,
    }
    monkeypatch.delenv("PHALANX_REPORT_DIR")
    assert StepLog.from_env() is None


def test_a_full_disk_does_not_stop_training(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file where a folder should be")
    log = StepLog(tmp_path / "reports", every_s=0.0)
    log.add(StepTime(1.0, 1.0))
    assert log.lost == 1


def test_a_straggler_is_the_one_that_is_waited_for() -> None:
    def line(rank: int, wait: float, compute: float, peers: float) -> dict[str, float]:
        return {"rank": rank, "steps": 10, "wait_s": wait, "compute_s": compute, "checkpoint_s": 0.0, "peers_s": peers}

    lines = [line(0, 1, 9, 5), line(1, 1, 9, 5), line(2, 6, 9, 0), line(3, 0, 10, 5)]
    assert stragglers(lines) == [2]
    assert stragglers(lines[:1]) == stragglers([]) == []


def test_the_picture_shows_shares(tmp_path: Path) -> None:
    drawn = plot_steps([StepTime(1.0, 3.0), StepTime(0.0, 3.0, 1.0)])
    assert "batch wait 12.5%" in drawn
    assert "compute 75.0%" in drawn
    assert drawn.count("<rect") == 1 + 4 + 4
    assert "0 steps" in plot_steps([])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """SIGTERM has not come, and does when something is appended."""
    asked: list[float] = []
    monkeypatch.setattr(stopping, "_asked_at_s", asked)
    before = signal.getsignal(signal.SIGTERM)
    yield asked  # type: ignore[misc]
    signal.signal(signal.SIGTERM, before)


def module(monkeypatch: pytest.MonkeyPatch, name: str, base: str) -> None:
    """Puts a package with one empty base class where the real one would be."""
    made = ModuleType(name)
    setattr(made, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, name, made)
    if "." in name:
        monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType(name.partition(".")[0]))


def test_lightning(monkeypatch: pytest.MonkeyPatch, asked: list[float]) -> None:
    module(monkeypatch, "lightning.pytorch", "Callback")
    clock = Clock()
    timer, trainer = StepTimer(clock=clock), SimpleNamespace(should_stop=False)
    callback = lightning_callback(timer)
    callback.on_train_start(trainer, None)
    for number in range(3):
        clock.now += 0.5
        callback.on_train_batch_start(trainer, None, None, number)
        clock.now += 1.0
        callback.on_train_batch_end(trainer, None, None, None, number)
    assert timer.drain() == [StepTime(0.0, 1.0), StepTime(0.5, 1.0), StepTime(0.5, 1.0)]
    assert not trainer.should_stop
    asked.append(0.0)
    callback.on_train_batch_end(trainer, None, None, None, 3)
    assert trainer.should_stop


def test_the_hugging_face_trainer(monkeypatch: pytest.MonkeyPatch, asked: list[float]) -> None:
    module(monkeypatch, "transformers", "TrainerCallback")
    timer = StepTimer()
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    callback = trainer_callback(timer)
    callback.on_train_begin(None, None, control)
    callback.on_step_begin(None, None, control)
    assert callback.on_step_end(None, None, control) is control
    assert len(timer.drain()) == 1
    assert not control.should_training_stop
    asked.append(0.0)
    callback.on_step_end(None, None, control)
    assert control.should_save
    assert control.should_training_stop


def test_callbacks_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    for make, package in ((lightning_callback, "lightning"), (trainer_callback, "transformers")):
        with pytest.raises(DataplaneError, match=f"pip install {package}"):
            make(StepTimer())


def test_products_are_computed_in_bfloat16() -> None:
    weights = torch.ones(4, 4)
    with bf16("cpu"):
        assert (weights @ weights).dtype == torch.bfloat16
    with bf16("cpu", enabled=False):
        assert (weights @ weights).dtype == torch.float32
    assert bf16_supported("cpu")
    assert bf16_supported("cuda") == (torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8)


def test_lines_are_plain_json(tmp_path: Path) -> None:
    log = StepLog(tmp_path, every_s=0.0)
    log.add(StepTime(0.25, 0.5))
    assert json.loads(log.path.read_text())["wait_s"] == 0.25
