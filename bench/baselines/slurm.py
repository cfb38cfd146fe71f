"""Slurm's multifactor priority with its backfill plugin."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ...model.decision import Decision
from ...model.ids import JobId, TeamId
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...model.team import Team
from ...solver.demand import candidates
from ...solver.order import value_milli
from .backfill import backfill
from .decision import decision_of, preempting
from .evictor import SlurmEvictor
from .planner import Planner


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """`PriorityWeight...` of slurm.conf; every factor lies between 0 and 1.

    `qos` is so large that a tier outranks all else, as the tiers' rule demands. `max_age_s` is PriorityMaxAge,
    `half_life_s` PriorityDecayHalfLife, `max_job_test` bf_max_job_test: how many waiting jobs are planned for.
    """

    qos: int = 1_000_000
    fair_share: int = 10_000
    size: int = 1_000
    age: int = 500
    max_age_s: int = 7 * 86_400
    half_life_s: int = 7 * 86_400
    max_job_test: int = 500


class Slurm:
    """Slurm (manual pages "Multifactor Priority Plugin", "Fair Tree", "Scheduling Configuration Guide"; 24.05).

    Priority = weight x factor, summed over QOS (the tier), fair share (Fair Tree over the teams, use decaying with a
    half-life of 7 days), job size (share of the fleet's GPUs, large jobs first) and age (full after 7 days). The
    backfill plugin plans for the first `max_job_test` jobs in that order, afresh each round, each at the earliest time
    that limits promise, and starts a job where that delays the expected start of no job of higher priority.

    Deviations: a team stands for an account and its only user; equal siblings share a rank, equal accounts are not
    merged but visited by name. A team's own priorities permute its jobs of a tier among their places, as `scontrol top`
    does. bf_window is unlimited, for the manual advises it to be as long as the longest limit. Use is measured in GPUs
    held from round to round.

    `preempt` sets PreemptType=preempt/qos with PreemptMode=REQUEUE: each tier may stop the tiers below, victims queue
    again from their checkpoints, PreemptExemptTime is the rules' least run time, and what a gang that may preempt
    cannot get at once is planned as before. `SlurmEvictor` chooses the victims.
    """

    def __init__(self, weights: Weights | None = None, *, preempt: bool = False) -> None:
        self._weights = Weights() if weights is None else weights
        self._preempt = preempt
        self._use: dict[TeamId, float] = {}
        self._held: dict[TeamId, int] = {}
        self._at_s: int | None = None

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """One round."""
        self._account(snapshot, policy)
        priority = self.priorities(snapshot, policy)
        queue = _own_order(sorted(candidates(snapshot), key=lambda r: (-priority[r.id], r.submitted_s, r.id)))
        planner = Planner(snapshot, policy)
        evictor = SlurmEvictor(snapshot, policy, planner.placer) if self._preempt else None
        starts = backfill(planner, queue, self._weights.max_job_test, evictor)
        records = {record.id: record for record in snapshot.jobs}
        for start in starts:
            record = records[start.job]
            self._held[record.job.team] = self._held.get(record.job.team, 0) + value_milli(record, policy)
        if evictor is None:
            return decision_of(snapshot, policy, starts)
        return preempting(snapshot, policy, starts, (victim.id for victim in evictor.chosen))

    def priorities(self, snapshot: Snapshot, policy: Policy) -> dict[JobId, int]:
        """The priority of each waiting job, by the use accounted so far."""
        weights, shares = self._weights, fair_tree(_teams(snapshot), self._use)
        fleet = sum(host.gpu_milli for host in snapshot.hosts) or 1
        priority = {}
        for record in candidates(snapshot):
            age = min(1.0, max(0, snapshot.now_s - record.submitted_s) / weights.max_age_s)
            priority[record.id] = round(
                weights.qos * record.level / 3
                + weights.fair_share * shares[record.job.team]
                + weights.size * min(1.0, record.job.gpu_milli / fleet)
                + weights.age * age
            )
        return priority

    def _account(self, snapshot: Snapshot, policy: Policy) -> None:
        """Lets past use decay and adds what was held since the last round; a team's use starts at what it is told."""
        for team in snapshot.teams:
            self._use.setdefault(team.id, float(team.usage.gpu_milli_s))
        passed_s = 0 if self._at_s is None else snapshot.now_s - self._at_s
        decay = 0.5 ** (passed_s / self._weights.half_life_s)
        for name in {*self._use, *self._held}:
            self._use[name] = self._use.get(name, 0.0) * decay + self._held.get(name, 0) * passed_s
        self._at_s, self._held = snapshot.now_s, {}
        for record in snapshot.jobs:
            if record.state.holds_capacity:
                self._held[record.job.team] = self._held.get(record.job.team, 0) + value_milli(record, policy)


def fair_tree(teams: dict[TeamId, Team], use: dict[TeamId, float]) -> dict[TeamId, float]:
    """The fair-share factor of every team, above 0 and at most 1: its place in the Fair Tree over the number of teams.

    Siblings are visited by falling level fair share: norm shares / norm use among themselves, boundless without use.
    """
    children: dict[TeamId | None, list[Team]] = defaultdict(list)
    for team in teams.values():
        children[team.parent].append(team)
    total: dict[TeamId, float] = {}

    def below(team: Team) -> float:
        total[team.id] = use.get(team.id, 0.0) + sum(below(child) for child in children[team.id])
        return total[team.id]

    for team in children[None]:
        below(team)
    factor: dict[TeamId, float] = {}

    def visit(parent: TeamId | None, rank: int) -> int:
        siblings = children[parent]
        weight, used = sum(team.weight for team in siblings), sum(total[team.id] for team in siblings)

        def level(team: Team) -> float:
            return team.weight / weight / (total[team.id] / used) if total[team.id] else float("inf")

        before: tuple[float, int] | None = None
        for team in sorted(siblings, key=lambda team: (-level(team), team.id)):
            same = before is not None and before[0] == level(team) and not children[team.id]
            place = before[1] if same and before is not None else rank
            factor[team.id] = place / len(teams)
            before = None if children[team.id] else (level(team), place)
            rank = visit(team.id, rank - 1)
        return rank

    visit(None, len(teams))
    return factor


def _teams(snapshot: Snapshot) -> dict[TeamId, Team]:
    teams = {team.id: team for team in snapshot.teams}
    for record in snapshot.jobs:
        teams.setdefault(record.job.team, Team(id=record.job.team))
    return teams


def _own_order(queue: list[JobRecord]) -> list[JobRecord]:
    """The queue with each team's jobs of a level permuted among their places by the team's own priorities."""
    own: dict[tuple[TeamId, int], list[JobRecord]] = defaultdict(list)
    for record in queue:
        own[record.job.team, record.level].append(record)
    turns = {key: iter(sorted(jobs, key=lambda record: -record.job.priority)) for key, jobs in own.items()}
    return [next(turns[record.job.team, record.level]) for record in queue]
