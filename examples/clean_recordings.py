"""A cleaning function for `phalanx shard make`: band-pass, z-score, overlapping windows, noisy channels reported.

phalanx shard make /tmp/reach --from recordings/ --clean clean_recordings:clean \\
    --param rate_hz=1000 --param low_hz=5 --param high_hz=200 --split train=0.9,val=0.1

Run it in the folder of this file. The filter needs scipy (pip install scipy); recordings are (channels, times).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from phalanx.dataplane.offline import Drop, Recording, windows, zscore


def clean(
    recording: Recording,
    rate_hz: float = 1000.0,
    low_hz: float = 5.0,
    high_hz: float = 200.0,
    length: int = 128,
    step: int = 64,
    most_sigma: float = 20.0,
) -> Iterator[Mapping[str, Any] | Drop]:
    """Windows of `length` samples every `step`, filtered and normalised; windows with an artefact are left out."""
    data = np.asarray(recording.data[:], np.float64)
    if data.shape[-1] < length:
        yield Drop("recording shorter than a window")
        return
    flat = zscore(band_pass(data, rate_hz, low_hz, high_hz))
    cut = windows(flat, length, step)
    starts = np.arange(len(cut), dtype=np.int64) * step
    quiet = np.abs(cut).max(axis=(1, 2)) <= most_sigma
    if not quiet.all():
        yield Drop(f"artefact above {most_sigma:g} deviations", int((~quiet).sum()))
    yield {"data": np.ascontiguousarray(cut[quiet]), "start": starts[quiet]}


def band_pass(data: np.ndarray, rate_hz: float, low_hz: float, high_hz: float) -> np.ndarray:
    """A Butterworth band-pass of order 4, forwards and backwards, so that nothing is delayed."""
    try:
        from scipy.signal import butter, sosfiltfilt
    except ImportError:
        raise ImportError("the band-pass needs scipy: pip install scipy") from None
    return sosfiltfilt(butter(4, [low_hz, high_hz], "bandpass", fs=rate_hz, output="sos"), data, axis=-1)
