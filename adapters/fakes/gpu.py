"""Cards that are what they are told to be."""

from __future__ import annotations

from collections.abc import Sequence

from ..ports import GpuReading


class FakeGpuLibrary:
    """GpuLibrary over readings that a test or a recording gives."""

    def __init__(self, readings: Sequence[GpuReading] = ()) -> None:
        self._readings = {reading.index: reading for reading in readings}

    def put(self, reading: GpuReading) -> None:
        """Sets what the card of that index shows from now on."""
        self._readings[reading.index] = reading

    def read(self) -> tuple[GpuReading, ...]:
        """All cards, by index."""
        return tuple(self._readings[index] for index in sorted(self._readings))
