"""`phalanx-bench families`: the joint optimum of one round against greedy packing, family by family."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

import click

from ..api.cli.files import read_policy
from ..api.cli.options import FILE, json_option, print_json
from ..model.decision import Decision, GoalStatus
from ..model.errors import InvalidInput
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.drains import named
from ..solver.solve import solve
from ..solver.verify import verify
from .baselines.fifo import best_fit_preempt
from .family import FAMILIES
from .machine import machine_facts
from .simulator import Scheduler
from .tables import Table, percent, share

JOINT, OWN, RIVAL = "joint", "own greedy", "best_fit_preempt"
METHODS = (JOINT, OWN, RIVAL)
PARTS = ("speed", "scarce", "room", "fetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """One method on one round: what its decision attains.

    `gpus` are GPUs started by level, highest first; `lost_gpu_min` GPU-minutes that its victims lose; `parts` those of
    the economy in GPU-hours; `planned_h` the hours until each planned start, of a method without plans those that a
    drain could promise after its starts; `goals` the values in their order; `proven` the share of proven
    goals.
    """

    family: str
    seed: int
    method: str
    gpus: tuple[float, ...]
    victims: int
    lost_gpu_min: float
    parts: dict[str, float]
    planned_h: tuple[float, ...]
    goals: tuple[int, ...]
    proven: float
    violations: int
    cpu_s: float


@click.command("families")
@click.option("--seeds", type=click.IntRange(1, 1_000), default=5, show_default=True, help="How many seeds, from 1 on.")
@click.option("--hosts", type=click.IntRange(8, 5_000), default=32, show_default=True, help="Hosts of 8 GPUs.")
@click.option("--only", metavar="NAMES", default="", help="Some families, parted by commas.")
@click.option("--policy", "policy_file", type=FILE, help="Policy in TOML or JSON.")
@json_option
def families_command(seeds: int, hosts: int, only: str, policy_file: Path | None, as_json: bool) -> int:
    """One round of each family under the joint optimum, Phalanx's own greedy and best fit with preemption.

    Exit code 1 if any decision broke a rule.
    """
    from .simulate import facts, show

    wanted = [name.strip() for name in only.split(",") if name.strip()] or list(FAMILIES)
    for name in wanted:
        if name not in FAMILIES:
            raise InvalidInput("--only", f"there is no family {name!r}", ", ".join(FAMILIES))
    found = solve_all(wanted, seeds, hosts, read_policy(policy_file))
    if as_json:
        print_json({"machine": machine_facts(), "rounds": [asdict(each) for each in found]})
    else:
        show(facts(), tables_of(found, hosts))
    return int(any(each.violations for each in found))


def solve_all(names: Sequence[str], seeds: int, hosts: int, policy: Policy) -> list[Solved]:
    """Every method on every seed of these families."""
    greedy = replace(policy, solve=replace(policy.solve, exact_columns=0))
    methods: dict[str, tuple[Scheduler, Policy]] = {
        JOINT: (solve, policy),
        OWN: (solve, greedy),
        RIVAL: (best_fit_preempt, policy),
    }
    return [
        _solved(name, seed, method, FAMILIES[name](random.Random(f"{seed}/{name}"), hosts), *methods[method])
        for name in names
        for seed in range(1, seeds + 1)
        for method in METHODS
    ]


def _solved(name: str, seed: int, method: str, snapshot: Snapshot, scheduler: Scheduler, policy: Policy) -> Solved:
    begun = time.process_time()
    decision = scheduler(snapshot, policy)
    cpu_s = time.process_time() - begun
    records = {record.id: record for record in snapshot.jobs}
    started = [records[start.job] for start in decision.starts]
    economy = next((goal for goal in decision.goals if goal.name == "economy"), None)
    return Solved(
        family=name,
        seed=seed,
        method=method,
        gpus=tuple(sum(r.job.gpu_milli for r in started if r.level == level) / 1000 for level in (3, 2, 1, 0)),
        victims=len(decision.preemptions),
        lost_gpu_min=sum(act.loss_gpu_s for act in decision.preemptions) / 60,
        parts={part.name: part.value / 3_600_000 for part in (economy.parts if economy else ())},
        planned_h=_planned_h(snapshot, policy, decision),
        goals=tuple(goal.value for goal in decision.goals),
        proven=mean([goal.status is GoalStatus.PROVEN for goal in decision.goals] or [1]),
        violations=len(verify(snapshot, policy, decision)),
        cpu_s=cpu_s,
    )


def _planned_h(snapshot: Snapshot, policy: Policy, decision: Decision) -> tuple[float, ...]:
    """Hours until each planned start; where none is planned, until those that the next round could promise at best."""
    plans = decision.reservations
    if not plans and named(snapshot, policy):
        starts = {start.job: start for start in decision.starts}
        records = tuple(
            replace(record, state=JobState.PLANNED, attempt=start.attempt, placement=start.placement)
            if (start := starts.get(record.id))
            else record
            for record in snapshot.jobs
        )
        plans = solve(replace(snapshot, jobs=records), policy).reservations
    return tuple((plan.planned_start_s - snapshot.now_s) / 3600 for plan in plans)


def tables_of(found: Sequence[Solved], hosts: int) -> list[Table]:
    """What each method attains, and how the joint decision compares with each greedy."""
    names = list(dict.fromkeys(each.family for each in found))
    return [_attained(found, names, hosts), _compared(found, names)]


def _attained(found: Sequence[Solved], names: Sequence[str], hosts: int) -> Table:
    rows = []
    for name in names:
        for method in METHODS:
            own = [each for each in found if each.family == name and each.method == method]
            rows.append(
                (
                    f"{name}: {method}",
                    f"{mean(sum(each.gpus) for each in own):.1f}",
                    f"{mean(each.victims for each in own):.1f}",
                    f"{mean(each.lost_gpu_min for each in own):,.0f}",
                    *(f"{mean(each.parts.get(part, 0.0) for each in own):.2f}" for part in PARTS),
                    _plans(own),
                    share(mean(each.proven for each in own)) if method == JOINT else "-",
                    f"{1000 * mean(each.cpu_s for each in own):,.0f} ms",
                )
            )
    seeds = len({each.seed for each in found})
    return Table(
        title=f"Families of rounds, {hosts} hosts of 8 GPUs",
        columns=("family: method", "GPUs started", "victims", "GPU-min lost", *PARTS, "plans", "proven", "CPU"),
        rows=tuple(rows),
        notes=(
            f"Means over {seeds} seed{'s' if seeds > 1 else ''}. GPU-min lost: work, restarts and handover of the "
            "victims, by the rules. The four parts of the economy are in GPU-hours, more is better. Plans: drains "
            "a round, and the hours until their starts; best fit plans nothing: what could be promised after it.",
        ),
    )


def _plans(own: Sequence[Solved]) -> str:
    planned = [hours for each in own for hours in each.planned_h]
    return f"{len(planned) / len(own):.1f} in {mean(planned):.2f} h" if planned else "-"


def _compared(found: Sequence[Solved], names: Sequence[str]) -> Table:
    by = {(each.family, each.seed, each.method): each for each in found}
    seeds = sorted({each.seed for each in found})
    groups = [(name, [name]) for name in names]
    if len(names) > 1:
        groups.append(("all of them", list(names)))
    rows = []
    for title, members in groups:
        for rival in (OWN, RIVAL):
            pairs = [(by[name, seed, JOINT], by[name, seed, rival]) for name in members for seed in seeds]
            better = sum(ours.goals > theirs.goals for ours, theirs in pairs)
            worse = sum(ours.goals < theirs.goals for ours, theirs in pairs)
            gpus = [sum(sum(each.gpus) for each in side) for side in zip(*pairs, strict=True)]
            equal = [(ours, theirs) for ours, theirs in pairs if ours.gpus == theirs.gpus]
            lost = [sum(pair[side].lost_gpu_min for pair in equal) for side in (0, 1)]
            rows.append(
                (
                    f"{title} against {rival}",
                    f"{better} / {len(pairs) - better - worse} / {worse}",
                    percent(gpus[0] / gpus[1] - 1) if gpus[1] else "-",
                    f"{len(equal)} of {len(pairs)}",
                    percent(lost[0] / lost[1] - 1) if lost[1] else "none lost",
                    _verdict(pairs),
                )
            )
    return Table(
        title="Joint against greedy",
        columns=(
            *("family", "better / equal / worse", "GPUs started", "equal starts", "GPU-min lost there", "greedy is"),
        ),
        rows=tuple(rows),
        notes=(
            "Better, equal, worse: the goals in their order, over seeds. Equal starts: the same GPUs at every level; "
            "what is lost is compared there alone. As good: the same GPUs at every level, the same loss, no later "
            "plans, no worse economy.",
        ),
    )


def _verdict(pairs: Sequence[tuple[Solved, Solved]]) -> str:
    """Whether the greedy is as good in what counts: GPUs at each level, loss, planned starts, the economy as a sum."""
    same = sum(
        ours.gpus == theirs.gpus
        and ours.lost_gpu_min == theirs.lost_gpu_min
        and sum(ours.planned_h) >= sum(theirs.planned_h)
        and _economy(ours) <= _economy(theirs)
        for ours, theirs in pairs
    )
    if same == len(pairs):
        return "as good"
    return f"as good in {same}" if same else "not as good"


def _economy(solved: Solved) -> float:
    return round(sum(solved.parts.values()), 6)
