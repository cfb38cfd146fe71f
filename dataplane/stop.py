"""Knowing in the training loop that the job has been asked to stop."""

import os
import signal
import threading
import time
from types import FrameType

GRACE_VARIABLE = "PHALANX_GRACE_S"

_asked_at_s: list[float] = []
_watching: list[int] = []


def stop_requested() -> bool:
    """Whether SIGTERM has come. The first call, which must be made in the main thread, starts watching for it.

    From then on SIGTERM no longer ends the process: the loop is expected to save and leave. A second SIGTERM changes
    nothing.
    """
    if not _watching and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _note)
        _watching.append(os.getpid())
    if not _watching:
        raise RuntimeError("call stop_requested() once in the main thread before other threads use it")
    return bool(_asked_at_s)


def grace_left_s() -> float | None:
    """Seconds until the job will be killed, >= 0; None if no stop was requested or PHALANX_GRACE_S is not set."""
    grace = os.environ.get(GRACE_VARIABLE)
    if grace is None or not _asked_at_s:
        return None
    return max(0.0, float(grace) - (time.monotonic() - _asked_at_s[0]))


def agree_to_stop(group: object = None) -> bool:
    """Whether any rank has been asked to stop: the same answer on every rank, so that all leave after the same step.

    Every rank must call it, once a step. Needs an initialised process group (a CPU one, or pass such as `group`);
    without torch.distributed it is `stop_requested()`.
    """
    import torch
    import torch.distributed as distributed

    asked = stop_requested()
    if not (distributed.is_available() and distributed.is_initialized()):
        return asked
    flag = torch.tensor([int(asked)])
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX, group=group)
    return bool(flag.item())


def _note(_signal: int, _frame: FrameType | None) -> None:
    if not _asked_at_s:
        _asked_at_s.append(time.monotonic())
