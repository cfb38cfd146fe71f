"""The host agent: reports what it finds, and outlives a service that does not answer."""

import json

import httpx
import pytest

from phalanx.adapters.agent.agent import free_mib, make_report, run_agent
from phalanx.api.inventory import cache_inventory
from phalanx.model import codec
from phalanx.model.event import AgentReport, Event
from phalanx.model.host import CachedDataset

CACHED = CachedDataset(dataset="c4", digest="d1", shards=1, shards_total=2, size_mib=64)


def run(clock, tmp_path, answers, turns=3, **more):
    requests = []

    def handle(request):
        requests.append(request)
        answer = answers[min(len(requests), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)

    run_agent(
        host="n1",
        site="north",
        url="http://service",
        cache=tmp_path,
        clock=clock,
        stop=lambda: len(requests) >= turns,
        transport=httpx.MockTransport(handle),
        **more,
    )
    return requests


def test_reports_are_documents_with_fresh_names(clock, tmp_path):
    requests = run(clock, tmp_path, [200], inventory=lambda _folder: [CACHED], token="s3cret")
    events = [codec.loads(request.content, Event) for request in requests]
    assert len({event.id for event in events}) == 3
    assert all(isinstance(event, AgentReport) for event in events)
    assert events[0].cached == (CACHED,)
    assert events[0].disk_free_mib > 0
    assert requests[0].url.path == "/v1/agents/report"
    assert requests[0].headers["authorization"] == "Bearer s3cret"
    assert events[1].at_s - events[0].at_s == 5


def test_a_service_that_fails_is_tried_again_and_told_of_once(clock, tmp_path, caplog):
    requests = run(clock, tmp_path, [httpx.ConnectError("refused"), 500, 200, 404], turns=4)
    assert len(requests) == 4
    told = [record.getMessage() for record in caplog.records if record.name.startswith("phalanx")]
    assert len(told) == 2
    assert "refused" in told[0]
    assert "404" in told[1]


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path):
    assert free_mib(tmp_path / "a" / "b") == free_mib(tmp_path) > 0


def test_the_inventory_reads_the_dataplanes_cache(tmp_path):
    assert cache_inventory(tmp_path / "none") == []
    (tmp_path / "objects").mkdir()
    (tmp_path / "datasets").mkdir()
    (tmp_path / "objects" / "aa.shard").write_bytes(b"x")
    record = {"name": "c4", "shards": [["aa", 3 * 2**20], ["bb", 2**20]]}
    (tmp_path / "datasets" / "d1.json").write_text(json.dumps(record))
    assert cache_inventory(tmp_path) == [CachedDataset(dataset="c4", digest="d1", shards=1, shards_total=2, size_mib=3)]


@pytest.mark.parametrize("cached", [(), (CACHED,)])
def test_a_report(tmp_path, cached):
    report = make_report("n1/x/1", "n1", "north", tmp_path, 7, lambda _folder: cached)
    assert (report.id, report.at_s, report.cached) == ("n1/x/1", 7, cached)
