"""Between rows and domain objects.

Documents are read through a cache keyed by their own text, so that a row which did not change is parsed once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from ...model.codec import decode, encode, fields_of, loads
from ...model.decision import Decision
from ...model.host import Host, HostState
from ...model.intent import Intent
from ...model.job import Job
from ...model.job_state import JobState
from ...model.reservation import Reservation
from ...model.snapshot import JobRecord, Snapshot
from ...model.team import Team
from ..ports import RoundRecord, StageTime
from .books import AttemptRef, HostRow, IntentRow, TeamRow
from .changes import to_text

Row = Mapping[str, Any]
T = TypeVar("T")

_STANDING = {
    name: hint
    for name, (hint, _) in fields_of(JobRecord).items()
    if name not in ("job", "state", "submitted_s", "version")
}


def job_values(record: JobRecord) -> dict[str, Any]:
    """The columns of a job's row, its number apart."""
    plain = encode(record)
    return {
        "id": record.id,
        "team": record.job.team,
        "state": record.state.value,
        "submitted_s": record.submitted_s,
        "version": record.version,
        "document": to_text(record.job),
        "standing": to_text({name: plain[name] for name in _STANDING if name in plain}),
    }


def job_record(row: Row) -> JobRecord:
    """The record of a job's row."""
    return _record(row["document"], row["standing"], row["state"], row["submitted_s"], row["version"])


@lru_cache(maxsize=20_000)
def _record(document: str, standing: str, state: str, submitted_s: int, version: int) -> JobRecord:
    """One object as long as the row stays as it is."""
    changes = {name: decode(value, _STANDING[name]) for name, value in json.loads(standing).items()}
    return JobRecord(
        job=cached(document, Job), state=JobState(state), submitted_s=submitted_s, version=version, **changes
    )


def host_values(row: HostRow) -> dict[str, Any]:
    """The columns of a host's row."""
    return {
        "id": row.host.id,
        "site": row.host.path.site,
        "state": row.host.state.value,
        "version": row.host.version,
        "document": to_text(replace(row.host, version=0, state=HostState.READY)),
        "ordered": row.ordered.value,
        "ordered_cause": row.ordered_cause,
        "reported_s": row.reported_s,
    }


def host_row(row: Row) -> HostRow:
    """The host of a row."""
    return HostRow(
        host=_host(row["document"], row["version"], row["state"]),
        ordered=HostState(row["ordered"]),
        ordered_cause=row["ordered_cause"],
        reported_s=row["reported_s"],
    )


@lru_cache(maxsize=20_000)
def _host(document: str, version: int, state: str) -> Host:
    """One object as long as the row stays as it is."""
    return replace(cached(document, Host), version=version, state=HostState(state))


def team_row(row: Row) -> TeamRow:
    """The team of a row."""
    return TeamRow(team=cached(row["document"], Team), usage_at_s=row["usage_at_s"])


def intent_values(row: IntentRow) -> dict[str, Any]:
    """The columns of an intent's row."""
    intent = row.intent
    return {
        "job": intent.job.id,
        "attempt": intent.attempt,
        "site": intent.site,
        "created_s": intent.created_s,
        "document": to_text(intent),
        "after": to_text([encode(ref) for ref in row.after]),
        "start_by_s": row.start_by_s,
    }


def intent_row(row: Row) -> IntentRow:
    """The intent of a row."""
    after = tuple(AttemptRef(**ref) for ref in json.loads(row["after"]))
    return IntentRow(intent=cached(row["document"], Intent), after=after, start_by_s=row["start_by_s"])


def reservation_values(promise: Reservation) -> dict[str, Any]:
    """The columns of a reservation's row."""
    document = to_text(replace(promise, version=0))
    return {"id": promise.id, "job": promise.job, "version": promise.version, "document": document}


def reservation(row: Row) -> Reservation:
    """The reservation of a row."""
    return replace(cached(row["document"], Reservation), version=row["version"])


def round_values(record: RoundRecord, packed: bytes | None) -> dict[str, Any]:
    """The columns of a round's row; `packed` is its snapshot."""
    return {
        "number": record.number,
        "at_s": record.at_s,
        "outcome": record.outcome,
        "decision": to_text(record.decision),
        "times": to_text([encode(time) for time in record.times]),
        "violations": to_text(list(record.violations)),
        "snapshot": packed,
    }


def round_record(row: Row) -> RoundRecord:
    """The round of a row; without its snapshot where the row was read without it."""
    packed = row.get("snapshot")
    return RoundRecord(
        number=row["number"],
        at_s=row["at_s"],
        outcome=row["outcome"],
        decision=decode(json.loads(row["decision"]), Decision),
        snapshot=None if packed is None else loads(zlib.decompress(packed), Snapshot),
        times=tuple(StageTime(**time) for time in json.loads(row["times"])),
        violations=tuple(json.loads(row["violations"])),
    )


def cached(text: str, cls: type[T]) -> T:
    """The object of that document."""
    return cast("T", _cached(text, cast("Hashable", cls)))


@lru_cache(maxsize=50_000)
def _cached(text: str, cls: Hashable) -> Any:
    return decode(json.loads(text), cls)
