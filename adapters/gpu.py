"""The cards of this machine through NVML, where there are any."""

from __future__ import annotations

from typing import Any

from .ports import GpuReading

_MIB = 2**20


class NvmlLibrary:
    """GpuLibrary over NVML. A machine without the driver or without the `nvidia-ml-py` package has no cards."""

    def __init__(self) -> None:
        self._nvml = _started()

    def read(self) -> tuple[GpuReading, ...]:
        """All cards of this host, by index; a card that has fallen off the bus is left out."""
        if self._nvml is None:
            return ()
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError:
            return ()
        readings = (self._card(index) for index in range(count))
        return tuple(reading for reading in readings if reading is not None)

    def _card(self, index: int) -> GpuReading | None:
        nvml: Any = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(handle)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:
            return None
        return GpuReading(
            index=index,
            name=name.decode() if isinstance(name, bytes) else str(name),
            memory_mib=int(memory.total) // _MIB,
            memory_used_mib=int(memory.used) // _MIB,
            pids=tuple(sorted(int(process.pid) for process in running)),
        )


def _started() -> Any | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
