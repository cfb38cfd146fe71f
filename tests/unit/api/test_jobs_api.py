"""/v1/jobs: submission with admission and idempotency, lists, one job, steering, logs."""

import pytest

from phalanx.api.round import run_round
from phalanx.model import codec
from phalanx.model.event import GangExited, GangReleased, GangReserved, GangRunning
from phalanx.model.intent import RankExit
from phalanx.model.policy import Policy

FRIENDLY = {"name": "resnet", "team": "vision", "gpus": 2, "cpu": 1, "memory": "1GiB", "command": ["python", "t.py"]}


@pytest.fixture
def schedule(store, clock, brain):
    """Runs one round with the stand-in solver."""

    def run():
        lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
        return run_round(store, Policy(), clock, lease.term, solver=brain.solve, verifier=lambda *_: ())

    return run


@pytest.fixture
def play(store, clock):
    """Tells the store what an executor would: the attempt runs, and ends with a code."""

    def run(job, attempt=1, code=0, until="released"):
        steps = [
            GangReserved(id=f"{job}/{attempt}/reserved", at_s=clock.now_s(), job=job, attempt=attempt),
            GangRunning(id=f"{job}/{attempt}/running", at_s=clock.now_s(), job=job, attempt=attempt),
        ]
        if until == "released":
            exits = (RankExit(rank=0, code=code),)
            steps.append(
                GangExited(id=f"{job}/{attempt}/exited", at_s=clock.now_s(), job=job, attempt=attempt, exits=exits)
            )
            steps.append(GangReleased(id=f"{job}/{attempt}/released", at_s=clock.now_s(), job=job, attempt=attempt))
        store.append(steps, now_s=clock.now_s())

    return run


def test_a_friendly_job_is_queued(client):
    answer = client.post("/v1/jobs", json=FRIENDLY)
    assert answer.status_code == 201
    body = answer.json()
    assert body["created"] is True
    assert body["job"].startswith("resnet-")
    assert answer.headers["location"] == f"/v1/jobs/{body['job']}"
    job = client.get(answer.headers["location"]).json()
    assert (job["state"], job["gpu_milli"], job["team"]) == ("queued", 2000, "vision")


def test_a_job_document_is_queued_unchanged(client, kit):
    job = kit.job("j1", gpus=2, workers=2)
    assert client.post("/v1/jobs", json=codec.document(job)).json()["job"] == "j1"
    assert codec.from_document(client.get("/v1/jobs/j1").json()["spec"], type(job)) == job


def test_the_same_key_names_the_same_job(client):
    first = client.post("/v1/jobs", json=FRIENDLY, headers={"Idempotency-Key": "k1"})
    again = client.post("/v1/jobs", json=FRIENDLY, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"job": first.json()["job"], "created": False, "warnings": []}
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1
    other = client.post("/v1/jobs", json={**FRIENDLY, "gpus": 1}, headers={"Idempotency-Key": "k1"})
    assert other.status_code == 422
    assert "another job" in other.json()["detail"]


def test_a_repeat_is_answered_although_the_job_would_now_be_refused(client, brain, kit):
    first = client.post("/v1/jobs", json=FRIENDLY, headers={"Idempotency-Key": "k1"})
    brain.answer = kit.Admission(accepted=False, reason=kit.rejection("x").reason)
    again = client.post("/v1/jobs", json=FRIENDLY, headers={"Idempotency-Key": "k1"})
    assert (again.status_code, again.json()["job"]) == (200, first.json()["job"])
    assert client.post("/v1/jobs", json=FRIENDLY, headers={"Idempotency-Key": "k2"}).status_code == 422


def test_a_name_in_use_is_refused(client, kit):
    document = codec.document(kit.job("j1"))
    assert client.post("/v1/jobs", json=document).status_code == 201
    assert client.post("/v1/jobs", json=document).status_code == 422


def test_an_impossible_job_is_refused_with_the_nearest_that_fits(client, brain, kit):
    brain.answer = kit.Admission(accepted=False, reason=kit.rejection("x").reason, nearest="2 workers of 2 GPUs")
    answer = client.post("/v1/jobs", json=FRIENDLY)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:phalanx:never-fits"
    assert problem["nearest"] == "2 workers of 2 GPUs"
    assert problem["detail"] == "It never fits. Nearest that fits: 2 workers of 2 GPUs"
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_warnings_come_with_the_answer(client, brain, kit):
    brain.answer = kit.Admission(warnings=("3 workers are no power of two",))
    assert client.post("/v1/jobs", json=FRIENDLY).json()["warnings"] == ["3 workers are no power of two"]


def test_an_unknown_dependency_is_named(client):
    answer = client.post("/v1/jobs", json={**FRIENDLY, "after": ["ghost"]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "after[0]"


def test_pages_and_filters(client, kit, store, clock):
    for number in range(5):
        store.submit(kit.job(f"j{number}", team="vision" if number % 2 else "speech"), now_s=clock.now_s())
    first = client.get("/v1/jobs?limit=2").json()
    second = client.get("/v1/jobs", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    third = client.get("/v1/jobs", params={"limit": 2, "cursor": second["next_cursor"]}).json()
    seen = [job["id"] for page in (first, second, third) for job in page["jobs"]]
    assert sorted(seen) == [f"j{number}" for number in range(5)]
    assert third["next_cursor"] is None
    assert {job["id"] for job in client.get("/v1/jobs?team=vision").json()["jobs"]} == {"j1", "j3"}
    client.post("/v1/jobs/j0/cancel")
    assert [job["id"] for job in client.get("/v1/jobs?state=cancelled&state=failed").json()["jobs"]] == ["j0"]
    assert client.get("/v1/jobs?state=gone").status_code == 422
    assert client.get("/v1/jobs?limit=0").status_code == 422
    assert client.get("/v1/jobs?cursor=rubbish").status_code == 422


def test_a_waiting_job_says_why(client, kit, store, clock, schedule):
    store.submit(kit.job("big", gpus=8), now_s=clock.now_s())
    schedule()
    job = client.get("/v1/jobs/big").json()
    assert job["state"] == "queued"
    assert job["reason"]["sentence"] == "8 GPUs are asked; none is free."
    assert job["reason"]["round"] == 1
    assert client.get("/v1/jobs").json()["jobs"][0]["reason"]["helps"] == ["n1 to become free"]


def test_the_life_of_a_job_is_told(client, kit, store, clock, schedule, play):
    store.submit(kit.job("j1", gpus=2), now_s=clock.now_s())
    clock.sleep(10)
    schedule()
    job = client.get("/v1/jobs/j1").json()
    assert (job["state"], job["attempt"], job["hosts"]) == ("planned", 1, ["n1"])
    assert job["placement"] == [{"rank": 0, "role": "worker", "index": 0, "host": "n1", "gpus": [0, 1]}]
    clock.sleep(5)
    play("j1")
    done = client.get("/v1/jobs/j1").json()
    assert (done["state"], done["exit_code"], done["waited_s"], done["placement"]) == ("succeeded", 0, 15, [])
    kinds = [entry["kind"] for entry in done["story"]]
    assert kinds == ["submitted", "planned", "gang_reserved", "gang_running", "gang_exited", "gang_released"]
    assert done["story"][4]["text"] == "attempt 1: ranks ended (exit code 0)"


def test_versions_guard_changes(client, kit, store, clock):
    store.submit(kit.job("j1"), now_s=clock.now_s())
    tag = client.get("/v1/jobs/j1").headers["etag"]
    held = client.post("/v1/jobs/j1/hold", headers={"If-Match": tag})
    assert (held.status_code, held.json()["state"]) == (200, "held")
    assert held.headers["etag"] != tag
    late = client.post("/v1/jobs/j1/cancel", headers={"If-Match": tag})
    assert late.status_code == 412
    assert client.get("/v1/jobs/j1").json()["state"] == "held"
    assert client.get("/v1/jobs/j1", headers={"If-None-Match": held.headers["etag"]}).status_code == 304


def test_steering(client, kit, store, clock):
    store.submit(kit.job("j1"), now_s=clock.now_s())
    assert client.post("/v1/jobs/j1/hold").json()["state"] == "held"
    assert client.post("/v1/jobs/j1/resume").json()["state"] == "queued"
    assert client.post("/v1/jobs/j1/priority", json={"priority": 7}).json()["priority"] == 7
    assert client.post("/v1/jobs/j1/cancel").json()["state"] == "cancelled"
    assert client.post("/v1/jobs/j1/cancel").json()["state"] == "cancelled"
    assert client.post("/v1/jobs/j1/hold").status_code == 409
    for action in ("cancel", "hold", "resume"):
        assert client.post(f"/v1/jobs/ghost/{action}").status_code == 404


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": 10**9}, "priority"),
        ({"priority": 1, "x": 1}, "x"),
    ],
)
def test_wrong_priorities(client, kit, store, clock, body, path):
    store.submit(kit.job("j1"), now_s=clock.now_s())
    answer = client.post("/v1/jobs/j1/priority", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == path


def test_logs(client, kit, store, clock, settings, schedule, play):
    store.submit(kit.job("j1", workers=2), now_s=clock.now_s())
    assert client.get("/v1/jobs/j1/logs").json()["lines"] == []
    schedule()
    play("j1", until="running")
    folder = settings.log_dir / "j1" / "1"
    folder.mkdir(parents=True)
    (folder / "1.log").write_bytes("".join(f"line {n}\n" for n in range(300_000)).encode() + b"\xff last")
    answer = client.get("/v1/jobs/j1/logs?rank=1&tail=2").json()
    assert answer == {"job": "j1", "attempt": 1, "rank": 1, "lines": ["line 299999", "� last"]}
    assert client.get("/v1/jobs/j1/logs?rank=0").json()["lines"] == []
    assert client.get("/v1/jobs/j1/logs?rank=2").status_code == 404
    assert client.get("/v1/jobs/j1/logs?attempt=2").status_code == 404
    assert client.get("/v1/jobs/j1/logs?rank=-1").status_code == 422
    assert client.get("/v1/jobs/ghost/logs").status_code == 404
    assert client.get("/v1/jobs/..%2f..%2fetc/logs").status_code == 404


def test_a_failed_job_keeps_its_exit_code(client, kit, store, clock, schedule, play):
    store.submit(kit.job("j1"), now_s=clock.now_s())
    schedule()
    play("j1", code=3)
    job = client.get("/v1/jobs/j1").json()
    assert (job["state"], job["exit_code"]) == ("failed", 3)
