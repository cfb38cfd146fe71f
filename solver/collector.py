"""Python's collector of cycles, paused during a round: it makes many objects and hardly a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Nothing looks for cycles meanwhile; each look walks the whole fleet. What counts references goes on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
