"""Packed snapshots: what is kept reads as the snapshot, and objects that did not change are written once."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from phalanx.adapters.store import packing
from phalanx.adapters.store.packing import pack
from phalanx.bench.suites.worlds import world
from phalanx.model.codec import document, loads
from phalanx.model.ids import ReservationId
from phalanx.model.job_state import JobState
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import Snapshot


def promised() -> Snapshot:
    """A small fleet with running and waiting jobs, of which one has hosts set aside."""
    snapshot = world(4, 3)
    running = next(record for record in snapshot.jobs if record.placement is not None)
    waiting = next(record for record in snapshot.jobs if record.state is JobState.QUEUED)
    assert running.placement is not None
    plan = Reservation(
        id=ReservationId("p"), job=waiting.id, placement=running.placement, planned_start_s=2_000_000, created_s=5
    )
    return replace(snapshot, reservations=(plan,), store_version=7)


@pytest.mark.parametrize("snapshot", [promised(), world(2, 0), replace(world(1, 0), hosts=(), jobs=())])
def test_what_is_kept_reads_as_the_snapshot(snapshot: Snapshot) -> None:
    text = zlib.decompress(pack(snapshot))
    assert loads(text, Snapshot) == snapshot
    plain, kept = document(snapshot), json.loads(text)
    assert {name: kept[name] for name in plain} == plain
    assert all(kept[name] == [] for name in kept.keys() - plain.keys())


def test_only_what_changed_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first = promised()
    pack(first)
    written: list[object] = []
    encode = packing.encode
    monkeypatch.setattr(packing, "encode", lambda item: (written.append(item), encode(item))[1])
    host = replace(first.hosts[1], version=first.hosts[1].version + 1)
    second = replace(first, hosts=(first.hosts[0], host, *first.hosts[2:]), jobs=first.jobs[1:])
    assert loads(zlib.decompress(pack(second)), Snapshot) == second
    assert written == [host]
    # An equal object that is another one is not taken for it.
    copied = replace(first.jobs[1])
    third = replace(second, jobs=(copied, *second.jobs[1:]))
    assert loads(zlib.decompress(pack(third)), Snapshot) == third
    assert written == [host, copied]
