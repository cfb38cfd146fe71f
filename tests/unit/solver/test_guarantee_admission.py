"""Admission of jobs that must never be preempted: what no guarantee covers is refused, with the nearest that would do."""

from __future__ import annotations

import pytest
from small_worlds import POLICY, ask, box, gang, queued, role, world

from phalanx.model.decision import ReasonKind, RuleFamily
from phalanx.model.job import Preemptible
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.admission import Admission, admit
from phalanx.solver.evict import greedy_plan
from phalanx.solver.explain import reasons

FLEET = (*(box(f"h{n}") for n in range(2)), *(box(f"a{n}", gpu_type="A100") for n in range(2)))
LARGE = (*FLEET, box("b", 16, gpu_type="A100"))
LAB = Team(id="lab", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=8_000),))
TEAM = Team(id="team", parent="lab")


def judged(workers: int, gpus: float, types: tuple[str, ...] = (), **more: object) -> Admission:
    job = gang("a", workers, gpus, types, preemptible=Preemptible.NEVER, **more)
    return admit(job, world(FLEET, teams=(LAB, TEAM)), POLICY)


@pytest.mark.parametrize("types", [(), ("H100",), ("A100", "H100")])
def test_what_the_guarantee_of_a_team_above_covers_is_accepted(types: tuple[str, ...]) -> None:
    assert judged(8, 1, types).accepted
    assert judged(1, 8, types).accepted


def test_larger_than_the_guarantee_says_so_and_names_what_would_do() -> None:
    refused = judged(12, 1)
    assert refused.reason is not None
    assert (refused.accepted, refused.reason.families) == (False, (RuleFamily.GUARANTEE,))
    assert refused.nearest == "with 8 workers instead of 12"
    assert refused.reason.sentence == (
        "It is never to be preempted, so a guarantee must cover it: the guarantee of team lab has 8 H100, and it asks "
        "12. It could run with 8 workers instead of 12, or with preemptible: by_higher."
    )


def test_a_type_that_no_guarantee_has() -> None:
    refused = judged(1, 1, ("A100",))
    assert refused.reason is not None
    assert refused.reason.helps == ("on H100", "with preemptible: by_higher")
    assert "no guarantee of team team is of a GPU type that it accepts" in refused.reason.sentence


def test_a_job_without_gpus_has_nothing_to_be_covered() -> None:
    refused = judged(1, 0, request=ask(0))
    assert refused.reason is not None
    assert "it uses no GPUs" in refused.reason.sentence


def test_covered_by_a_type_that_is_too_small_for_it() -> None:
    small = Team(id="small", guarantee=(GpuQuota(gpu_type="T4", gpu_milli=8_000),))
    job = gang("a", 1, 8, preemptible=Preemptible.NEVER, team="small")
    fleet = (*FLEET, box("t0", 4, gpu_type="T4"))
    refused = admit(job, world(fleet, teams=(small,)), POLICY)
    assert not refused.accepted
    assert admit(
        gang("b", 1, 4, preemptible=Preemptible.NEVER, team="small"), world(fleet, teams=(small,)), POLICY
    ).accepted


def test_covered_on_a_type_of_which_the_fleet_has_too_few_says_which_and_what_would_do() -> None:
    large = Team(id="team", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=32_000),))
    job = gang("a", 24, 1, preemptible=Preemptible.NEVER)
    refused = admit(job, world(LARGE, teams=(large,)), POLICY)
    assert refused.reason is not None
    assert refused.reason.families == (RuleFamily.CAPACITY, RuleFamily.GUARANTEE)
    assert refused.reason.sentence == (
        "It can never start on this fleet: it asks 24 workers in the whole fleet (H100 only: no guarantee covers it on "
        "others); the most is 16 workers. It could run with 16 workers instead of 24, or with preemptible: by_higher."
    )


def test_roles_that_a_guarantee_covers_only_on_types_that_the_fleet_lacks() -> None:
    """Both on H100 is more than is guaranteed, and there are no L4."""
    teams = (Team(id="team", guarantee=tuple(GpuQuota(gpu_type=name, gpu_milli=8_000) for name in ("H100", "L4"))),)
    roles = (role("worker", 8, ask(1)), role("helper", 4, ask(1)))
    refused = admit(gang("a", roles=roles, preemptible=Preemptible.NEVER), world(FLEET, teams=teams), POLICY)
    assert refused.reason is not None
    assert "no L4" in refused.reason.sentence
    assert "with preemptible: by_higher" in refused.reason.helps


def test_a_job_demoted_for_money_needs_no_guarantee_and_a_waiting_one_hears_the_same() -> None:
    job = gang("a", 24, 1, preemptible=Preemptible.NEVER)
    teams = (Team(id="team", guarantee=(GpuQuota(gpu_type="H100", gpu_milli=32_000),)),)
    for demoted, kinds in ((False, [ReasonKind.NEVER_FITS]), (True, [])):
        snapshot = world(LARGE, queued(job, demoted=demoted), teams=teams)
        plan = greedy_plan(snapshot, POLICY)
        assert [reason.kind for reason in reasons(snapshot, POLICY, plan.starts)] == kinds


def test_production_needs_no_guarantee() -> None:
    assert judged(16, 1, tier=2).accepted
