"""What went wrong elsewhere with limits, and how limits, labels and windows meet in one round (K1, K4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from small_worlds import NOW_S, POLICY, ask, box, gang, queued, running, world

from phalanx.model.decision import Reason, ReasonKind, RuleFamily
from phalanx.model.host import Window
from phalanx.model.ids import TeamId
from phalanx.model.job import AntiAffinity, Preemptible
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer
from phalanx.solver.explain import reasons
from phalanx.solver.plan import Plan

Planned = Callable[[Snapshot], Plan]


def team(name: str, parent: str | None = None, h100: int | None = None) -> Team:
    limit = None if h100 is None else (GpuQuota(gpu_type="H100", gpu_milli=1_000 * h100),)
    return Team(id=TeamId(name), parent=parent and TeamId(parent), limit=limit)


def low(name: str, host: str, cards: Iterable[int], cpu: float = 1, **more: object) -> JobRecord:
    """A job of the lowest level that runs since an hour."""
    gpus = tuple(cards)
    job = gang(name, request=ask(len(gpus), cpu=cpu), **{"preemptible": Preemptible.ANYTIME, **more})
    return running(job, (host, gpus), ran_s=3_600)


def victims(plan: Plan) -> set[str]:
    return {act.job for act in plan.preemptions}


def hosts(plan: Plan) -> dict[str, set[str]]:
    return {start.job: set(start.placement.hosts) for start in plan.starts}


def why(snapshot: Snapshot, plan: Plan) -> dict[str, Reason]:
    return {reason.job: reason for reason in reasons(snapshot, POLICY, plan.starts, plan.preemptions)}


def test_k4_what_never_fits_its_limit_is_flagged_and_the_next_one_starts(planned: Planned) -> None:
    teams = [team("cohort", h100=3), team("a", "cohort"), team("b", "cohort")]
    lent = low("lent", "h1", [0], team="b")
    never, next_one = gang("a4", 1, 4, team="a", tier=1), gang("a3", 1, 3, team="a", tier=1)
    snapshot = world([box("h1", 8)], lent, queued(never, 5_000), queued(next_one, 10), teams=teams)
    plan = planned(snapshot)
    assert (set(hosts(plan)), victims(plan)) == ({"a3"}, {"lent"})
    (reason,) = why(snapshot, plan).values()
    assert (reason.job, reason.kind, reason.families) == ("a4", ReasonKind.NEVER_FITS, (RuleFamily.QUOTA,))
    assert "team cohort may hold 3 H100; it asks 4" in reason.sentence
    assert reason.helps == ("with 3 GPUs per worker",)


def test_k4_the_next_round_is_quiet(planned: Planned) -> None:
    teams = [team("cohort", h100=3), team("a", "cohort"), team("b", "cohort")]
    served = running(gang("a3", 1, 3, team="a", tier=1), ("h1", range(3)))
    waiting = queued(gang("a4", 1, 4, team="a", tier=1)), queued(gang("lent", 1, 1, team="b"))
    snapshot = world([box("h1", 8)], served, *waiting, teams=teams)
    plan = planned(snapshot)
    assert plan == Plan()
    told = why(snapshot, plan)["lent"]
    assert (told.kind, told.families, told.asked, told.available) == (ReasonKind.QUOTA, (RuleFamily.QUOTA,), 1_000, 0)
    assert told.sentence.startswith("Team cohort may hold 3 H100 and holds 3; it asks 1 more.")


def test_k1_one_victim_for_the_host_and_another_for_the_limit(planned: Planned) -> None:
    """Each host lacks CPU, and the cohort's GPUs are used up elsewhere."""
    teams = [team("cohort", h100=16), team("t", "cohort")]
    fleet = [box("h1", cpu_milli=8_000), box("h2", cpu_milli=8_000)]
    fleet += [box("g1", cpu_milli=1_000), box("g2", cpu_milli=1_000)]
    cpu = [low(f"cpu{n}", f"h{n}", [], cpu=5, team="t") for n in (1, 2)]
    gpu = [low(f"gpu{n}", f"g{n}", range(8), team="t") for n in (1, 2)]
    std = gang("std", request=ask(8, cpu=5), team="t", tier=1)
    snapshot = world(fleet, *cpu, *gpu, std, teams=teams)
    plan = planned(snapshot)
    (host,) = hosts(plan)["std"]
    gone = victims(plan)
    assert gone & {"cpu1", "cpu2"} == {f"cpu{host[1]}"}
    assert len(gone & {"gpu1", "gpu2"}) == 1
    assert len(gone) == 2
    assert set(plan.starts[0].after) == gone


def test_a_limit_of_others_lets_their_room_go_to_who_may_use_it(planned: Planned) -> None:
    teams = [team("x", h100=4), team("y")]
    jobs = [gang(f"x{n}", 1, 4, team="x") for n in range(2)] + [gang("y0", 1, 4, team="y")]
    snapshot = world([box("h1", 8)], *jobs, teams=teams)
    assert set(hosts(planned(snapshot))) in ({"x0", "y0"}, {"x1", "y0"})


def test_another_type_is_taken_where_the_limit_is_reached(planned: Planned) -> None:
    held = low("held", "h1", range(4), team="x")
    job = gang("j", 1, 4, ["H100", "A100"], team="x", preemptible=Preemptible.ANYTIME)
    snapshot = world([box("h1"), box("a1", gpu_type="A100")], held, job, teams=[team("x", h100=4)])
    assert hosts(planned(snapshot)) == {"j": {"a1"}}


def test_replicas_with_one_label_spread_over_racks_and_the_last_waits(planned: Planned) -> None:
    label = (AntiAffinity(label="web", layer=Layer.RACK),)
    fleet = [box("h1", rack="r1"), box("h2", rack="r1"), box("h3", rack="r2")]
    snapshot = world(fleet, *(gang(f"w{n}", anti_affinity=label) for n in range(3)))
    plan = planned(snapshot)
    racks = {"h1": "r1", "h2": "r1", "h3": "r2"}
    assert {racks[host] for used in hosts(plan).values() for host in used} == {"r1", "r2"}
    (reason,) = why(snapshot, plan).values()
    assert (reason.kind, reason.families) == (ReasonKind.AFFINITY, (RuleFamily.AFFINITY,))
    assert "with the label 'web' is in the rack of h" in reason.sentence


def test_a_labelled_job_of_a_lower_level_makes_way(planned: Planned) -> None:
    label = (AntiAffinity(label="web", layer=Layer.RACK),)
    fleet = [box("h1", rack="r1"), box("h2", rack="r1")]
    old = low("old", "h1", [0], anti_affinity=label)
    snapshot = world(fleet, old, gang("new", 1, 8, tier=1, anti_affinity=label))
    plan = planned(snapshot)
    assert (set(hosts(plan)), victims(plan)) == ({"new"}, {"old"})


def test_the_gap_before_maintenance_goes_to_who_ends_in_time(planned: Planned) -> None:
    window = Window(start_s=NOW_S + 7_270, end_s=NOW_S + 20_000)
    jobs = gang("long", 1, 8, walltime_limit_s=7_201), gang("short", 1, 8, walltime_limit_s=7_200)
    snapshot = world([box("h1", windows=(window,))], queued(jobs[0], 9_000), queued(jobs[1], 10))
    plan = planned(snapshot)
    assert hosts(plan) == {"short": {"h1"}}
    reason = why(snapshot, plan)["long"]
    assert reason.kind is ReasonKind.MAINTENANCE
    assert "room that went to jobs ahead of it" in reason.besides


def test_the_reason_names_the_window_and_a_limit_that_would_do(planned: Planned) -> None:
    window = Window(start_s=NOW_S + 7_270, end_s=NOW_S + 20_000)
    snapshot = world([box("h3", windows=(window,))], gang("j", 1, 8))
    plan = planned(snapshot)
    (reason,) = why(snapshot, plan).values()
    assert (reason.kind, reason.families) == (ReasonKind.MAINTENANCE, (RuleFamily.ELIGIBILITY,))
    assert reason.sentence == (
        "Host h3 enters maintenance at 1970-01-12 15:47 UTC, in 2 h 1 min; the job is surely over only in 1 d 1 min. "
        "It would start at once with a walltime limit of 2 h."
    )
