"""Every kind of bad input gets a problem document that names what is wrong, and nothing is lost or kept."""

import asyncio
import json

import pytest

from phalanx.api.body import JOB

GOOD = {"name": "resnet", "team": "vision", "gpus": 2, "cpu": 1, "memory": "1GiB", "command": ["x"]}


def check_problem(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert "Traceback" not in answer.text
    return problem


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (b"", 400, "empty"),
        (b'{"name": "x"', 400, "line 1"),
        (b'{"gpus": NaN}', 400, "NaN"),
        (b'{"gpus": 1e999}', 422, "gpus"),
        (b"\x00\x01\xff\xfe" * 100, 400, ""),
        (b"[]", 422, ""),
        (b'"job"', 422, ""),
        (b"null", 422, ""),
        (b"[" * 100_000, 400, "deep"),
        (b'{"gpus": 1, "gpus": 2}', 400, "twice"),
    ],
)
def test_broken_bodies(client, raw, status, words):
    answer = client.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"})
    assert words in check_problem(answer, status)["detail"]
    assert client.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"gpus": -1}, "gpus"),
        ({"gpus": "lots"}, "gpus"),
        ({"gpus": [8]}, "gpus"),
        ({"memory": "4h"}, "memory"),
        ({"memory": 4}, "memory"),
        ({"walltime": "4 parsecs"}, "walltime"),
        ({"walltim": "4h"}, "walltim"),
        ({"tier": 9}, "tier"),
        ({"workers": 0}, "workers"),
        ({"team": "no spaces allowed"}, "team"),
        ({"team": "ghosts"}, "team"),
        ({"command": 3}, "command"),
        ({"topology": {"required": "galaxy"}}, "topology.required"),
    ],
)
def test_wrong_fields_are_named(client, change, path):
    answer = client.post("/v1/jobs", json={**GOOD, **change})
    problem = check_problem(answer, 422)
    assert problem["errors"][0]["path"].startswith(path)
    assert problem["errors"][0]["expected"]
    assert client.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"kind": "phalanx.job", "version": 2}, "version"),
        ({"kind": "phalanx.policy", "version": 1}, "kind"),
        ({"kind": "phalanx.job", "version": 1, "id": "j", "team": "vision"}, "roles"),
        (
            {
                "kind": "phalanx.job",
                "version": 1,
                "id": "j",
                "team": "vision",
                "roles": [{"request": {"gpu_milli": -5}}],
            },
            "roles[0].request.gpu_milli",
        ),
        (
            {
                "kind": "phalanx.job",
                "version": 1,
                "id": "j",
                "team": "vision",
                "roles": [{"request": {"gpu_milli": 0.5}}],
            },
            "roles[0].request.gpu_milli",
        ),
    ],
)
def test_wrong_documents_are_named(client, document, path):
    problem = check_problem(client.post("/v1/jobs", json=document), 422)
    assert problem["errors"][0]["path"] == path


def test_ten_megabytes_are_refused_unread(client):
    body = json.dumps({**GOOD, "name": "x" * 10 * 2**20}).encode()
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert "2097152 bytes" in check_problem(answer, 413)["detail"]


def test_a_body_of_unknown_length_is_read_no_further_than_its_limit(app):
    taken = 0

    async def receive():
        nonlocal taken
        taken += 2**16
        return {"type": "http.request", "body": b" " * 2**16, "more_body": True}

    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/jobs",
        "raw_path": b"/v1/jobs",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8642),
    }
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert taken <= JOB + 2 * 2**16


@pytest.mark.parametrize("media", ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"])
def test_other_media_types(client, media):
    problem = check_problem(client.post("/v1/jobs", content=b"x=1", headers={"Content-Type": media}), 415)
    assert media in problem["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/v1/jobs/ghost", "/v1/hosts/ghost", "/v1/rounds/99", "/jobs/ghost", "/static/../app.py"]
)
def test_what_is_not_there(client, path):
    check_problem(client.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/v1/jobs"), ("PUT", "/v1/jobs/x"), ("POST", "/v1/summary"), ("GET", "/v1/solve")]
)
def test_methods(client, method, path):
    assert "GET /docs" in check_problem(client.request(method, path), 405)["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/rounds/zero",
        "/v1/rounds/0",
        "/v1/rounds?limit=-1",
        "/v1/rounds?before=x",
        "/v1/rounds/99999999999999999999999",
    ],
)
def test_wrong_parameters(client, path):
    problem = check_problem(client.get(path), 422)
    assert problem["errors"][0]["path"] in ("number", "limit", "before")


def test_a_fault_of_the_service_tells_an_incident_and_no_trace(client, store, monkeypatch, caplog):
    def broken(*_args, **_more):
        raise RuntimeError("secret inner state")

    monkeypatch.setattr(store, "jobs", broken)
    answer = client.get("/v1/jobs")
    problem = check_problem(answer, 500)
    assert "secret" not in answer.text
    assert problem["incident"] in caplog.text
    assert "secret inner state" in caplog.text


def test_too_long_a_key(client):
    check_problem(client.post("/v1/jobs", json=GOOD, headers={"Idempotency-Key": "k" * 300}), 422)
