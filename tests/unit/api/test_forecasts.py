"""The forecast in the API: told for waiting jobs, recorded at submission, judged once the job starts."""

import json
import threading
from dataclasses import replace

import pytest

from phalanx.api.forecast_errors import ForecastErrors
from phalanx.api.forecast_words import sentence
from phalanx.api.forecasts import Forecasts
from phalanx.api.learned import Learned
from phalanx.api.loop import QUIET
from phalanx.api.round import run_round
from phalanx.model.policy import Policy
from phalanx.solver.forecast import Forecast, Unforecast, forecast

PATIENT_S = 60.0


@pytest.fixture
def patient(monkeypatch):
    """Requests wait for the forecast however slow the machine is."""
    monkeypatch.setattr(
        Forecasts.__init__, "__kwdefaults__", {**Forecasts.__init__.__kwdefaults__, "patience_s": PATIENT_S}
    )


@pytest.fixture
def queue(patient, kit, store, clock, brain):
    """A job that holds the four T4 for half an hour more, and one that waits for them."""
    lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
    store.submit(kit.job("runs", gpus=4, walltime_limit_s=2_000, walltime_estimate_s=1_800), now_s=clock.now_s())
    run_round(store, Policy(), clock, lease.term, solver=brain.solve, verifier=lambda *_: ())
    store.submit(kit.job("waits", gpus=4, walltime_limit_s=100), now_s=clock.now_s())
    return lease


def ends_s(clock_s):
    return clock_s + 30 + 1_800 + 10


def test_a_waiting_job_is_told_when_it_starts(queue, client, kit, store) -> None:
    told = client.get("/v1/jobs/waits").json()["forecast"]
    assert (told["start_s"], told["basis"], told["at_s"]) == (ends_s(kit.now_s), "estimate", kit.now_s)
    assert told["earliest_s"] == told["start_s"]
    assert told["latest_s"] == told["start_s"] + 200
    assert told["sentence"] == "starts about 22:44 UTC (in 31 min)"
    assert client.get("/v1/jobs/runs").json()["forecast"] is None
    jobs = {job["id"]: job for job in client.get("/v1/jobs").json()["jobs"]}
    assert jobs["waits"]["forecast"]["start_s"] == told["start_s"]
    assert jobs["runs"]["forecast"] is None


def test_the_pages_tell_it(queue, client) -> None:
    assert "starts about 22:44 UTC (in 31 min)" in client.get("/").text
    page = client.get("/jobs/waits").text
    assert "It starts about 22:44 UTC (in 31 min)." in page
    assert "run to their limits" in page
    assert "When it starts" not in client.get("/jobs/runs").text


def test_the_first_forecast_is_in_the_log_once_and_wakes_nobody(queue, client, store, kit) -> None:
    for _ in range(3):
        client.get("/v1/jobs/waits")
    noted = [entry for entry in store.events() if entry.kind == "forecast"]
    assert [entry.subject for entry in noted] == ["job waits"]
    assert json.loads(noted[0].document)["start_s"] == ends_s(kit.now_s)
    assert "forecast" in QUIET
    story = client.get("/v1/jobs/waits").json()["story"]
    assert story[-1]["text"] == "start forecast (starts about 22:44 UTC (in 31 min))"


def test_the_error_is_in_the_summary(queue, client, store, clock, brain) -> None:
    assert client.get("/v1/summary").json()["forecasts"] is None
    client.get("/v1/jobs/waits")
    clock.sleep(1_000)
    store.cancel("runs", now_s=clock.now_s())
    from phalanx.model.event import GangReleased

    store.append((GangReleased(id="x", at_s=clock.now_s(), job="runs", attempt=1),), now_s=clock.now_s())
    run_round(store, Policy(), clock, queue.term, solver=brain.solve, verifier=lambda *_: ())
    told = client.get("/v1/summary").json()["forecasts"]
    assert told == {"jobs": 1, "median_error_s": 840, "median_error_milli": 840}
    assert "<dt>Forecast off by, median</dt><dd>14 min</dd>" in client.get("/").text


def test_short_waits_and_later_forecasts_are_not_judged(store) -> None:
    errors = ForecastErrors()

    def feed(job, kind, at_s, **data):
        store.note(kind, f"job {job}", json.dumps(data), now_s=at_s)
        errors.feed(job, store.events()[-1], data)

    for job, wait_s in (("a", 599), ("b", 600)):
        feed(job, "submitted", 1_000)
        feed(job, "forecast", 1_001, start_s=1_300)
        feed(job, "forecast", 1_050, start_s=1_400)
        feed(job, "planned", 1_000 + wait_s)
    feed("c", "forecast", 1, start_s="soon")
    seen = errors.view()
    assert (seen.jobs, seen.median_error_s, seen.median_error_milli) == (1, 300, 500)


def test_it_is_made_anew_when_the_log_has_news_or_time_has_passed(kit, store, clock) -> None:
    calls = []

    def counting(snapshot, policy, learned):
        calls.append(snapshot.now_s)
        return forecast(snapshot, policy)

    told = Forecasts(store, Policy(), clock, forecaster=counting, patience_s=PATIENT_S)
    store.submit(kit.job("waits", gpus=64), now_s=clock.now_s())
    for _ in range(3):
        assert told.views(clock.now_s())["waits"].why == "never_fits"
    assert len(calls) == 1
    clock.sleep(59)
    told.views(clock.now_s())
    assert len(calls) == 1
    clock.sleep(1)
    told.views(clock.now_s())
    assert len(calls) == 2
    store.submit(kit.job("more"), now_s=clock.now_s())
    assert set(told.views(clock.now_s())) == {"waits", "more"}
    assert len(calls) == 3


def test_a_fault_in_the_forecast_is_nobody_elses(store, clock, caplog) -> None:
    def broken(snapshot, policy, learned):
        raise RuntimeError("bug")

    told = Forecasts(store, Policy(), clock, forecaster=broken, patience_s=PATIENT_S)
    assert told.views(clock.now_s()) == {}
    assert "the forecast failed" in caplog.text


@pytest.mark.parametrize(
    ("ahead_s", "text"),
    [
        (-5, "starts with one of the next rounds"),
        (0, "starts with one of the next rounds"),
        (42, "starts about 22:14 UTC (in 42 s)"),
        (89, "starts about 22:14 UTC (in 1 min)"),
        (3_600, "starts about 23:13 UTC (in 1 h)"),
        (2 * 86_400, "starts about 16 Nov 22:13 UTC (in 2 d)"),
    ],
)
def test_words(kit, ahead_s: int, text: str) -> None:
    assert sentence(Forecast(job="j", start_s=kit.now_s + ahead_s), kit.now_s) == text


def test_every_reason_has_words() -> None:
    told = {why: sentence(Forecast(job="j", why=why), 0) for why in Unforecast}
    assert len(set(told.values())) == len(Unforecast)
    assert sentence(replace(Forecast(job="j"), why=None), 0)


def ran(store, job, start_s, seconds, *, code=0, attempt=1):
    """A job that ran that long, as the log tells it."""
    store.submit(job, now_s=start_s)
    running = {"job": job.id, "attempt": attempt}
    store.note("gang_running", f"job {job.id}", json.dumps(running), now_s=start_s)
    ended = {**running, "exits": [{"rank": 0, "code": code}]}
    store.note("gang_exited", f"job {job.id}", json.dumps(ended), now_s=start_s + seconds)


def test_what_jobs_like_it_took_is_learned(kit, store) -> None:
    learned = Learned(store)
    asked = replace(kit.job("next", gpus=2), name="train", user="ann")
    for number, seconds in enumerate((100, 900, 300)):
        assert learned(asked) is None
        ran(store, replace(asked, id=f"t{number}"), 10_000 * number, seconds)
        learned.catch_up()
    assert learned(asked) == 300
    ran(store, replace(asked, id="failed"), 0, 5, code=1)
    ran(store, replace(asked, id="again"), 0, 5, attempt=2)
    ran(store, replace(asked, id="bobs", user="bob"), 0, 5)
    ran(store, replace(asked, id="other", name="other"), 0, 5)
    ran(store, replace(kit.job("small"), name="train", user="ann"), 0, 5)
    store.note("gang_exited", "job t0", "{}", now_s=5)
    store.note("gang_running", "job strange", '{"attempt":1}', now_s=5)
    store.note("gang_exited", "job strange", '{"attempt":1,"exits":[{"rank":0,"code":0}]}', now_s=6)
    learned.catch_up()
    assert learned(asked) == 300
    assert learned(replace(asked, name="fresh")) is None
    assert learned(replace(asked, name="")) is None


def test_estimates_are_judged_by_what_came_of_them(patient, kit, store, clock, client, brain) -> None:
    learned = Learned(store)
    for number in range(20):
        job = kit.job(f"e{number}", gpus=4, walltime_estimate_s=1_000)
        ran(store, job, clock.now_s() - 5_000 + number, 1_500)
        store.cancel(job.id, now_s=clock.now_s())
    ran(store, kit.job("bare"), clock.now_s(), 77)
    store.cancel("bare", now_s=clock.now_s())
    learned.catch_up()
    assert learned.ratios == (1_500,) * 20
    lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
    store.submit(kit.job("runs", gpus=4, walltime_estimate_s=400), now_s=clock.now_s())
    run_round(store, Policy(), clock, lease.term, solver=brain.solve, verifier=lambda *_: ())
    store.submit(kit.job("waits", gpus=4), now_s=clock.now_s())
    told = client.get("/v1/jobs/waits").json()["forecast"]
    # The launch, half as long again as estimated, and the cleaning.
    assert (told["start_s"], told["basis"]) == (clock.now_s() + 30 + 600 + 10, "estimate")


def test_a_forecast_rests_on_what_was_learned(patient, kit, store, clock, client, brain) -> None:
    for number in range(3):
        ran(store, replace(kit.job(f"t{number}", gpus=4), name="train"), clock.now_s(), 500)
        store.cancel(f"t{number}", now_s=clock.now_s())
    lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
    store.submit(replace(kit.job("runs", gpus=4), name="train"), now_s=clock.now_s())
    run_round(store, Policy(), clock, lease.term, solver=brain.solve, verifier=lambda *_: ())
    store.submit(kit.job("waits", gpus=4), now_s=clock.now_s())
    told = client.get("/v1/jobs/waits").json()["forecast"]
    assert (told["start_s"], told["basis"]) == (clock.now_s() + 30 + 500 + 10, "estimate")


def test_a_slow_forecast_keeps_nobody_waiting_and_rests(kit, store, clock, monkeypatch) -> None:
    monkeypatch.setattr("phalanx.api.forecasts.REST", 10**6)
    gate = threading.Event()

    def slow(snapshot, policy, learned):
        gate.wait()
        return forecast(snapshot, policy)

    store.submit(kit.job("a"), now_s=clock.now_s())
    told = Forecasts(store, Policy(), clock, forecaster=slow, patience_s=0.001)
    assert told.views(clock.now_s()) == {}
    worker = told._worker
    gate.set()
    worker.join()
    assert set(told.views(clock.now_s())) == {"a"}
    store.submit(kit.job("b"), now_s=clock.now_s())
    clock.sleep(3_600)
    assert set(told.views(clock.now_s())) == {"a"}
    assert told._worker is None
