"""/v1/events: the log as a stream, resumable by number."""

import asyncio
import json

import pytest

from phalanx.api.eventlog import entries, newest_number
from phalanx.api.routes.events import event_stream


class Client:
    """A caller that goes away after so many looks."""

    def __init__(self, looks):
        self.looks = looks

    async def is_disconnected(self):
        self.looks -= 1
        return self.looks < 0


def frames(store, after, looks=3, subject=None, meanwhile=None):
    async def collect():
        out = []
        async for frame in event_stream(store, after, subject, Client(looks), poll_s=0.001):
            out.append(frame)
            if meanwhile and len(out) == 1:
                meanwhile()
        return out

    return asyncio.run(collect())


def parse(frame):
    return dict(line.split(": ", 1) for line in frame.strip().splitlines())


def test_entries_come_in_order_with_their_numbers(kit, store, clock):
    start = newest_number(store)
    store.submit(kit.job("j1"), now_s=clock.now_s())
    got = [
        parse(frame) for frame in frames(store, start, meanwhile=lambda: store.cancel("j1", now_s=clock.now_s()))[1:]
    ]
    assert [(entry["event"], int(entry["id"])) for entry in got] == [("submitted", start + 1), ("cancel", start + 2)]
    data = json.loads(got[0]["data"])
    assert (data["subject"], data["document"]["team"], data["number"]) == ("job j1", "vision", start + 1)


def test_a_client_resumes_where_it_was(kit, store, clock):
    start = newest_number(store)
    for name in ("j1", "j2", "j3"):
        store.submit(kit.job(name), now_s=clock.now_s())
    assert [parse(frame)["id"] for frame in frames(store, start + 2)[1:]] == [str(start + 3)]


def test_one_subject_only(kit, store, clock):
    for name in ("j1", "j2"):
        store.submit(kit.job(name), now_s=clock.now_s())
    assert len(frames(store, 0, subject="job j2")) == 2


def test_a_wrong_last_event_id(client):
    answer = client.get("/v1/events", headers={"Last-Event-ID": "yesterday"})
    assert answer.status_code == 400
    assert "yesterday" in answer.json()["detail"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 20])
def test_the_newest_number_is_found(kit, store, clock, count):
    start = len(list(entries(store)))
    for number in range(count):
        store.submit(kit.job(f"j{number}"), now_s=clock.now_s())
    assert newest_number(store) == start + count == len(list(entries(store)))
    assert newest_number(store, known=start) == start + count
