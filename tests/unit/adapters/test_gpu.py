"""The GPU library over NVML, with a recorded NVML in its place, and its fake."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from phalanx.adapters.fakes.gpu import FakeGpuLibrary
from phalanx.adapters.gpu import NvmlLibrary
from phalanx.adapters.ports import GpuReading


class NVMLError(Exception):
    pass


def recorded(cards: int, fallen: tuple[int, ...] = (), driver: bool = True) -> SimpleNamespace:
    """An NVML with so many cards, some of which have fallen off the bus."""

    def start() -> None:
        if not driver:
            raise NVMLError("driver not loaded")

    def handle(index: int) -> int:
        if index in fallen:
            raise NVMLError("GPU is lost")
        return index

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=start,
        nvmlDeviceGetCount=lambda: cards,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda _handle: b"NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(total=150_754_820_096, used=4 * 2**20),
        nvmlDeviceGetComputeRunningProcesses=lambda index: [SimpleNamespace(pid=p) for p in (90 + index, 7)],
    )


def test_cards_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", recorded(3, fallen=(1,)))
    assert NvmlLibrary().read() == (
        GpuReading(index=0, name="NVIDIA H200", memory_mib=143_771, memory_used_mib=4, pids=(7, 90)),
        GpuReading(index=2, name="NVIDIA H200", memory_mib=143_771, memory_used_mib=4, pids=(7, 92)),
    )


@pytest.mark.parametrize("module", [None, recorded(8, driver=False)], ids=["no package", "no driver"])
def test_a_machine_without_nvml_has_no_cards(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert NvmlLibrary().read() == ()


def test_the_fake_shows_what_it_is_told() -> None:
    card = GpuReading(index=1, name="T4", memory_mib=15_360, memory_used_mib=0)
    library = FakeGpuLibrary()
    assert library.read() == ()
    library.put(card)
    assert library.read() == (card,)
