"""The log's entries as sentences, for the story of a job and for /v1/events."""

from __future__ import annotations

import json
from typing import Any

from ..adapters.ports import StoredEvent
from . import schemas

_SENTENCES = {
    "submitted": "submitted",
    "cancel": "cancellation asked",
    "hold": "hold asked",
    "resume": "queued again",
    "priority": "priority changed",
    "forecast": "start forecast",
    "planned": "attempt {attempt} planned",
    "preempted": "attempt {attempt} must leave",
    "resized": "attempt {attempt} leaves for another size",
    "moved": "attempt {attempt} leaves for other hosts",
    "swept": "time decided",
    "dependency_ended": "a dependency had ended",
    "gang_reserved": "attempt {attempt}: resources of all workers reserved",
    "gang_running": "attempt {attempt}: every rank runs",
    "gang_exited": "attempt {attempt}: ranks ended",
    "gang_start_failed": "attempt {attempt} could not start",
    "gang_released": "attempt {attempt}: released, hosts clean",
    "gang_progress": "attempt {attempt}: checkpoint written",
}


def parsed(event: StoredEvent) -> dict[str, Any]:
    """The entry's document as plain values; empty where it is no JSON object."""
    try:
        data = json.loads(event.document or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def story_entry(event: StoredEvent) -> schemas.StoryEntry:
    """One line of a job's story."""
    data = parsed(event)
    attempt = data.get("attempt")
    attempt = attempt if isinstance(attempt, int) else None
    sentence = _SENTENCES.get(event.kind, event.kind.replace("_", " "))
    text = sentence.format(attempt="?" if attempt is None else attempt)
    details = [*_exits(data), _hosts(data), str(data.get("cause") or data.get("message") or "")]
    tail = "; ".join(detail for detail in details if detail)
    return schemas.StoryEntry(
        number=event.number,
        at_s=event.at_s,
        kind=event.kind,
        attempt=attempt,
        text=f"{text} ({tail})" if tail else text,
    )


def _exits(data: dict[str, Any]) -> list[str]:
    out = []
    exits = data.get("exits")
    if isinstance(exits, list) and exits:
        codes = sorted({entry.get("code") for entry in exits if isinstance(entry, dict)}, key=str)
        out.append(f"exit code{'s' if len(codes) > 1 else ''} {', '.join(map(str, codes))}")
    if data.get("lost_host"):
        out.append(f"host {data['lost_host']} lost")
    return out


def _hosts(data: dict[str, Any]) -> str:
    hosts = data.get("hosts")
    return f"on {', '.join(map(str, hosts))}" if isinstance(hosts, list) and hosts else ""


def event_view(event: StoredEvent) -> schemas.EventView:
    """The entry as /v1/events sends it."""
    return schemas.EventView(
        number=event.number, at_s=event.at_s, kind=event.kind, subject=event.subject, document=parsed(event)
    )
