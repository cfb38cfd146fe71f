"""The names under which an attempt's objects are found again in Ray."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.ids import HostId, JobId, SiteId


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of one site of one installation.

    The parts are joined by '/', which no name of ours may contain: with '-' the group of job `b-1` at site `a` could
    be taken for one of job `1` at site `a-b`.
    """

    namespace: str
    site: SiteId

    @property
    def space(self) -> str:
        """The Ray namespace."""
        return f"{self.namespace}/{self.site}"

    def group(self, job: JobId, attempt: int) -> str:
        """The placement group of an attempt."""
        return f"{self.space}/{job}/{attempt}"

    def runner(self, job: JobId, attempt: int, host: HostId) -> str:
        """The actor that runs an attempt's ranks on a host."""
        return f"{self.space}/{job}/{attempt}/{host}"

    def attempt_of(self, group: str) -> tuple[JobId, int] | None:
        """The attempt a group belongs to; None for a group that is not this site's."""
        prefix = f"{self.space}/"
        job, _, attempt = group.removeprefix(prefix).rpartition("/")
        if not group.startswith(prefix) or not job or "/" in job or not attempt.isdigit():
            return None
        return JobId(job), int(attempt)
