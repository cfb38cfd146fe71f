"""The collector of cycles rests while a round is decided, and is as before afterwards, whatever happened."""

from __future__ import annotations

import gc

import pytest

from phalanx.solver.collector import paused_collector


def test_it_rests_inside_and_works_again_behind() -> None:
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), paused_collector():
        raise ValueError("broken")
    assert gc.isenabled()


def test_who_turned_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
