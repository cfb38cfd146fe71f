"""The offline job: raw recordings through a cleaning function into shards, once, in parallel, resumable.

Names are imported on first use: a cleaning function that imports `Drop` from here needs nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inputs import find_inputs as find_inputs
    from .job import Job as Job
    from .job import Report as Report
    from .recordings import Recording as Recording
    from .run import make as make
    from .splits import Splits as Splits
    from .steps import Drop as Drop
    from .steps import Windowing as Windowing
    from .steps import windows as windows
    from .steps import zscore as zscore

_HOMES = {
    "Drop": "steps",
    "Job": "job",
    "Recording": "recordings",
    "Report": "job",
    "Splits": "splits",
    "Windowing": "steps",
    "find_inputs": "inputs",
    "make": "run",
    "windows": "steps",
    "zscore": "steps",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
