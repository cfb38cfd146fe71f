"""/v1/hosts, /v1/agents, /v1/rounds, /v1/summary, /v1/solve and the health checks."""

import pytest

from phalanx.api.round import run_round
from phalanx.model import codec
from phalanx.model.decision import Prefetch
from phalanx.model.event import AgentReport, GangReleased, GangReserved, GangRunning
from phalanx.model.host import CachedDataset
from phalanx.model.job import DatasetRef, TopologyConstraint
from phalanx.model.policy import Policy, SolvePolicy, TimePolicy
from phalanx.model.topology import Layer


@pytest.fixture
def schedule(store, clock, brain):
    """Runs one round with the stand-in solver."""

    def run():
        lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
        return run_round(store, Policy(), clock, lease.term, solver=brain.solve, verifier=lambda *_: ())

    return run


def test_hosts_show_what_is_booked(client, kit, store, clock, schedule):
    store.submit(kit.job("j1", gpus=2), now_s=clock.now_s())
    schedule()
    hosts = {host["id"]: host for host in client.get("/v1/hosts").json()["hosts"]}
    assert sorted(hosts) == ["n1", "n2", "s1"]
    assert [gpu["used_milli"] for gpu in hosts["n1"]["gpus"]] == [1000, 1000]
    assert hosts["n1"]["gpus"][0]["jobs"] == ["j1"]
    assert (hosts["n1"]["cpu_milli_used"], hosts["n1"]["memory_mib_used"]) == (1000, 1024)
    assert hosts["n2"]["jobs"] == []
    assert client.get("/v1/hosts/n1").json() == hosts["n1"]


def test_hosts_show_for_whom_they_are_held_and_the_job_when_it_is_planned(client, kit, store, clock):
    lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())

    # Alone by default on the one host of another site that would hold it, which it may not use.
    site = (TopologyConstraint(layer=Layer.SITE),)

    def solved():
        policy = Policy(solve=SolvePolicy(budget_ms=200), time=TimePolicy(starve_after_s=10))
        return run_round(store, policy, clock, lease.term)

    store.submit(kit.job("first", gpus=2, walltime_limit_s=20_000, sites=("north",)), now_s=clock.now_s())
    assert solved().outcome == "committed"
    long_ago = clock.now_s() - 30_000  # a drain plans no farther ahead than its gang has waited
    store.submit(kit.job("big", gpus=2, workers=2, sites=("north",), topology=site), now_s=long_ago)
    clock.sleep(10)
    assert solved().outcome == "committed"
    (promise,) = store.snapshot(clock.now_s()).reservations
    hosts = {host["id"]: host for host in client.get("/v1/hosts").json()["hosts"]}
    held = {"big": promise.planned_start_s}
    assert {name: host["reserved_for"] for name, host in hosts.items()} == {"n1": held, "n2": held, "s1": {}}
    why = client.get("/v1/jobs/big").json()["reason"]["sentence"]
    assert "It is planned to start within" in why
    assert "on n1, n2." in why
    assert "held for big" in client.get("/").text
    assert solved().outcome == "nothing", "a promise that stands is no change"


def test_reports_are_answered_with_what_to_load_and_hosts_show_it(client, kit, store, clock):
    lease = store.acquire("scheduler", "test", ttl_s=60, now_s=clock.now_s())
    policy = Policy(solve=SolvePolicy(budget_ms=200), time=TimePolicy(starve_after_s=10))
    store.submit(kit.job("first", gpus=2, walltime_limit_s=20_000, sites=("north",)), now_s=clock.now_s())
    run_round(store, policy, clock, lease.term)
    data = DatasetRef(name="eeg", size_mib=900, shards=9)
    site = (TopologyConstraint(layer=Layer.SITE),)
    job = kit.job("big", gpus=2, workers=2, sites=("north",), topology=site, dataset=data)
    store.submit(job, now_s=clock.now_s() - 30_000)  # a drain plans no farther ahead than its gang has waited
    assert client.post("/v1/agents/report", json=report()).json()["prefetches"] == []
    clock.sleep(10)
    run_round(store, policy, clock, lease.term)
    (promise,) = store.snapshot(clock.now_s()).reservations
    order = Prefetch(
        host="n1", dataset=data, job="big", start_s=promise.planned_start_s, mib=900, mbps=policy.objective.fetch_mbps
    )
    later = report(id="n1/a/2", at_s=clock.now_s())
    assert client.post("/v1/agents/report", json=later).json()["prefetches"] == [codec.encode(order)]
    hosts = {host["id"]: host["prefetches"] for host in client.get("/v1/hosts").json()["hosts"]}
    assert hosts == {"n1": [codec.encode(order)], "n2": [], "s1": []}, "of n2's disk nothing is known"
    assert client.get("/v1/hosts/n1").json()["prefetches"] == hosts["n1"]
    page = client.get("/").text
    assert "loads eeg" in page
    assert "1 data set to load ahead" in page
    assert client.get("/v1/rounds?limit=1").json()["rounds"][0]["prefetches"] == 1
    done = CachedDataset(dataset="eeg", digest="", shards=9, shards_total=9, size_mib=900)
    full = report(id="n1/a/3", at_s=clock.now_s(), cached=(done,))
    assert client.post("/v1/agents/report", json=full).json()["prefetches"] == []
    assert client.get("/v1/hosts/n1").json()["prefetches"] == []
    empty = report(id="n1/a/4", at_s=clock.now_s(), cached=())
    assert client.post("/v1/agents/report", json=empty).json()["prefetches"] != []
    store.cancel("big", now_s=clock.now_s())
    run_round(store, policy, clock, lease.term)
    clock.sleep(5)
    assert client.post("/v1/agents/report", json=report(id="n1/a/5", at_s=clock.now_s())).json()["prefetches"] == []


def test_cordon_and_uncordon(client):
    cordoned = client.post("/v1/hosts/n1/cordon", json={"cause": "fan"}).json()
    assert (cordoned["state"], cordoned["state_cause"]) == ("cordoned", "fan")
    assert client.post("/v1/hosts/n1/cordon").json()["version"] == cordoned["version"]
    assert client.post("/v1/hosts/n1/uncordon").json()["state"] == "ready"
    assert client.post("/v1/hosts/n1/cordon").json()["state"] == "cordoned"
    assert client.post("/v1/hosts/ghost/cordon").status_code == 404
    assert client.post("/v1/hosts/n1/cordon", json={"why": "x"}).json()["errors"][0]["path"] == "why"
    assert client.post("/v1/hosts/n1/cordon", json={"cause": 3}).status_code == 422


def test_a_host_that_is_down_is_not_uncordoned(client, store, clock):
    from phalanx.model.event import HostChanged
    from phalanx.model.host import HostState

    store.append(
        [HostChanged(id="x", at_s=clock.now_s(), host="n1", state=HostState.DOWN, cause="no answer")],
        now_s=clock.now_s(),
    )
    answer = client.post("/v1/hosts/n1/uncordon")
    assert answer.status_code == 409
    assert "no answer" in answer.json()["detail"]


def report(**more):
    values = {"id": "n1/a/1", "at_s": 1_700_000_000, "host": "n1", "site": "north", "disk_free_mib": 5_000}
    cached = (CachedDataset(dataset="c4", digest="d", shards=3, shards_total=9, size_mib=100),)
    return codec.document(AgentReport(**{**values, "cached": cached, **more}))


def test_agents_report(client):
    assert client.post("/v1/agents/report", json=report()).json() == {"applied": 1, "prefetches": []}
    host = client.get("/v1/hosts/n1").json()
    assert host["disk_free_mib"] == 5_000
    assert host["cached"][0]["dataset"] == "c4"
    assert client.post("/v1/agents/report", json=report()).json() == {"applied": 0, "prefetches": []}


@pytest.mark.parametrize(
    ("change", "status", "path"),
    [
        ({"host": "ghost"}, 404, None),
        ({"site": "south"}, 422, "site"),
        ({"type": "gang_released", "disk_free_mib": None}, 422, None),
        ({"type": "gossip"}, 422, "type"),
        ({"disk_free_mib": "much"}, 422, "disk_free_mib"),
    ],
)
def test_wrong_reports(client, change, status, path):
    answer = client.post("/v1/agents/report", json={**report(), **change})
    assert answer.status_code == status
    if path:
        assert answer.json()["errors"][0]["path"] == path


def test_only_reports_are_taken_from_agents(client):
    event = codec.document(GangReleased(id="x", at_s=1, job="j", attempt=1))
    assert client.post("/v1/agents/report", json=event).json()["errors"][0]["path"] == "type"


def test_rounds(client, kit, store, clock, schedule):
    store.submit(kit.job("j1"), now_s=clock.now_s())
    store.submit(kit.job("big", gpus=8), now_s=clock.now_s())
    schedule()
    store.submit(kit.job("j2"), now_s=clock.now_s())
    schedule()
    page = client.get("/v1/rounds?limit=1").json()
    assert [entry["number"] for entry in page["rounds"]] == [2]
    older = client.get("/v1/rounds", params={"limit": 1, "before": page["next_before"]}).json()
    assert [(entry["number"], entry["outcome"], entry["starts"], entry["waiting"]) for entry in older["rounds"]] == [
        (1, "committed", 1, 1)
    ]
    detail = client.get("/v1/rounds/1").json()
    assert detail["reasons"]["big"]["kind"] == "busy"
    assert detail["decision"]["kind"] == "phalanx.decision"
    assert set(detail["times_ms"]) == {"sweep", "snapshot", "solve", "verify", "commit"}


def test_the_summary_adds_up(client, kit, store, clock, schedule):
    store.submit(kit.job("j1", gpus=2), now_s=clock.now_s())
    store.submit(kit.job("big", gpus=8), now_s=clock.now_s())
    clock.sleep(10)
    schedule()
    clock.sleep(2)
    told = [kind(id=kind.__name__, at_s=clock.now_s(), job="j1", attempt=1) for kind in (GangReserved, GangRunning)]
    store.append(told, now_s=clock.now_s())
    clock.sleep(100)
    first = client.get("/v1/summary").json()
    assert first["states"] == {"queued": 1, "running": 1}
    assert first["waits"] == {"jobs": 1, "mean_s": 12, "p50_s": 12, "p90_s": 12}
    # 8 GPUs for 112 s, of which 2 were held for 102 s.
    assert first["allocation"] == {"held_gpu_s": 204, "capacity_gpu_s": 896, "share_milli": 227}
    client.post("/v1/jobs/j1/cancel")
    store.append([GangReleased(id="r", at_s=clock.now_s(), job="j1", attempt=1)], now_s=clock.now_s())
    client.post("/v1/hosts/s1/cordon")
    clock.sleep(10)
    then = client.get("/v1/summary").json()
    assert then["states"] == {"cancelled": 1, "queued": 1}
    assert then["allocation"]["held_gpu_s"] == 204
    assert then["allocation"]["capacity_gpu_s"] == 8 * 122
    assert then["rounds"] == 1


def test_hosts_that_are_down_are_no_capacity(client, store, clock):
    from phalanx.model.event import HostChanged
    from phalanx.model.host import HostState

    clock.sleep(10)
    store.append([HostChanged(id="x", at_s=clock.now_s(), host="s1", state=HostState.DOWN)], now_s=clock.now_s())
    clock.sleep(10)
    assert client.get("/v1/summary").json()["allocation"]["capacity_gpu_s"] == 8 * 10 + 4 * 10


def test_solve_is_stateless_and_its_budget_capped(client, kit, store, clock, brain):
    store.submit(kit.job("j1"), now_s=clock.now_s())
    snapshot = codec.document(store.snapshot(clock.now_s()))
    policy = codec.document(Policy(solve=SolvePolicy(budget_ms=3_000_000)))
    answer = client.post("/v1/solve", json={"snapshot": snapshot, "policy": policy})
    assert answer.status_code == 200
    assert [start["job"] for start in answer.json()["starts"]] == ["j1"]
    assert brain.asked[-1].solve.budget_ms == 60_000
    assert client.get("/v1/jobs/j1").json()["state"] == "queued"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "snapshot"),
        ({"snapshot": 3}, "snapshot"),
        ({"snapshot": {"kind": "phalanx.job", "version": 1}}, "snapshot.kind"),
        (
            {"snapshot": {"kind": "phalanx.snapshot", "version": 1, "now_s": 1, "sites": [], "hosts": [{}]}},
            "snapshot.hosts[0].id",
        ),
        (
            {
                "snapshot": {"kind": "phalanx.snapshot", "version": 1, "now_s": 1, "sites": [], "hosts": []},
                "policy": {"kind": "phalanx.policy", "version": 1, "x": 1},
            },
            "policy.x",
        ),
    ],
)
def test_wrong_solve_requests(client, body, path):
    answer = client.post("/v1/solve", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith(path)


def test_health(client, store, clock, monkeypatch):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").status_code == 503
    store.acquire("scheduler", "me", ttl_s=15, now_s=clock.now_s())
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "store": "answers", "leader": "me"})
    clock.sleep(15)
    assert client.get("/readyz").status_code == 503

    def broken(_name):
        raise OSError("disk")

    monkeypatch.setattr(store, "lease", broken)
    assert client.get("/readyz").json()["store"] == "does not answer"


def test_the_api_describes_itself(client):
    schema = client.get("/openapi.json").json()
    assert {"/v1/jobs", "/v1/jobs/{job}/logs", "/v1/hosts/{host}/cordon", "/v1/solve", "/v1/events"} <= set(
        schema["paths"]
    )
    assert "ProblemShape" in schema["components"]["schemas"]
    for path in schema["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["description"]


def test_what_is_told_of_unknown_jobs_does_not_count(client, store, clock):
    store.append([GangReleased(id="x", at_s=clock.now_s(), job="ghost", attempt=1)], now_s=clock.now_s())
    assert client.get("/v1/summary").json()["states"] == {}


def test_of_many_checkpoints_the_story_tells_the_latest(client, kit, store, clock):
    from phalanx.model.event import GangProgress

    store.submit(kit.job("j1"), now_s=clock.now_s())
    told = [GangProgress(id=f"p{n}", at_s=clock.now_s(), job="j1", attempt=0, saved_work_s=n) for n in range(5)]
    store.append(told, now_s=clock.now_s())
    assert [entry["kind"] for entry in client.get("/v1/jobs/j1").json()["story"]] == ["submitted", "gang_progress"]
