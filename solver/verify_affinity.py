"""The verifier's half about anti-affinity: jobs that carry one label keep out of each other's domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.ids import JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .verify_rights import Sides, returning
from .violation import Violation

Place = tuple[str, Layer, str]
"""A label, a layer that some job names with it, and a domain of that layer."""


def affinity(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """No start comes where another job of its label is; a victim makes way for those that may evict it."""
    yield from Labelled(snapshot, starts, {act.job for act in preemptions}, resizes).together()


class Labelled:
    """Which jobs with a label have workers in which domains: those that stay, and those that start."""

    def __init__(
        self, snapshot: Snapshot, starts: Sequence[Start], gone: Collection[str], resizes: Sequence[Resize] = ()
    ) -> None:
        self._layers: dict[str, set[Layer]] = defaultdict(set)
        for record in snapshot.jobs:
            for rule in record.job.anti_affinity:
                self._layers[rule.label].add(rule.layer)
        self._staying: dict[Place, set[JobId]] = defaultdict(set)
        self._leaving: dict[Place, set[JobId]] = defaultdict(set)
        self._coming: dict[Place, set[JobId]] = defaultdict(set)
        if not self._layers:
            return
        self._paths = {host.id: host.path for host in snapshot.hosts}
        records = {record.id: record for record in snapshot.jobs}
        self._records, self._sides = records, Sides(snapshot, starts, resizes)
        leaving = {*gone, *(each.job for each in resizes)}
        for record in snapshot.jobs:
            here = self._leaving if record.id in leaving else self._staying
            for place in self.places(record, record.placement):
                here[place].add(record.id)
        for start in (*starts, *returning(resizes)):
            if start.job in records:
                for place in self.places(records[start.job], start.placement):
                    self._coming[place].add(start.job)

    def together(self) -> Iterator[Violation]:
        """Each domain into which a start comes that should keep out of it."""
        for place, coming in sorted(self._coming.items()):
            label, layer, domain = place
            going = [self._records[job] for job in self._leaving.get(place, ())]
            withheld = {other.id for job in coming for other in self._sides.barred(self._records[job], going)}
            # A job that returns where it was is one of those that come, not another.
            staying = self._staying.get(place, set()) | (withheld - coming)
            extra = len(coming) - (0 if staying else 1)
            if extra > 0:
                first, second = (min(staying), min(coming)) if staying else sorted(coming)[:2]
                text = (
                    f"jobs {first} and {second} carry the anti-affinity label {label!r} and would both run in "
                    f"{domain}; with it, one job alone may run in a {layer}"
                )
                yield Violation(family=RuleFamily.AFFINITY, subject=second, amount=extra, unit="jobs", message=text)

    def forbids(self, record: JobRecord) -> bool:
        """Whether another would come into a domain of that stopped job if it still ran."""
        return any(self._coming.get(place, set()) - {record.id} for place in self.places(record, record.placement))

    def put_back(self, record: JobRecord) -> None:
        """The job that stopped, or returned, still runs where it was."""
        for coming in self._coming.values():
            coming.discard(record.id)
        for place in self.places(record, record.placement):
            self._leaving[place].discard(record.id)
            self._staying[place].add(record.id)

    def places(self, record: JobRecord, placement: Placement | None) -> set[Place]:
        """The domains that the job would occupy there, for each of its labels."""
        labels = {rule.label for rule in record.job.anti_affinity}
        if not labels or placement is None:
            return set()
        return {
            (label, layer, self._paths[host].domain(layer, host))
            for label in labels
            for layer in self._layers[label]
            for host in placement.hosts
            if host in self._paths
        }
