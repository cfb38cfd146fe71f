"""Which gangs may go to the same places: their shapes, worked out once for the jobs of a snapshot."""

from __future__ import annotations

from ..model.host import Host
from ..model.job import Job
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .bars import Bars
from .confinements import confinements
from .demand import Confinement, allowed_sites
from .options import Shape
from .remember import remembered


class Shapes:
    """Gives each gang its shape on some hosts; equal shapes are one object, which is compared quickly."""

    def __init__(self, snapshot: Snapshot, policy: Policy, hosts: tuple[Host, ...], *, windows: bool = True) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._confinement = confinements(snapshot, policy)
        self.bar = Bars(snapshot, policy, hosts, windows=windows)
        # Only these stay as long as the snapshot, so that their identity says which they are.
        self._lasting = {id(record) for record in snapshot.jobs}
        self._known: dict[int, Shape] = {}
        self._same: dict[Shape, Shape] = {}

    def __call__(self, record: JobRecord, within: Confinement | None = None) -> Shape:
        """The shape of that gang; `within` replaces the confinement that its own demands give."""
        name = id(record)
        if within is not None or name not in self._lasting:
            return self._shape(record, within)
        if name not in self._known:
            self._known[name] = self._shape(record, None)
        return self._known[name]

    def confinement(self, job: Job) -> Confinement:
        """The confinement that the gang's own demands give."""
        return self._confinement(job)

    def _shape(self, record: JobRecord, within: Confinement | None) -> Shape:
        job = record.job
        sites = allowed_sites(job, self._snapshot, self._policy)
        shape = Shape.of(job, within or self._confinement(job), sites, self.bar(record))
        return self._same.setdefault(shape, shape)


@remembered
def shapes(snapshot: Snapshot, policy: Policy, hosts: tuple[Host, ...]) -> Shapes:
    """The shapes on these hosts, shared by all who ask."""
    return Shapes(snapshot, policy, hosts)
