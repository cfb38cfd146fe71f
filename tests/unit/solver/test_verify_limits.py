"""The verifier on limits, anti-affinity and maintenance windows: for each rule a case just inside and one just outside."""

from __future__ import annotations

import pytest
from small_worlds import NOW_S, POLICY, ask, begin, box, gang, queued, role, running, world

from phalanx.model.decision import Start
from phalanx.model.host import Host, Window
from phalanx.model.ids import JobId, TeamId
from phalanx.model.job import AntiAffinity, CheckpointPolicy, Preemptible
from phalanx.model.policy import EvictionPolicy, Policy, TimePolicy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer
from phalanx.solver.plan import assemble
from phalanx.solver.verify import verify_starts

Broken = list[tuple[str, str, int, str]]


def broken(snapshot: Snapshot, *starts: Start, victims: tuple[str, ...] = (), policy: Policy = POLICY) -> Broken:
    """Family, subject, amount and unit of each violation of a plan whose ties are stated rightly."""
    plan = assemble(snapshot, policy, starts, [JobId(name) for name in victims])
    found = verify_starts(snapshot, policy, plan.starts, plan.preemptions)
    assert all(violation.message and violation.amount > 0 for violation in found)
    return [(str(v.family), v.subject, v.amount, v.unit) for v in found]


def team(name: str, parent: str | None = None, **limit: int) -> Team:
    """A team that may hold that many milli-GPU of each type named; without any it has no limit."""
    quotas = tuple(GpuQuota(gpu_type=gpu_type, gpu_milli=milli) for gpu_type, milli in limit.items())
    return Team(id=TeamId(name), parent=parent and TeamId(parent), limit=quotas or None)


def runs(name: str, host: str, *gpus: int, gpu: float | None = None, **more: object) -> JobRecord:
    """A job of the lowest level that runs long enough to be evicted."""
    asked = ask(len(gpus) if gpu is None else gpu)
    return running(gang(name, request=asked, **{"preemptible": Preemptible.ANYTIME, **more}), (host, gpus), ran_s=3_600)


class TestQuota:
    LAB = (team("lab", H100=6_000), team("vision", "lab", H100=4_000, A100=1_000), team("speech", "lab"))

    def test_exactly_the_limit(self) -> None:
        job = gang("a", 1, 4, team="vision")
        snapshot = world([box("h1")], job, teams=self.LAB)
        assert broken(snapshot, begin(job, ("h1", range(4)))) == []

    def test_one_card_beyond_it(self) -> None:
        job = gang("a", 5, 1, team="vision")
        snapshot = world([box("h1")], job, teams=self.LAB)
        assert broken(snapshot, begin(job, *(("h1", [n]) for n in range(5)))) == [
            ("quota", "vision", 1_000, "milli-GPU")
        ]

    def test_a_tenth_of_a_card_beyond_it(self) -> None:
        job = gang("a", request=ask(0.1), team="vision")
        snapshot = world([box("h1")], runs("r", "h1", 0, 1, 2, 3, team="vision"), job, teams=self.LAB)
        assert broken(snapshot, begin(job, ("h1", [4]))) == [("quota", "vision", 100, "milli-GPU")]

    def test_what_the_team_holds_counts_for_the_team_above(self) -> None:
        job = gang("a", 1, 3, team="speech")
        fleet = [box("h1")]
        inside = world(fleet, runs("r", "h1", 5, 6, 7, team="vision"), job, teams=self.LAB)
        outside = world(fleet, runs("r", "h1", 4, 5, 6, 7, team="vision"), job, teams=self.LAB)
        start = begin(job, ("h1", range(3)))
        assert broken(inside, start) == []
        assert broken(outside, start) == [("quota", "lab", 1_000, "milli-GPU")]

    def test_two_starts_count_together(self) -> None:
        first, second = gang("a", 1, 3, team="vision"), gang("b", 1, 2, team="vision")
        snapshot = world([box("h1")], first, second, teams=self.LAB)
        starts = begin(first, ("h1", range(3))), begin(second, ("h1", [3, 4]))
        assert broken(snapshot, *starts) == [("quota", "vision", 1_000, "milli-GPU")]

    def test_types_that_a_limit_does_not_list_are_free(self) -> None:
        job = gang("a", 1, 8, team="speech")
        snapshot = world([box("a1", gpu_type="A100")], job, teams=self.LAB)
        assert broken(snapshot, begin(job, ("a1", range(8)))) == []

    def test_a_team_that_is_beyond_its_limit_already_is_judged_only_where_it_starts_something(self) -> None:
        ours, others = gang("a", 1, 1, team="vision"), gang("b", 1, 1, team="other")
        teams = (*self.LAB, team("other"))
        snapshot = world([box("h1"), box("h2")], runs("r", "h1", *range(8), team="vision"), ours, others, teams=teams)
        assert broken(snapshot, begin(others, ("h2", [0]))) == []
        assert broken(snapshot, begin(ours, ("h2", [0]))) == [
            ("quota", "lab", 1_000, "milli-GPU"),
            ("quota", "vision", 1_000, "milli-GPU"),
        ]

    def test_a_victim_anywhere_makes_way_and_is_not_needless(self) -> None:
        job = gang("a", 1, 4, team="vision", tier=1)
        snapshot = world([box("h1"), box("h2")], runs("r", "h2", 0, team="vision"), job, teams=self.LAB)
        start = begin(job, ("h1", range(4)))
        assert broken(snapshot, start) == [("quota", "vision", 1_000, "milli-GPU")]
        assert broken(snapshot, start, victims=("r",)) == []

    def test_a_victim_that_the_limit_has_room_for_is_needless(self) -> None:
        job = gang("a", 1, 3, team="vision", tier=1)
        snapshot = world([box("h1"), box("h2")], runs("r", "h2", 0, team="vision"), job, teams=self.LAB)
        assert broken(snapshot, begin(job, ("h1", range(3))), victims=("r",)) == [("preemption", "r", 1, "needless")]

    def test_what_a_victim_leaves_is_for_higher_levels_only(self) -> None:
        victim = runs("r", "h2", 0, 1, team="vision", preemptible=Preemptible.BY_HIGHER, tier=3)
        for cards, found in ((2, []), (3, [("quota", "vision", 1_000, "milli-GPU")])):
            high, equal = gang("a", 1, 4 - cards, team="vision", tier=1), gang("b", 1, cards, team="vision", tier=3)
            snapshot = world([box("h1"), box("h2")], victim, high, equal, teams=self.LAB)
            starts = begin(high, ("h1", range(4 - cards))), begin(equal, ("h1", range(4, 4 + cards)))
            assert broken(snapshot, *starts, victims=("r",)) == found


class TestAffinity:
    def label(self, layer: Layer, name: str = "web") -> tuple[AntiAffinity, ...]:
        return (AntiAffinity(label=name, layer=layer),)

    FLEET = (box("h1", rack="r1"), box("h2", rack="r1"), box("h3", rack="r2"))

    @pytest.mark.parametrize(
        ("layer", "host", "found"),
        [
            (Layer.HOST, "h2", []),
            (Layer.HOST, "h1", [("affinity", "a", 1, "jobs")]),
            (Layer.RACK, "h3", []),
            (Layer.RACK, "h2", [("affinity", "a", 1, "jobs")]),
            (Layer.SITE, "h3", [("affinity", "a", 1, "jobs")]),
        ],
    )
    def test_beside_a_running_job(self, layer: Layer, host: str, found: Broken) -> None:
        job = gang("a", anti_affinity=self.label(layer))
        snapshot = world(self.FLEET, runs("r", "h1", 0, anti_affinity=self.label(layer)), job)
        assert broken(snapshot, begin(job, (host, [7]))) == found

    def test_the_layer_that_either_names_counts_for_both(self) -> None:
        job = gang("a", anti_affinity=self.label(Layer.HOST))
        snapshot = world(self.FLEET, runs("r", "h1", 0, anti_affinity=self.label(Layer.RACK)), job)
        assert broken(snapshot, begin(job, ("h2", [0]))) == [("affinity", "a", 1, "jobs")]
        assert broken(snapshot, begin(job, ("h3", [0]))) == []

    def test_other_labels_and_jobs_without_one_do_not_matter(self) -> None:
        job, plain = gang("a", anti_affinity=self.label(Layer.SITE)), gang("b")
        snapshot = world(self.FLEET, runs("r", "h1", 0, anti_affinity=self.label(Layer.SITE, "db")), job, plain)
        assert broken(snapshot, begin(job, ("h1", [1])), begin(plain, ("h1", [2]))) == []

    def test_two_starts(self) -> None:
        jobs = [gang(name, anti_affinity=self.label(Layer.RACK)) for name in "abc"]
        snapshot = world(self.FLEET, *jobs)
        apart = begin(jobs[0], ("h1", [0])), begin(jobs[1], ("h3", [0]))
        assert broken(snapshot, *apart) == []
        assert broken(snapshot, *apart, begin(jobs[2], ("h2", [0]))) == [("affinity", "c", 1, "jobs")]

    def test_a_gang_is_not_kept_from_itself(self) -> None:
        job = gang("a", 2, 1, anti_affinity=self.label(Layer.HOST))
        assert broken(world(self.FLEET, job), begin(job, ("h1", [0]), ("h1", [1]))) == []

    def test_running_jobs_that_are_together_already_are_not_at_fault(self) -> None:
        job = gang("a")
        pair = [runs(name, "h1", n, anti_affinity=self.label(Layer.HOST)) for n, name in enumerate("rq")]
        assert broken(world(self.FLEET, *pair, job), begin(job, ("h1", [7]))) == []

    def test_a_victim_makes_way_for_a_higher_level_and_is_not_needless(self) -> None:
        job = gang("a", tier=1, anti_affinity=self.label(Layer.RACK))
        snapshot = world(self.FLEET, runs("r", "h1", 0, anti_affinity=self.label(Layer.RACK)), job)
        assert broken(snapshot, begin(job, ("h2", [0])), victims=("r",)) == []

    def test_it_does_not_for_its_own_level(self) -> None:
        label = self.label(Layer.HOST)
        high = gang("b", 1, 8, tier=1)
        victim = runs("r", "h1", 0, tier=3, preemptible=Preemptible.BY_HIGHER, anti_affinity=label)
        readers = role("reader", 1, ask(0))
        equal = gang("a", roles=(readers,), tier=3, anti_affinity=label)
        snapshot = world(self.FLEET, victim, equal, high)
        starts = begin(equal, ("h1", ())), begin(high, ("h1", range(8)))
        assert ("affinity", "a", 1, "jobs") in broken(snapshot, *starts, victims=("r",))


class TestWindows:
    """Launch 30 s, grace 30 s and cleaning 10 s come on top of the walltime limit."""

    def placed(
        self, *windows: tuple[int, int], policy: Policy = POLICY, demoted: bool = False, **job: object
    ) -> Broken:
        asked = gang("a", **job)
        snapshot = world([self.host(*windows)], queued(asked, demoted=demoted))
        return broken(snapshot, begin(asked, ("h1", [0])), policy=policy)

    def host(self, *windows: tuple[int, int]) -> Host:
        return box("h1", windows=tuple(Window(start_s=NOW_S + start, end_s=NOW_S + end) for start, end in windows))

    def test_to_the_second(self) -> None:
        assert self.placed((3_670, 9_000), walltime_limit_s=3_600) == []
        assert self.placed((3_670, 9_000), walltime_limit_s=3_601) == [("eligibility", "a", 1, "s")]

    def test_grace_launch_and_cleaning_count(self) -> None:
        saves = CheckpointPolicy(interval_s=60, grace_s=100)
        policy = Policy(eviction=EvictionPolicy(launch_s=5, clean_s=7))
        late = {"walltime_limit_s": 1_000, "checkpoint": saves, "policy": policy}
        assert self.placed((1_112, 9_000), **late) == []
        assert self.placed((1_111, 9_000), **late) == [("eligibility", "a", 1, "s")]

    def test_the_pool_s_maximum_where_the_job_has_no_limit(self) -> None:
        policy = Policy(time=TimePolicy(limit_shared_s=500, limit_preemptible_s=200))
        assert self.placed((570, 9_000), policy=policy) == []
        assert self.placed((569, 9_000), policy=policy) == [("eligibility", "a", 1, "s")]
        assert self.placed((270, 9_000), policy=policy, preemptible=Preemptible.ANYTIME) == []
        assert self.placed((570, 9_000), policy=policy, demoted=True) == []
        assert self.placed((270, 9_000), policy=policy, demoted=True) == [("eligibility", "a", 300, "s")]

    def test_a_window_that_has_begun_takes_nobody_and_one_that_is_over_everybody(self) -> None:
        assert self.placed((-5, 1), walltime_limit_s=60) == [("eligibility", "a", 135, "s")]
        assert self.placed((-5, 0), walltime_limit_s=60) == []

    def test_the_first_window_ahead_counts(self) -> None:
        assert self.placed((9_000, 9_100), (200, 300), walltime_limit_s=3_600) == [("eligibility", "a", 3_470, "s")]

    def test_only_its_own_hosts_windows_count(self) -> None:
        job = gang("a")
        snapshot = world([self.host((10, 20)), box("h2")], job)
        assert broken(snapshot, begin(job, ("h2", [0]))) == []
