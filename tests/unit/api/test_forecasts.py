"""The forecast in the API: told for waiting jobs, recorded at submission, judged once the job starts."""

import json
from dataclasses import replace

import pytest

from phalanx.api.forecast_errors import ForecastErrors
from phalanx.api.forecast_words import sentence
from phalanx.api.forecasts import Forecasts
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

    def counting(snapshot, policy):
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
    def broken(snapshot, policy):
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
