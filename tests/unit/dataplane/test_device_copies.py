"""Copies to a CUDA device, on a fake one that does them as late as it may: what is reused too soon is then seen."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from phalanx.dataplane import Loader, ShardDataset, StepTimer
from phalanx.dataplane.ring import Buffer

from .conftest import MakeDataset


class Stream:
    """Work in order, done when somebody waits for an event behind it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work: list[Callable[[], None]] = []
        self.done = 0

    def enqueue(self, action: Callable[[], None]) -> None:
        with self.lock:
            self.work.append(action)

    def run_to(self, place: int) -> None:
        with self.lock:
            for action in self.work[self.done : place]:
                action()
            self.done = max(self.done, place)

    def wait_event(self, event: "Event") -> None:
        event.synchronize()


class Device:
    """Stands for torch.cuda, with a current stream for each thread."""

    def __init__(self) -> None:
        self.main = Stream()
        self.current = threading.local()
        self.pinned: list[int] = []
        self.number = 0
        self.used: list[tuple[str, int | None]] = []
        self.recorded: list[Stream] = []
        self.synchronised = 0

    def stream_now(self, _device: Any = None) -> Stream:
        return getattr(self.current, "stream", self.main)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        self.current.stream = stream
        yield
        del self.current.stream

    def synchronize(self, _device: Any = None) -> None:
        self.synchronised += 1


class Event:
    """A place in a stream."""

    device: Device

    def __init__(self, *, blocking: bool = False) -> None:
        assert blocking, "threads of the loader must not spin while they wait"

    def record(self, stream: Stream | None = None) -> None:
        self.stream = stream or self.device.stream_now()
        self.place = len(self.stream.work)

    def synchronize(self) -> None:
        self.stream.run_to(self.place)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Device:
    device, empty, to = Device(), torch.empty, torch.Tensor.to

    def allocated(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        made = empty(*size, **options)
        if pin_memory:
            device.pinned.append(made.numel() * made.element_size())
        return made

    def moved(tensor: torch.Tensor, target: Any, non_blocking: bool = False) -> torch.Tensor:
        if getattr(target, "type", None) != "cuda":
            return to(tensor, target)
        assert non_blocking
        device.used.append(("copy", target.index))
        copy = torch.full_like(tensor, -1)
        device.stream_now().enqueue(lambda: copy.copy_(tensor))
        return copy

    monkeypatch.setattr(Event, "device", device, raising=False)
    monkeypatch.setattr(torch, "empty", allocated)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _tensor, stream: device.recorded.append(stream))

    def stream(where: torch.device) -> Stream:
        device.used.append(("stream", where.index))
        return Stream()

    def current_device() -> int:
        assert threading.current_thread() is threading.main_thread(), "each thread has a current device of its own"
        return device.number

    for name, fake in {
        "is_available": lambda: True,
        "Stream": stream,
        "current_device": current_device,
        "Event": Event,
        "stream": device.on,
        "current_stream": device.stream_now,
        "synchronize": device.synchronize,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return device


def ids(loader: Loader, count: int) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader.batches(count)]


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_on_a_device_are_whole_though_their_buffers_go_round(
    make_dataset: MakeDataset, tmp_path: Path, cuda: Device, threads: int
) -> None:
    make_dataset()
    with ShardDataset(tmp_path / "set") as dataset:
        with Loader(dataset, 8) as plain:
            expected = ids(plain, 40)
        assert cuda.pinned == []
        with Loader(dataset, 8, device="cuda", depth=1, threads=threads) as loader:
            kept = list(loader.batches(40))  # with a device, batches are the caller's own
            assert [batch["id"].tolist() for batch in kept] == expected
            assert all(batch["wave"][:, 0, 0].tolist() == batch["id"].tolist() for batch in kept)
    assert sum(cuda.pinned) == (1 + 1 + threads) * 8 * 84
    assert cuda.recorded
    assert set(cuda.recorded) == {cuda.main}, "memory of the copies is used by the caller's stream"


@pytest.mark.parametrize(("given", "number"), [("cuda", 3), ("cuda:1", 1)])
def test_copies_go_to_the_callers_device(
    make_dataset: MakeDataset, tmp_path: Path, cuda: Device, given: str, number: int
) -> None:
    make_dataset()
    with ShardDataset(tmp_path / "set") as dataset, Loader(dataset, 8, device=given) as loader:
        cuda.number = 3  # as torch.cuda.set_device does
        ids(loader, 3)
    assert set(cuda.used) == {("stream", number), ("copy", number)}


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_batches_are_on_the_device_than_there_are_buffers(
    make_dataset: MakeDataset, tmp_path: Path, cuda: Device, threads: int
) -> None:
    make_dataset()
    with ShardDataset(tmp_path / "set") as dataset, Loader(dataset, 8, device="cuda", threads=threads) as loader:
        ids(loader, 10)
        time.sleep(0.2)  # nobody takes any: they must stop
        feeder = loader._feeder
        assert feeder is not None
        assert sum(job.ready.qsize() for job in feeder._given) < 2 + 1 + threads


def test_a_pinned_buffer_waits_for_the_callers_own_copies(
    make_dataset: MakeDataset, tmp_path: Path, cuda: Device
) -> None:
    make_dataset()
    with ShardDataset(tmp_path / "set") as dataset:
        with Loader(dataset, 8) as plain:
            expected = ids(plain, 30)
        with Loader(dataset, 8, pin_memory=True, depth=1) as loader:
            copies = [batch["id"].to(torch.device("cuda"), non_blocking=True) for batch in loader.batches(30)]
        cuda.main.run_to(len(cuda.main.work))
        assert [copy.tolist() for copy in copies] == expected


def test_types_on_the_way_are_pinned_too(cuda: Device) -> None:
    from phalanx.dataplane import Field

    Buffer((Field("x", "float32", (4,)),), 2, {"x": torch.bfloat16}, pinned=True)
    assert sorted(cuda.pinned) == [2 * 4 * 2, 2 * 4 * 4]


def test_a_step_ends_when_the_device_is_done(cuda: Device) -> None:
    timer = StepTimer("cuda")
    for _ in timer.over(range(3)):
        with timer.checkpoint():
            pass
    assert cuda.synchronised == 6, "once before each mark, once before the end of each step"
