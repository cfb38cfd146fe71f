"""The goals of a round as integer expressions, in their order (docs/rounds.md).

One function per term; the two at the end of the file are the table of contents. The same goals are stated a second
time, in plain Python, in `goals.py`; the two are compared after every solve.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ortools.sat.python.cp_model import IntVar, LinearExpr

from ..model.host import MILLI
from ..model.ids import TeamId
from ..model.topology import Layer
from . import objective_returning as returning
from .appetite import appetite
from .classes import Gang, WorkerClass
from .constraints.topology import by_domain
from .demand import candidates, loss
from .fetch import fetch_s
from .objective_planned import calm, keep, keep_levels, plan, plan_levels
from .order import Order, order, value_milli
from .room import Room
from .sizes import ways
from .variables import Variables

SECONDS = "mGPU*s"
CARDS = "mGPU"
WORKERS = "workers"
PLACES = "places"


@dataclass(slots=True)
class Sum:
    """A linear expression: constant + sum of coefficient * variable."""

    constant: int = 0
    terms: list[tuple[int, IntVar]] = field(default_factory=list)

    def add(self, coefficient: int, variable: IntVar) -> None:
        """Adds one term; a zero coefficient adds nothing."""
        if coefficient:
            self.terms.append((coefficient, variable))


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal: more is better."""

    name: str
    unit: str
    parts: dict[str, Sum]

    @property
    def level(self) -> int | None:
        """The level that it is a goal of, as `start[2]` is of 2; None for those of the whole round."""
        _, bracket, rest = self.name.partition("[")
        return int(rest[:-1]) if bracket else None

    @property
    def constant(self) -> int:
        """The part that no decision changes."""
        return sum(part.constant for part in self.parts.values())

    @property
    def terms(self) -> list[tuple[int, IntVar]]:
        """Coefficients and variables of all parts."""
        return [term for part in self.parts.values() for term in part.terms]


def _guarantee(level: int, variables: Variables) -> Sum:
    """milli-GPU that starts of the level gain inside guarantees, less what its victims and shrinkers there lose."""
    instance, total = variables.instance, Sum()
    for gang in instance.gangs:
        inside = variables.inside(gang)
        if inside is not None and gang.record.level == level:
            total.add(gang.record.job.gpu_milli, inside)
    for victim in instance.victims:
        if victim.level == level and victim.id in instance.rights.inside:
            total.add(-victim.job.gpu_milli, variables.evicted(victim.id))
    total.terms += returning.given_up(level, variables)
    return total


def _spare(level: int, variables: Variables) -> Sum:
    """What the victims of the level cost, and those that return smaller: GPUs over the horizon, and losses."""
    instance, total = variables.instance, Sum()
    for victim in instance.victims:
        if victim.level == level and victim.id not in instance.staying:
            milli = value_milli(victim, instance.policy)
            lost = loss(victim, milli, instance.snapshot.now_s, instance.policy)
            total.add(-(instance.policy.objective.horizon_s * milli + lost), variables.evicted(victim.id))
    total.terms += returning.shrinks(level, variables)
    return total


def _start(level: int, ranks: Order, variables: Variables) -> Sum:
    """H/100 * (weighted milli-GPU started at the level + fair-share credit of all teams down to this level)."""
    instance = variables.instance
    scale = instance.policy.objective.horizon_s // 100
    total = Sum()
    upward: dict[TeamId, list[tuple[int, IntVar]]] = defaultdict(list)
    for record, started in (start for gang in instance.gangs for start in variables.starts(gang)):
        milli = value_milli(record, instance.policy)
        if record.level == level:
            total.add(scale * milli * ranks.weight[record.id], started)
        if record.level >= level:
            upward[record.job.team].append((milli, started))
    for team, starts in sorted(upward.items()):
        _credit(level, team, starts, ranks, variables, scale, total)
    return total


def _credit(
    level: int,
    team: TeamId,
    starts: list[tuple[int, IntVar]],
    ranks: Order,
    variables: Variables,
    scale: int,
    total: Sum,
) -> None:
    """Fills the team's curve from its base: one portion per segment, all together what the team starts [milli-GPU].

    The weights fall from segment to segment, so a maximum fills them in order.
    """
    curve = ranks.curve[team]
    most = sum(milli for milli, _ in starts)
    low, portions = curve.base, []
    for number, (end, weight) in enumerate(zip(curve.ends, curve.weights, strict=True)):
        width = min(end - low, most)
        if width > 0 and weight > 0:
            portion = variables.model.new_int_var(0, width, f"credit[{level},{team},{number}]")
            portions.append(portion)
            total.add(scale * weight, portion)
            low = end
        low = max(low, end)
    if portions:
        variables.model.add(sum(portions) <= LinearExpr.weighted_sum([v for _, v in starts], [m for m, _ in starts]))


def _speed(variables: Variables) -> Sum:
    """Slower types of what starts; preferred layers left, pipelines cut, by returns as far as they change it."""
    total = Sum()
    fleet = {gpu_type for host in variables.instance.snapshot.hosts for gpu_type in host.gpu_types}
    for gang in variables.instance.coming:
        for workers in gang.workers:
            if gang.back is None:
                _slowness(workers, fleet, variables, total)
            _pipelines(gang, workers, variables, total)
        for layer in gang.confinement.preferred:
            _spread(gang, layer, variables, total)
    total.terms += returning.together(variables)
    return total


def _slowness(workers: WorkerClass, fleet: set[str], variables: Variables, total: Sum) -> None:
    """A worker on a slower type than the fastest of the fleet that it accepts loses that part of the horizon."""
    role = workers.role
    speeds = {t: speed for t in fleet if (speed := role.throughput_milli(t)) is not None}
    horizon = variables.instance.policy.objective.horizon_s
    for slot in workers.slots:
        if slot.kind is not None:
            best = max(speeds.values())
            lost = role.request.gpu_milli * horizon * (best - speeds[slot.kind.gpu_type]) // best
            total.add(-lost, variables.workers_at(workers, slot))


def _spread(gang: Gang, layer: Layer, variables: Variables, total: Sum) -> None:
    """Each domain of a preferred layer beyond the first costs `spread_s` of the gang."""
    model = variables.model
    price = variables.instance.policy.objective.spread_s * gang.record.job.gpu_milli
    reach: dict[str, list[tuple[int, IntVar]]] = defaultdict(list)
    for workers in gang.workers:
        for domain, counts in by_domain(variables.instance, workers, layer, variables).items():
            reach[domain].extend((workers.role.count, count) for count in counts)
    if price == 0 or len(reach) < 2:
        return
    for domain, counts in sorted(reach.items()):
        used = model.new_bool_var(f"used[{gang.id},{layer},{domain}]")
        for most, count in counts:
            model.add(count <= most * used)
        total.add(-price, used)
    total.add(price, variables.started(gang))


def _pipelines(gang: Gang, workers: WorkerClass, variables: Variables, total: Sum) -> None:
    """Each pipeline replica that is not wholly inside one domain costs `spread_s` of its GPUs, per layer."""
    parallelism = workers.role.parallelism
    if parallelism is None or parallelism.pipeline < 2:
        return
    size = parallelism.tensor * parallelism.pipeline
    price = variables.instance.policy.objective.spread_s * size * workers.role.request.gpu_milli
    for layer in (Layer.NVLINK, Layer.RACK, Layer.ZONE):
        total.add(-price * parallelism.data, variables.started(gang))
        for domain, counts in by_domain(variables.instance, workers, layer, variables).items():
            name = f"whole[{gang.id},{workers.role.name},{layer},{domain}]"
            whole = variables.model.new_int_var(0, parallelism.data, name)
            variables.model.add(size * whole <= sum(counts))
            total.add(price, whole)


def _scarce(variables: Variables) -> Sum:
    """GPUs cost more of a rarer type, up to `scarce_s`, and of one that jobs must have, up to `wanted_s`."""
    total = Sum()
    instance = variables.instance
    objective, wanted = instance.policy.objective, appetite(instance.snapshot).wanted
    counts = Counter(gpu.gpu_type for host in instance.snapshot.hosts for gpu in host.gpus if gpu.healthy)
    most = max(counts.values(), default=1)
    for gang in instance.gangs:
        for workers in gang.workers:
            milli = workers.role.request.gpu_milli
            for slot in workers.slots:
                if slot.kind is not None:
                    rarity = most - counts[slot.kind.gpu_type]
                    cost = milli * objective.scarce_s * rarity // most
                    cost += milli * objective.wanted_s * wanted[slot.kind.gpu_type] // MILLI
                    total.add(-cost, variables.workers_at(workers, slot))
    return total


def _fetch(variables: Variables) -> Sum:
    """Each worker waits until its host, a new one for its gang, has loaded the shards that it lacks of its data set."""
    total, instance = Sum(), variables.instance
    for gang in instance.coming:
        dataset = gang.record.job.dataset
        known = gang.back.placement.hosts if gang.back is not None and gang.back.placement is not None else ()
        for workers in gang.workers if dataset is not None else ():
            milli = workers.role.request.gpu_milli or instance.policy.order.cpu_worker_milli
            for slot in workers.slots:
                if slot.host not in known:
                    waited = fetch_s(instance.hosts[slot.host].host, dataset, instance.snapshot, instance.policy)
                    total.add(-milli * waited, variables.workers_at(workers, slot))
    return total


def _room(variables: Variables) -> Sum:
    """What could still start on the free cards of placeable hosts."""
    total = Sum()
    Room(variables, total).add()
    return total


def _queue_order(ranks: Order, variables: Variables) -> Sum:
    """Among equals the head of the queue first."""
    total = Sum()
    for gang in variables.instance.gangs:
        total.add(len(ranks.place) - ranks.place[gang.record.id], variables.started(gang))
    return total


def goals_of_levels(variables: Variables) -> tuple[Goal, ...]:
    """The goals of each level, the most important first. Creates the auxiliary variables that they need."""
    instance = variables.instance
    waiting = candidates(instance.snapshot)
    ranks = order(instance.snapshot, instance.policy)
    starting = {record.level for record in waiting}
    sparing = {victim.level for victim in instance.victims}
    covering = {r.level for r in waiting if any(instance.rights.can_be_inside(sized) for sized in ways(r))}
    covering |= {victim.level for victim in instance.victims if victim.id in instance.rights.inside}
    promised, named = keep_levels(variables), plan_levels(variables)
    listed = []
    for level in sorted(starting | sparing | promised | named, reverse=True):
        if level in promised:
            listed.append(Goal(f"keep[{level}]", CARDS, {"keep": Sum(terms=keep(level, variables))}))
        if level in covering:
            listed.append(Goal(f"guarantee[{level}]", CARDS, {"guarantee": _guarantee(level, variables)}))
        if level in sparing:
            listed.append(Goal(f"spare[{level}]", SECONDS, {"spare": _spare(level, variables)}))
        if level in named:
            listed.append(Goal(f"plan[{level}]", SECONDS, {"plan": Sum(terms=plan(level, variables))}))
        if level in starting:
            listed.append(Goal(f"start[{level}]", SECONDS, {"start": _start(level, ranks, variables)}))
    return tuple(listed)


def goals_of_the_round(variables: Variables) -> tuple[Goal, ...]:
    """The goals that come after those of the levels; the same of them."""
    instance = variables.instance
    waiting, ranks = candidates(instance.snapshot), order(instance.snapshot, instance.policy)
    listed = []
    moving = any(gang_way != job for job, found in instance.ways.items() for gang_way in found)
    if waiting or moving:
        economy = {
            "speed": _speed(variables),
            "scarce": _scarce(variables),
            "room": _room(variables),
            "fetch": _fetch(variables),
            **({"moves": Sum(terms=returning.moves(variables))} if moving else {}),
        }
        listed.append(Goal("economy", SECONDS, economy))
    if waiting:
        if keep_levels(variables):
            listed.append(Goal("calm", WORKERS, {"calm": Sum(terms=calm(variables))}))
        listed.append(Goal("order", PLACES, {"order": _queue_order(ranks, variables)}))
    return tuple(listed)
