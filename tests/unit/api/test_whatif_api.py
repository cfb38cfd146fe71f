"""What-if over HTTP and on its page: nothing is changed, every fault is a 422 that says where."""

import pytest

from phalanx.api import whatif as seats
from phalanx.model.change import AddHosts, Change, ChangePolicy
from phalanx.model.codec import document
from phalanx.model.policy import OrderPolicy, Policy
from phalanx.model.snapshot import Snapshot


@pytest.fixture
def queue(kit, store, clock):
    """Two jobs of which the fleet holds one."""
    for name in ("a", "b"):
        store.submit(kit.job(name, gpus=4, walltime_limit_s=1_000), now_s=clock.now_s())


MORE = document(Change(add_hosts=(AddHosts(like="s1"),)))


def test_the_live_fleet_with_one_more_host(queue, client, store, clock) -> None:
    before = store.snapshot(clock.now_s())
    answer = client.post("/v1/whatif", json={"change": MORE})
    assert answer.status_code == 200
    seen = answer.json()
    assert (seen["today"]["starting"], seen["then"]["starting"]) == (1, 2)
    assert (seen["today"]["capacity_milli"], seen["then"]["capacity_milli"]) == (8_000, 12_000)
    assert seen["verdicts"] == {"same": 1, "sooner": 1}
    jobs = {entry["job"]: entry for entry in seen["jobs"]}
    assert jobs["b"]["today"]["start_s"] == seen["now_s"] + 30 + 1_000 + 10
    assert jobs["b"]["then"]["sentence"] == "starts with one of the next rounds"
    assert seen["today"]["cost_milli"] is None
    assert store.snapshot(clock.now_s()) == before


def test_a_snapshot_and_a_policy_of_ones_own(queue, client, store, clock) -> None:
    empty = Snapshot(now_s=5, sites=(), hosts=())
    seen = client.post("/v1/whatif", json={"change": document(Change()), "snapshot": document(empty)}).json()
    assert (seen["now_s"], seen["today"]["hosts"], seen["jobs"]) == (5, 0, [])
    policy = Policy(order=OrderPolicy(age_full_s=7))
    body = {"change": document(Change()), "policy": document(policy)}
    assert client.post("/v1/whatif", json=body).json()["verdicts"] == {"same": 2}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "change"),
        ({"change": {}}, "change.kind"),
        ({"change": {**MORE, "add_hosts": [{"like": "s1", "count": 0}]}}, "change.add_hosts[0].count"),
        ({"change": {**MORE, "add_hosts": [{"count": 1}]}}, "change.add_hosts[0]"),
        ({"change": {**MORE, "add_hosts": [{"like": "s1", "count": 20_000}] * 2}}, "change.add_hosts"),
        ({"change": {**MORE, "add_host": []}}, "change.add_host"),
        ({"change": {**MORE, "add_hosts": [{"like": "s9"}]}}, "change.add_hosts[0].like"),
        ({"change": document(Change(policy=(ChangePolicy(field="x", value=1),)))}, "change.policy[0].field"),
        ({"change": MORE, "snapshot": {"kind": "phalanx.policy", "version": 1}}, "snapshot.kind"),
        ({"change": MORE, "surprise": 1}, "surprise"),
    ],
)
def test_wrong_changes_say_where(queue, client, body, path) -> None:
    answer = client.post("/v1/whatif", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["path"] == path


def test_too_many_at_once_are_asked_to_wait(queue, client, monkeypatch) -> None:
    class Full:
        def acquire(self, timeout):
            return False

    monkeypatch.setattr(seats, "_SEATS", Full())
    answer = client.post("/v1/whatif", json={"change": MORE})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")


def test_the_empty_page_is_a_form(client) -> None:
    answer = client.get("/whatif")
    assert answer.status_code == 200
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert '<form method="get" action="/whatif"' in answer.text
    assert '<option value="n1">' in answer.text
    assert "Side by side" not in answer.text


def test_the_page_shows_both_sides(queue, client) -> None:
    page = client.get(
        "/whatif?like=s1&count=2&remove=n1&team=speech&weight=300&state_host=n2&state=cordoned&drop="
    ).text
    assert "Side by side" in page
    assert "4 of 8" in page
    assert "8 of 14" in page
    assert "Idle T4" in page
    assert "Room for 1 x 4 T4 in one host" in page
    assert "badge-sooner" in page
    assert 'value="s1"' in page


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("like=s9", "there is no host &#39;s9&#39;"),
        ("like=s1&count=many", "not a whole number"),
        ("like=s1&count=30000", "at most 20000"),
        ("remove=%3Cscript%3E", "there is no host &#39;&lt;script&gt;&#39;"),
        ("drop=nope", "there is no job"),
        ("team=vision&weight=", "weight"),
        ("team=vision&weight=2000000", "out of range"),
        ("state_host=n1&state=broken", "no state of a host"),
    ],
)
def test_a_wrong_form_is_told_on_the_page(queue, client, query, told) -> None:
    answer = client.get(f"/whatif?{query}")
    assert answer.status_code == 422
    assert told in answer.text
    assert "<script" not in answer.text
    assert "Side by side" not in answer.text
