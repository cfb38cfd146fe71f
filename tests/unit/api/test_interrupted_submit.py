"""R14 (ray #62766): a submission cut off at any point leaves no job or one whole job, and its retry makes exactly one."""

import asyncio
import json

import pytest

BODY = json.dumps({"name": "resnet", "team": "vision", "gpus": 1, "command": ["python", "t.py"]}).encode()
PIECES = [BODY[at : at + 20] for at in range(0, len(BODY), 20)]
SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/jobs",
    "raw_path": b"/v1/jobs",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"idempotency-key", b"k1")],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 8642),
}


def caller(pieces, ends_with):
    """The client's side of a connection: body pieces, then its end or a hang-up; every turn is an await point."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append(ends_with)

    async def receive():
        await asyncio.sleep(0)
        return messages.pop(0) if messages else await asyncio.Event().wait()

    sent = []

    async def send(message):
        await asyncio.sleep(0)
        sent.append(message)

    return receive, send, sent


END = {"type": "http.request", "body": b"", "more_body": False}


def check_one_whole_job(client, store):
    before = [record.id for record in store.jobs().jobs]
    assert len(before) <= 1
    again = client.post("/v1/jobs", content=BODY, headers={"Content-Type": "application/json", "Idempotency-Key": "k1"})
    assert again.status_code == (200 if before else 201)
    assert [record.id for record in store.jobs().jobs] == [again.json()["job"]]


@pytest.mark.parametrize("count", range(len(PIECES) + 1))
def test_a_client_that_hangs_up_in_its_body_leaves_nothing(app, client, store, count):
    receive, send, sent = caller(PIECES[:count], {"type": "http.disconnect"})
    asyncio.run(app(SCOPE, receive, send))
    assert sent == []
    assert store.jobs().jobs == ()
    check_one_whole_job(client, store)


@pytest.mark.parametrize("steps", [*range(0, 40, 2), 60, 100, 200])
def test_a_request_cancelled_at_any_await_point(app, client, store, steps):
    async def cut_off():
        receive, send, _ = caller(PIECES, END)
        task = asyncio.create_task(app(SCOPE, receive, send))
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # A thread that was under way writes its job whole, or not at all.
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(cut_off())
    check_one_whole_job(client, store)
