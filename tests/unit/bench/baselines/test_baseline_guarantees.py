"""Rivals know guarantees as the engine does: who may take back what, and what nobody without a right may take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_worlds import POLICY, box, gang, queued, running, world

from phalanx.bench.baselines import BASELINES
from phalanx.model.decision import Decision
from phalanx.model.ids import TeamId
from phalanx.model.job import Preemptible
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.solver.verify import verify

Scheduler = Callable[[Snapshot, Policy], Decision]
TEAMS = (Team(id=TeamId("own"), guarantee=(GpuQuota(gpu_type="H100", gpu_milli=8_000),)), Team(id=TeamId("other")))
EVERY = pytest.mark.parametrize("name", ["best_fit_preempt", "easy_preempt", "slurm_preempt"])


def acts(name: str, snapshot: Snapshot) -> tuple[list[tuple[str, bool]], list[str]]:
    """Who starts, inside its guarantee or not, and who is stopped; the decision passes the verifier."""
    decision = BASELINES[name]()(snapshot, POLICY)
    assert verify(snapshot, POLICY, decision) == ()
    starts = sorted((start.job, start.inside_guarantee) for start in decision.starts)
    return starts, sorted(act.job for act in decision.preemptions)


def borrowed(**more: object) -> JobRecord:
    return running(gang("borrowed", 1, 8, team="other", tier=3, **more), ("h", range(8)), ran_s=3_600)


@EVERY
def test_a_team_takes_back_what_it_is_guaranteed(name: str) -> None:
    snapshot = world([box("h")], borrowed(), queued(gang("a", 1, 8, team="own", tier=3)), teams=TEAMS)
    assert acts(name, snapshot) == ([("a", True)], ["borrowed"])


@EVERY
def test_beyond_the_guarantee_there_is_no_right(name: str) -> None:
    inside = running(gang("inside", 1, 4, team="own", tier=3), ("g", range(4)), inside_guarantee=True)
    snapshot = world(
        [box("h"), box("g", 4)], borrowed(), inside, queued(gang("a", 1, 8, team="own", tier=3)), teams=TEAMS
    )
    assert acts(name, snapshot) == ([], [])


@EVERY
def test_inside_work_gives_way_to_tier_1_alone(name: str) -> None:
    inside = running(gang("inside", 1, 8, team="own", tier=3), ("h", range(8)), ran_s=3_600, inside_guarantee=True)
    two = world([box("h")], inside, queued(gang("b", 1, 8, team="other", tier=2)), teams=TEAMS)
    assert acts(name, two) == ([], [])
    one = world([box("h")], inside, queued(gang("b", 1, 8, team="other", tier=1)), teams=TEAMS)
    assert acts(name, one) == ([("b", False)], ["inside"])


@pytest.mark.parametrize("name", BASELINES)
def test_never_preemptible_work_of_low_tiers_starts_inside_only(name: str) -> None:
    jobs = [gang(team, 1, 8, team=team, tier=3, preemptible=Preemptible.NEVER) for team in ("own", "other")]
    snapshot = world([box("h"), box("g")], *(queued(job) for job in jobs), teams=TEAMS)
    assert acts(name, snapshot)[0] == [("own", True)]
