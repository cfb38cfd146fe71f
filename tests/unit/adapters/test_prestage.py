"""Pre-stage orders on a host: one at a time, tried again, given up when they no longer stand, and never fatal."""

import threading
import time

import httpx
import pytest

from phalanx.adapters.agent.agent import run_agent
from phalanx.adapters.agent.prestage import RETRY_S, Prestager, read_orders
from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.model import codec
from phalanx.model.decision import Prefetch
from phalanx.model.job import DatasetRef

EEG, MEG = (
    Prefetch(host="n1", dataset=DatasetRef(name=name, size_mib=10, shards=2), job="big", start_s=9, mib=10, mbps=100)
    for name in ("eeg", "meg")
)


class Filler:
    """Notes what it is told to load; `held` keeps it at work until it is told to stop."""

    def __init__(self, answer="", held=False):
        self.asked, self.answer, self.held = [], answer, held
        self.stopped = threading.Event()

    def __call__(self, order, stop):
        self.asked.append(order.dataset.name)
        while self.held and not stop():
            time.sleep(0.005)
        if self.held:
            self.stopped.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def idle(prestager):
    deadline = time.monotonic() + 20
    while prestager.busy:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def clock():
    return VirtualClock(1_000)


def test_orders_are_carried_out_one_after_another_and_tried_again_while_they_stand(clock):
    fill = Filler()
    prestager = Prestager(fill, clock)
    for _ in range(4):
        prestager.offer([EEG, MEG])
        idle(prestager)
    assert fill.asked == ["eeg", "meg"], "an order that stands still is not tried again at once"
    clock.sleep(RETRY_S)
    prestager.offer([EEG, MEG])
    idle(prestager)
    prestager.offer([])
    prestager.offer([EEG])
    idle(prestager)
    assert fill.asked == ["eeg", "meg", "eeg", "eeg"], "an order given anew is new"


def test_an_order_that_no_longer_stands_is_given_up_and_one_that_stands_is_not(clock):
    fill = Filler(held=True)
    prestager = Prestager(fill, clock)
    prestager.offer([EEG])
    prestager.offer([MEG, EEG])
    assert not fill.stopped.wait(0.05)
    prestager.offer([MEG])
    assert fill.stopped.wait(20)
    idle(prestager)
    assert fill.asked == ["eeg"]


def test_the_end_of_the_agent_ends_what_is_under_way(clock):
    fill = Filler(held=True)
    prestager = Prestager(fill, clock)
    prestager.offer([EEG])
    prestager.close()
    assert fill.stopped.is_set()
    assert not prestager.busy


@pytest.mark.parametrize("answer", ["no room", RuntimeError("a bug")])
def test_a_fault_is_told_of_once_and_harms_nothing(clock, caplog, answer):
    prestager = Prestager(Filler(answer), clock)
    for _ in range(3):
        prestager.offer([EEG])
        idle(prestager)
        clock.sleep(RETRY_S)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert "eeg is not loaded for job big" in told[0]


def test_answers_are_read_and_those_of_other_services_order_nothing(caplog):
    assert read_orders({"applied": 1, "prefetches": [codec.encode(EEG)]}) == (EEG,)
    for answer in ({"applied": 1}, [], None, {"prefetches": None}):
        assert read_orders(answer) == ()
    assert caplog.records == []
    assert read_orders({"prefetches": [{"host": "n1"}]}) == ()
    assert "cannot be read" in caplog.text


def test_the_agent_carries_out_what_it_is_answered_and_goes_on_while_the_service_is_away(clock, tmp_path):
    answers = [{"prefetches": [codec.encode(EEG)]}, None, None, {"prefetches": []}]
    fill = Filler(held=True)
    seen = []

    def handle(request):
        seen.append(fill.stopped.is_set())
        answer = answers[len(seen) - 1]
        return httpx.Response(503) if answer is None else httpx.Response(200, json=answer)

    run_agent(
        host="n1",
        site="north",
        url="http://service",
        cache=tmp_path,
        clock=clock,
        stop=lambda: len(seen) == len(answers),
        fill=fill,
        transport=httpx.MockTransport(handle),
    )
    assert fill.asked == ["eeg"]
    assert not any(seen), "while the service is away, what it ordered goes on"
    assert fill.stopped.is_set()
