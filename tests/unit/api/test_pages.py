"""The pages: complete without script, safe with any text, and readable by a screen reader."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from phalanx.api.round import run_round
from phalanx.api.ui.render import amount, duration, gpus
from phalanx.model.job import Command, KeyValue
from phalanx.model.policy import Policy


class Page(HTMLParser):
    """Collects what the tests look at, and checks that every element closes."""

    void = frozenset({"meta", "link", "img", "br", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.labelled, self.words = [], [], set(), [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        if "id" in values:
            assert values["id"] not in self.ids
            self.ids.add(values["id"])
        if "aria-labelledby" in values:
            self.labelled.append(values["aria-labelledby"])
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.words.append(data.strip())

    @property
    def text(self):
        return " ".join(self.words)


@pytest.fixture
def busy_fleet(kit, store, clock, brain):
    """One job that runs, one that waits with a reason, one that ended."""
    lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
    store.submit(kit.job("runs", gpus=2), now_s=clock.now_s())
    store.submit(kit.job("waits", gpus=8), now_s=clock.now_s())
    store.submit(kit.job("gone"), now_s=clock.now_s())
    store.cancel("gone", now_s=clock.now_s())
    run_round(store, Policy(), clock, lease.term, solver=brain.solve, verifier=lambda *_: ())


def report(settings, job, *ranks):
    """Each rank reports ten steps: its seconds of waiting for batches, computing, and waiting for slower ranks."""
    folder = settings.log_dir / job / "1" / "reports"
    folder.mkdir(parents=True)
    for rank, (wait, compute, peers) in enumerate(ranks):
        times = {"wait_s": wait, "compute_s": compute, "checkpoint_s": 0.0, "peers_s": peers, "longest_s": 1.5}
        line = {"version": 1, "at_s": 9.5, "host": f"n{rank}", "rank": rank, "step": 50, "steps": 10, **times}
        (folder / f"rank-{rank:05d}.jsonl").write_text(json.dumps(line))


def test_a_job_shows_where_its_steps_go_and_who_holds_them_up(client, busy_fleet, settings):
    assert client.get("/v1/jobs/runs").json()["steps"] is None
    assert "Waiting for batches" not in client.get("/jobs/runs").text
    report(settings, "runs", (1, 6, 3), (1, 6, 3), (1, 9, 0))
    steps = client.get("/v1/jobs/runs").json()["steps"]
    assert steps == {
        "compute_milli": 700,
        "wait_milli": 100,
        "checkpoint_milli": 0,
        "peers_milli": 200,
        "step_us": 1_000_000,
        "longest_us": 1_500_000,
        "last_step": 50,
        "at_s": 9,
        "ranks": 3,
        "slow": [{"rank": 2, "host": "n2", "own_us": 1_000_000, "times_milli": 1_429}],
    }
    page = Page(client.get("/jobs/runs").text)
    assert "Waiting for batches 10.0 %" in page.text
    assert "rank 2 on n2 (1.43 times the median)" in page.text


def test_the_status_page(client, busy_fleet):
    answer = client.get("/")
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    page = Page(answer.text)
    assert "8 GPUs are asked; none is free." in page.text
    assert "2 GPUs, 0 free, in use by runs" in page.text
    assert "2 of 4 GPUs in use" in page.text
    assert {"fleet", "queue", "running", "round", "ended"} <= page.ids
    assert set(page.labelled) <= page.ids
    links = {values.get("href") for tag, values in page.tags if tag == "a"}
    assert {"/jobs/runs", "/jobs/waits", "/jobs/gone"} <= links
    used = [values for tag, values in page.tags if tag == "a" and "gpu" in values.get("class", "")]
    assert [values["title"] for values in used] == [f"GPU {n}: H100, 80 GiB, 100 % booked by runs" for n in (0, 1)]


def test_nothing_comes_from_elsewhere(client, busy_fleet):
    for path in ("/", "/jobs/runs", "/whatif?like=n1&count=2"):
        page = Page(client.get(path).text)
        for _, values in page.tags:
            for name in ("src", "href"):
                assert not values.get(name, "").startswith(("http", "//"))
            assert not any(name.startswith("on") or name == "style" for name in values)
    for name in ("page.css", "page.js", "icon.svg"):
        assert client.get(f"/static/{name}").status_code == 200
    assert client.get("/favicon.ico").status_code == 200


def test_an_empty_service_has_a_page(settings, clock, brain, client_of):
    from phalanx.adapters.fakes.memory_store import MemoryStore
    from phalanx.api.app import create_app

    app = create_app(settings, MemoryStore(Policy()), Policy(), clock, solve=brain.solve, admit=brain.admit)
    assert "No hosts yet" in Page(client_of(app).get("/").text).text


def test_the_page_of_a_job(client, busy_fleet, settings):
    folder = settings.log_dir / "runs" / "1"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("step 1\n<b>loss</b> 0.5\n")
    page = Page(client.get("/jobs/runs").text)
    assert "attempt 1 planned (on n1)" in page.text
    assert "<b>loss</b> 0.5" in page.text
    assert "2 GPUs, 1 core, 1 GiB" in page.text
    waiting = Page(client.get("/jobs/waits").text)
    assert "Why it waits" in waiting.text
    assert "n1 to become free" in waiting.text


def test_the_what_if_page_is_well_formed_and_labelled(client, busy_fleet):
    page = Page(client.get("/whatif?like=n1&count=2").text)
    assert {"sides-h", "jobs-h"} <= set(page.labelled) <= page.ids
    fields = [values for tag, values in page.tags if tag in ("input", "select")]
    assert [values["name"] for values in fields] == [
        "count", "like", "remove", "drop", "state_host", "state", "team", "weight",
    ]  # fmt: skip
    assert sum(tag == "label" for tag, _ in page.tags) == len(fields)
    assert {values["list"] for values in fields if "list" in values} <= page.ids


def test_hostile_text_stays_text(client, kit, store, clock):
    hostile = "<script>alert(1)</script>"
    labels = (KeyValue(key="a", value=hostile),)
    job = replace(kit.job("x", labels=labels, user=hostile), name=hostile, command=Command(argv=("sh", hostile)))
    store.submit(job, now_s=clock.now_s())
    for path in ("/", "/jobs/x", "/whatif?like=%3Cscript%3Ealert(1)%3C/script%3E"):
        text = client.get(path).text
        assert hostile not in text
        assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_725, "1 h 2 min"), (86_400, "1 d"), (86_460, "1 d"), (-5, "0 s")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_amounts():
    assert amount(3_600_000, "mGPU*s") == "3,600 GPU·s"
    assert amount(2_000, "mGPU") == "2 GPU"
    assert amount(3, "changes") == "3 changes"
    assert gpus(500) == "0.5"
