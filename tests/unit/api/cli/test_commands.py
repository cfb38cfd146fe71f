"""The commands that look at and steer a running service."""

import json

import pytest


@pytest.fixture
def queue(store, kit):
    """Three jobs: one waits, one is held, one is cancelled."""
    for name in ("j1", "j2", "j3"):
        store.submit(kit.job(name), now_s=kit.now_s)
    store.hold("j2", now_s=kit.now_s)
    store.cancel("j3", now_s=kit.now_s)
    return store


def test_jobs_lists_newest_first(phalanx, queue) -> None:
    told = phalanx("jobs")
    assert told.code == 0
    lines = [line.split()[:2] for line in told.out.splitlines() if line.strip()[:2] in ("j1", "j2", "j3")]
    assert sorted(lines) == [["j1", "queued"], ["j2", "held"], ["j3", "cancelled"]]


def test_jobs_filters_and_pages(phalanx, queue) -> None:
    assert [job["id"] for job in json.loads(phalanx("jobs", "--json", "--state", "held").out)["jobs"]] == ["j2"]
    page = json.loads(phalanx("jobs", "--json", "--limit", "2").out)
    assert (len(page["jobs"]), page["more"]) == (2, True)
    assert json.loads(phalanx("jobs", "--json", "--team", "speech").out)["jobs"] == []
    assert phalanx("jobs", "--state", "quedue").code == 2


def test_job_shows_everything(phalanx, queue) -> None:
    told = phalanx("job", "j1")
    assert (told.code, "j1 is queued" in told.out, "vision" in told.out) == (0, True, True)
    assert json.loads(phalanx("job", "j1", "--json").out)["spec"]["kind"] == "phalanx.job"
    assert phalanx("job", "ghost").code == 2


def test_job_shows_where_its_steps_go(phalanx, queue, settings) -> None:
    folder = settings.log_dir / "j1" / "0" / "reports"
    folder.mkdir(parents=True)
    for rank, compute in enumerate((7, 7, 9)):
        times = {"wait_s": 1, "compute_s": compute, "checkpoint_s": 0, "peers_s": 9 - compute, "longest_s": 1}
        line = {"version": 1, "at_s": 9, "host": f"n{rank}", "rank": rank, "step": 50, "steps": 10, **times}
        (folder / f"rank-{rank:05d}.jsonl").write_text(json.dumps(line))
    told = " ".join(phalanx("job", "j1").out.split())
    assert "76.7 % computing, 10.0 % waiting for batches, 0.0 % in checkpoints, 13.3 % waiting for slower" in told
    assert "rank 2 on n2 (1.25 times the median)" in told


def test_hosts_show_what_they_load(phalanx, queue, kit, clock) -> None:
    from dataclasses import replace

    from phalanx.model.event import AgentReport
    from phalanx.model.job import DatasetRef
    from phalanx.model.placement import Placement, WorkerPlacement
    from phalanx.model.reservation import Reservation

    queue.submit(replace(kit.job("big"), dataset=DatasetRef(name="eeg", size_mib=2_048)), now_s=kit.now_s)
    report = AgentReport(id="a", at_s=kit.now_s, host="n1", site="north", disk_free_mib=9_000)
    queue.append([report], now_s=kit.now_s)
    seat = Placement(workers=(WorkerPlacement(role="worker", index=0, host="n1", gpus=(0,)),))
    plan = Reservation(id="big", job="big", placement=seat, planned_start_s=kit.now_s + 60, created_s=kit.now_s)
    lease = queue.acquire("scheduler", "test", ttl_s=60, now_s=kit.now_s)
    snapshot = queue.snapshot(kit.now_s)
    queue.commit(kit.decision(snapshot, reservations=(plan,)), snapshot, term=lease.term, now_s=kit.now_s)
    told = " ".join(phalanx("hosts").out.split())
    assert "loads eeg, 2.0 GiB, for" in told


def test_steering(phalanx, queue) -> None:
    assert phalanx("hold", "j1").out == "j1 is held\n"
    assert phalanx("resume", "j1", "j2").out == "j1 is queued\nj2 is queued\n"
    assert phalanx("priority", "j1", "-7").out == "j1 has priority -7\n"
    assert queue.job("j1").job.priority == -7
    assert phalanx("cancel", "j1", "--json").code == 0
    assert queue.job("j1").state == "cancelled"
    assert phalanx("priority", "j1", "x").code == 2


def test_an_illegal_step_is_refused(phalanx, queue) -> None:
    assert phalanx("hold", "j3").code == 4


def test_why(phalanx, queue, kit, clock, settings) -> None:
    from phalanx.adapters.ports import RoundRecord

    told = phalanx("why", "j1")
    assert (told.code, "no round" in told.out) == (0, True)
    decided = kit.decision(queue.snapshot(kit.now_s), waiting=(kit.busy("j1", 2),))
    queue.record_round(RoundRecord(number=0, at_s=kit.now_s, outcome="committed", decision=decided))
    told = phalanx("why", "j1")
    assert "2 GPUs are asked; none is free." in told.out
    assert "would help: n1 to become free" in told.out
    assert json.loads(phalanx("why", "j1", "--json").out)["reason"]["kind"] == "busy"
    assert "does not wait" in phalanx("why", "j3").out


def test_logs(phalanx, queue, settings) -> None:
    assert phalanx("logs", "j1", "--attempt", "1").code == 2
    folder = settings.log_dir / "j1" / "0"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("one\ntwo\nthree\n")
    assert phalanx("logs", "j1", "--tail", "2").out == "two\nthree\n"
    assert json.loads(phalanx("logs", "j1", "--json").out)["lines"] == ["one", "two", "three"]
    assert phalanx("logs", "j1", "--rank", "5").code == 2


def test_followed_logs_print_each_line_once(phalanx, queue, settings, monkeypatch) -> None:
    folder = settings.log_dir / "j1" / "0"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("one\n")

    def more(_seconds: float) -> None:
        with (folder / "0.log").open("a") as file:
            file.write("two\nthree\n")
        queue.cancel("j1", now_s=queue.job("j1").submitted_s + 1)

    monkeypatch.setattr("phalanx.api.cli.logs.time.sleep", more)
    assert phalanx("logs", "j1", "-f").out == "one\ntwo\nthree\n"


def test_fresh_lines() -> None:
    from phalanx.api.cli.logs import fresh

    assert fresh([], ["a"]) == ["a"]
    assert fresh(["a", "b"], ["a", "b"]) == []
    assert fresh(["a", "b"], ["b", "c"]) == ["b", "c"]
    assert fresh([str(i) for i in range(30)], [str(i) for i in range(5, 33)]) == ["30", "31", "32"]


def test_hosts(phalanx, store) -> None:
    told = phalanx("hosts")
    assert told.code == 0
    assert "3 hosts, 0 of 8 GPUs in use" in told.out
    assert "2 x H100" in told.out
    assert [host["id"] for host in json.loads(phalanx("hosts", "--json", "--site", "south").out)["hosts"]] == ["s1"]
    assert phalanx("cordon", "n1", "--cause", "fan").out == "n1 is cordoned\n"
    assert "cordoned (fan)" in phalanx("hosts").out
    assert phalanx("uncordon", "n1").out == "n1 is ready\n"
    assert phalanx("cordon", "ghost").code == 2


@pytest.mark.parametrize("line", [("jobs",), ("job", "j"), ("hosts",), ("cancel", "j"), ("logs", "j"), ("why", "j")])
def test_without_a_service_each_says_so(bare, line) -> None:
    told = bare(*line, "--url", "http://127.0.0.1:9")
    assert (told.code, told.out, "no answer" in told.err) == (3, "", True)


def test_a_token_is_needed_where_one_is_set(bare, settings, store, clock, monkeypatch) -> None:
    import dataclasses

    import httpx

    from phalanx.api.app import create_app
    from phalanx.model.policy import Policy

    app = create_app(dataclasses.replace(settings, token="secret"), store, Policy(), clock)

    class Wire:
        def __init__(self, *, base_url, headers, **_) -> None:
            self._options = {"base_url": base_url, "headers": headers}

        def request(self, method, path, **more):
            import asyncio

            async def call():
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), **self._options) as http:
                    return await http.request(method, path, **more)

            return asyncio.run(call())

    monkeypatch.setattr("phalanx.api.cli.client.httpx.Client", Wire)
    assert bare("jobs").code == 4
    assert bare("jobs", "--token", "secret").code == 0
