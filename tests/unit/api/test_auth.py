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
