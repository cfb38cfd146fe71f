"""With a token set, everything but the health checks needs it, and browsers may only read."""

import base64
from dataclasses import replace

import pytest

from phalanx.api.app import create_app
from phalanx.model.policy import Policy

JOB = {"name": "x", "team": "vision", "gpus": 1, "command": ["x"]}


def basic(password):
    return {"Authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()}


@pytest.fixture
def guarded(settings, store, clock, brain, client_of):
    app = create_app(replace(settings, token="s3cret"), store, Policy(), clock, solve=brain.solve, admit=brain.admit)
    return client_of(app)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "s3cret"},
        {"Authorization": "Basic !!"},
        basic("wrong"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/events", "/", "/openapi.json", "/v1/nothing"])
def test_without_the_token(guarded, path, headers):
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"]


def test_with_the_token(guarded):
    headers = {"Authorization": "Bearer s3cret"}
    assert guarded.get("/v1/jobs", headers=headers).status_code == 200
    assert guarded.post("/v1/jobs", json=JOB, headers=headers).status_code == 201


def test_a_browser_reads_and_cannot_write(guarded):
    assert guarded.get("/", headers=basic("s3cret")).status_code == 200
    assert guarded.get("/v1/jobs", headers=basic("s3cret")).status_code == 200
    assert guarded.post("/v1/jobs", json=JOB, headers=basic("s3cret")).status_code == 401


def test_health_is_open(guarded):
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 503


def test_foreign_pages_may_not_write(client):
    foreign = {"Origin": "http://evil.example"}
    assert client.post("/v1/jobs", json=JOB, headers=foreign).status_code == 403
    assert client.post("/v1/hosts/n1/cordon", headers=foreign).status_code == 403
    assert client.post("/v1/hosts/n1/cordon", headers={"Origin": "null"}).status_code == 403
    assert client.post("/v1/hosts/n1/cordon", headers={"Origin": "http://localhost"}).status_code == 200


def test_a_body_without_a_type_is_not_taken(client):
    assert client.post("/v1/jobs", content=b'{"name": "x"}').status_code == 415


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:8642", 200), ("localhost", 200), ("[::1]:8642", 200), ("evil.example:8642", 403)]
)
def test_without_a_token_only_names_of_this_machine_answer(client, host, status):
    assert client.get("/v1/jobs", headers={"Host": host}).status_code == status


def test_with_a_token_any_name_answers(guarded):
    headers = {"Host": "phalanx.example", "Authorization": "Bearer s3cret"}
    assert guarded.get("/v1/jobs", headers=headers).status_code == 200
