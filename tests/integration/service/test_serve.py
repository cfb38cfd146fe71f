"""`phalanx serve` as real processes: jobs finish, processes may die, and nothing is left behind."""

import json
import os
import signal
import time

import httpx
import pytest

pytestmark = pytest.mark.slow


def test_jobs_finish_although_every_process_is_killed_in_turn(service):
    service.start()
    service.until(lambda: set(service.workers()) == {"api", "loop", "adapter north", "adapter south", "agents"})
    jobs = [service.submit(f"job{number}", gpus=2) for number in range(4)]
    for name in ("loop", "adapter north", "api", "agents", "adapter south"):
        before = service.workers()[name]
        os.kill(before, signal.SIGKILL)
        service.until(lambda name=name, before=before: service.workers().get(name) not in (None, before))
    service.until(service.ready)
    jobs.append(service.submit("late"))
    service.until(lambda: all(service.job(job)["state"] == "succeeded" for job in jobs))
    for job in jobs:
        ends = [entry for entry in service.job(job)["story"] if entry["kind"] == "gang_released"]
        assert len(ends) == service.job(job)["attempt"]
    hosts = service.http.get("/v1/hosts").json()["hosts"]
    assert all(gpu["used_milli"] == 0 for host in hosts for gpu in host["gpus"])
    service.until(lambda: all(host["disk_free_mib"] > 0 for host in service.http.get("/v1/hosts").json()["hosts"]))
    summary = service.http.get("/v1/summary").json()
    assert summary["states"] == {"succeeded": 5}
    assert summary["waits"]["jobs"] == 5
    assert "violation" not in summary["outcomes"]
    code, out, _ = service.stop()
    assert (code, service.workers()) == (0, {})
    assert f"Phalanx serves {service.url}" in out


def test_impossible_jobs_and_waiting_jobs_say_why(service):
    service.start()
    body = {"name": "huge", "team": "vision", "gpus": 64, "cpu": 1, "memory": "1GiB", "command": ["true"]}
    refused = service.http.post("/v1/jobs", json=body)
    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:phalanx:never-fits"
    assert refused.json()["detail"]
    first = service.submit("first", gpus=4, gpu_type="T4")
    second = service.submit("second", gpus=4, gpu_type="T4")
    service.until(lambda: service.job(second)["reason"] is not None or service.job(second)["state"] == "succeeded")
    if service.job(second)["reason"]:
        assert service.job(second)["reason"]["sentence"]
    service.until(lambda: {service.job(job)["state"] for job in (first, second)} == {"succeeded"})
    assert service.http.get("/").status_code == 200
    assert service.http.get(f"/jobs/{first}").status_code == 200


def test_events_stream_and_do_not_delay_the_stop(service):
    service.start()
    kinds = []
    with httpx.stream("GET", f"{service.url}/v1/events?after=0", timeout=30.0, trust_env=False) as stream:
        job = service.submit("one")
        for line in stream.iter_lines():
            if line.startswith("data: "):
                entry = json.loads(line.removeprefix("data: "))
                if entry["subject"] == f"job {job}":
                    kinds.append(entry["kind"])
            if "gang_released" in kinds:
                break
        assert kinds == ["submitted", "planned", "gang_reserved", "gang_running", "gang_exited", "gang_released"]
        code, _, _ = service.stop(signal.SIGTERM)
    assert (code, service.workers()) == (0, {})


def test_a_second_service_on_the_same_folder_is_refused(service):
    service.start()
    second = service.spawn()
    _, err = second.communicate(timeout=60)
    assert second.returncode != 0
    assert "is in use by the service at" in err
    assert service.ready()


def test_a_killed_supervisor_takes_its_processes_along_and_a_new_one_goes_on(service):
    service.start()
    job = service.submit("survivor")
    service.process.kill()
    service.process.communicate()
    deadline = time.monotonic() + 40
    while service.workers():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    service.start()
    service.until(lambda: service.job(job)["state"] == "succeeded")
