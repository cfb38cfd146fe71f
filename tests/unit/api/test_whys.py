"""`phalanx why` and the page of a job: a reason that the newest round left open is worked out when asked for."""

import pytest

from phalanx.adapters.ports import RoundRecord
from phalanx.api.whys import Whys
from phalanx.model.decision import Reason, ReasonKind
from phalanx.model.policy import Policy


def undecided(job):
    return Reason(job=job, kind=ReasonKind.UNDECIDED)


class Finder:
    """Stands in for the solver's search for a reason, and counts how often it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, snapshot, policy, decision, job):
        self.asked.append((snapshot.version, job))
        return Reason(job=job, kind=ReasonKind.HELD, sentence=f"It is held, as of {snapshot.version}.")


@pytest.fixture
def finder():
    return Finder()


@pytest.fixture
def record(store, clock, kit):
    """Stores a round in which these jobs were left open, with its snapshot or without."""

    def make(*jobs, waiting=None, kept=True):
        snapshot = store.snapshot(clock.now_s())
        found = waiting if waiting is not None else tuple(undecided(job) for job in jobs)
        made = RoundRecord(
            number=0,
            at_s=clock.now_s(),
            outcome="nothing",
            decision=kit.decision(snapshot, waiting=found),
            snapshot=snapshot if kept else None,
        )
        store.record_round(made)
        return store.rounds(limit=1)[0]

    return make


def test_a_reason_is_worked_out_once_a_round(store, record, finder):
    whys = Whys(store, Policy(), finder)
    newest = record("j1", "j2")
    assert [whys.reason(newest, job).kind for job in ("j1", "j1", "j2")] == [ReasonKind.HELD] * 3
    assert [job for _, job in finder.asked] == ["j1", "j2"]
    whys.reason(record("j1"), "j1")
    assert [job for _, job in finder.asked] == ["j1", "j2", "j1"]


def test_what_the_round_told_is_not_asked_again(store, record, kit, finder):
    whys = Whys(store, Policy(), finder)
    newest = record(waiting=(kit.busy("j1"),))
    assert whys.reason(newest, "j1").kind is ReasonKind.BUSY
    assert whys.reason(newest, "j2") is None
    assert whys.reason(None, "j1") is None
    assert finder.asked == []


def test_without_a_snapshot_the_round_s_reason_stands(store, record, finder):
    assert Whys(store, Policy(), finder).reason(record("j1", kept=False), "j1") == undecided("j1")
    assert finder.asked == []


def test_a_fault_of_the_search_is_not_the_asker_s(store, record, caplog):
    def broken(*_):
        raise RuntimeError("no such world")

    assert Whys(store, Policy(), broken).reason(record("j1"), "j1") == undecided("j1")
    assert "no reason could be worked out for job j1" in caplog.text


def test_the_answer_about_a_job_has_the_reason(client, store, clock, kit, record):
    """With the solver itself: the job asks for more GPUs than any host of the fleet has."""
    store.submit(kit.job("wide", gpus=5), now_s=clock.now_s())
    record("wide")
    assert client.get("/v1/jobs").json()["jobs"][0]["reason"]["kind"] == "undecided"
    told = client.get("/v1/jobs/wide").json()["reason"]
    assert told["kind"] == "never_fits"
    assert told["round"] == store.rounds(limit=1)[0].number
