"""What ranks report: read whole, in half and as nonsense; and what of it becomes progress."""

import json

import pytest

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.progress import EVERY_S, ProgressReader
from phalanx.adapters.reports import RankSteps, Saved, last_saved, read_steps
from phalanx.model.decision import Certificate, Decision, Grain, Stage, Start
from phalanx.model.event import GangExited, GangRunning
from phalanx.model.host import Gpu, Host
from phalanx.model.intent import GangPhase, Observation, ObservedGang, RankExit
from phalanx.model.job import Command, Job, Role, WorkerRequest
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.team import Team
from phalanx.model.topology import Site, TopologyPath


def line(rank=0, steps=10, at_s=100.5, **more):
    parts = {"wait_s": 1.0, "compute_s": 8.0, "checkpoint_s": 0.5, "peers_s": 0.5, "longest_s": 2.0}
    head = {"version": 1, "at_s": at_s, "host": f"n{rank}", "rank": rank, "step": steps, "steps": steps}
    return json.dumps({**head, **parts, **more})


def write(folder, name, *lines):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a") as file:
        file.writelines(text + "\n" for text in lines)


class TestSteps:
    def test_lines_of_a_rank_add_up(self, tmp_path):
        write(tmp_path, "rank-00002.jsonl", line(2), line(2, step=20, at_s=110.0, longest_s=3.0))
        assert read_steps(tmp_path) == (
            RankSteps(
                rank=2,
                host="n2",
                steps=20,
                wait_us=2_000_000,
                compute_us=16_000_000,
                checkpoint_us=1_000_000,
                peers_us=1_000_000,
                longest_us=3_000_000,
                last_step=20,
                at_s=110,
            ),
        )
        assert read_steps(tmp_path)[0].own_us == 950_000

    def test_nonsense_is_left_out(self, tmp_path):
        nonsense = ["{", "[]", "7", '{"version": 2, "steps": 5}', line(steps=0), line(steps="many"), line(steps=True)]
        nonsense += [line(steps=-3), line().replace("10", "NaN"), "\xff"]
        write(tmp_path, "rank-00000.jsonl", *nonsense, line(wait_s=-1, compute_s="x", peers_s=1e300), line()[:30])
        (found,) = read_steps(tmp_path)
        assert (found.steps, found.wait_us, found.compute_us, found.peers_us) == (10, 0, 0, 0)
        write(tmp_path, "rank-00001.jsonl", *nonsense)
        write(tmp_path, "rank-x.jsonl", line())
        assert [each.rank for each in read_steps(tmp_path)] == [0]
        assert read_steps(tmp_path / "none") == ()

    def test_of_a_long_report_the_end_is_read(self, tmp_path):
        write(tmp_path, "rank-00000.jsonl", *(line(step=n) for n in range(10_000)))
        (found,) = read_steps(tmp_path)
        assert found.last_step == 9_999
        assert 100 < found.steps < 10_000

    def test_the_dataplanes_own_lines_are_read(self, tmp_path, monkeypatch):
        step_log = pytest.importorskip("phalanx.dataplane.step_log")
        from phalanx.dataplane.step_timer import StepTime

        for rank in range(3):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("PHALANX_HOST", "n1")
            log = step_log.StepLog(tmp_path)
            for _ in range(4):
                log.add(StepTime(0.25, 1.5 if rank == 1 else 0.75))
            log.flush()
        found = read_steps(tmp_path)
        assert [(each.rank, each.host, each.steps, each.wait_us) for each in found] == [
            (rank, "n1", 4, 1_000_000) for rank in range(3)
        ]
        assert step_log.stragglers(step_log.read_step_logs(tmp_path)) == [1]


def test_the_newest_checkpoint_counts(tmp_path, monkeypatch):
    assert last_saved(tmp_path) is None
    saved_log = pytest.importorskip("phalanx.dataplane.saved_log")
    assert not saved_log.report_checkpoint(1), "nobody asked for reports"
    monkeypatch.setenv("PHALANX_REPORT_DIR", str(tmp_path / "reports"))
    assert saved_log.report_checkpoint(5, 1_000.9)
    assert saved_log.report_checkpoint(9, 2_000.0)
    monkeypatch.setenv("RANK", "1")
    assert not saved_log.report_checkpoint(9, 3_000.0)
    write(tmp_path / "reports", "saved.jsonl", '{"version": 1, "at_s": "late", "step": 3}', '{"version"')
    assert last_saved(tmp_path / "reports") == Saved(step=9, at_s=2_000)


class Site1:
    """One job that runs since second 1,000; its attempt's reports."""

    def __init__(self, folder):
        self.folder, self.clock, self.store = folder, VirtualClock(990), MemoryStore(Policy())
        self.store.put_sites([Site(id="s")])
        self.store.put_teams([Team(id="t")])
        card = Gpu(index=0, gpu_type="H100", memory_mib=81_920)
        host = Host(id="h", path=TopologyPath(site="s"), gpus=(card,), cpu_milli=8_000, memory_mib=8_000)
        self.store.put_host(host, now_s=990)
        role = Role(request=WorkerRequest(gpu_milli=1000, cpu_milli=1000))
        self.store.submit(Job(id="j", team="t", roles=(role,), command=Command(argv=("true",))), now_s=990)
        self.begin(1, 1_000)

    def begin(self, attempt, at_s):
        self.clock.move_to(at_s)
        lease = self.store.acquire("scheduler", "x", ttl_s=60, now_s=at_s)
        snapshot = self.store.snapshot(at_s)
        seat = WorkerPlacement(role="worker", index=0, host="h", gpus=(0,))
        start = Start(job="j", attempt=attempt, placement=Placement(workers=(seat,)))
        certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
        decision = Decision(snapshot_version=snapshot.version, now_s=at_s, starts=(start,), certificate=certificate)
        assert self.store.commit(decision, snapshot, term=lease.term, now_s=at_s).committed
        self.tell([GangRunning(id=f"r{attempt}", at_s=at_s, job="j", attempt=attempt)])

    def tell(self, events):
        return self.store.append(events, now_s=self.clock.now_s())

    def saves(self, at_s, attempt=1, step=1):
        text = json.dumps({"version": 1, "at_s": at_s, "step": step})
        write(self.folder / "j" / str(attempt) / "reports", "saved.jsonl", text)

    def look(self, reader, at_s, attempt=1, **gang):
        """One step of the adapter; the seconds of work that are saved then."""
        self.clock.move_to(at_s)
        seen = ObservedGang(job="j", attempt=attempt, phase=GangPhase.RUNNING, **gang)
        found = reader.events(self.store.intents("s"), Observation(gangs=(seen,)), self.store.job, at_s)
        applied = self.tell(found)
        return self.store.job("j").progress.saved_work_s, applied


class TestProgress:
    @pytest.fixture
    def site(self, tmp_path):
        return Site1(tmp_path)

    def test_saved_work_counts_from_the_start_to_the_beginning_of_the_writing(self, site):
        reader = ProgressReader(site.folder)
        assert site.look(reader, 1_100) == (0, 0)
        site.saves(1_090.7)
        assert site.look(reader, 1_100) == (90, 1)
        assert site.look(reader, 1_101) == (90, 0)
        assert site.store.job("j").progress.last_checkpoint_s == 1_090
        site.saves(1_120)
        assert site.look(reader, 1_121) == (90, 0), "so soon it is not told again"
        assert site.look(reader, 1_100 + EVERY_S) == (120, 1)

    def test_what_is_saved_on_the_way_out_is_told_at_once(self, site):
        reader = ProgressReader(site.folder)
        site.saves(1_050)
        assert site.look(reader, 1_050) == (50, 1)
        site.store.hold("j", now_s=1_055)
        site.saves(1_056)
        assert site.look(reader, 1_058, stopping=True) == (56, 1)
        site.saves(1_059)
        assert site.look(reader, 1_060, exits=(RankExit(rank=0, code=0),)) == (59, 1)

    def test_a_restarted_adapter_and_a_repeated_line_tell_nothing_twice(self, site):
        site.saves(1_050)
        assert site.look(ProgressReader(site.folder), 1_060) == (50, 1)
        assert site.look(ProgressReader(site.folder), 1_070) == (50, 0)
        site.saves(1_050)
        assert site.look(ProgressReader(site.folder), 1_080) == (50, 0)

    def test_a_later_attempt_adds_to_what_earlier_ones_saved(self, site):
        from phalanx.model.event import GangReleased

        reader = ProgressReader(site.folder)
        site.saves(1_300)
        assert site.look(reader, 1_310) == (300, 1)
        lost = GangExited(id="x", at_s=1_400, job="j", attempt=1, lost_host="h")
        site.tell([lost, GangReleased(id="y", at_s=1_400, job="j", attempt=1)])
        site.begin(2, 1_500)
        site.saves(1_499, attempt=2)
        assert site.look(reader, 1_520, attempt=2) == (300, 0), "what was saved before it ran is not its own"
        site.saves(1_560, attempt=2)
        assert site.look(reader, 1_570, attempt=2) == (360, 1)

    def test_nothing_is_read_of_what_is_not_wanted(self, site):
        site.saves(1_050)
        assert ProgressReader(site.folder).events((), Observation(), site.store.job, 1_060) == ()
        gang = ObservedGang(job="j", attempt=1, phase=GangPhase.RUNNING)
        assert ProgressReader(site.folder).events((), Observation(gangs=(gang,)), site.store.job, 1_060) == ()
