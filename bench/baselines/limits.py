"""When work must have ended: by its walltime limit, with the time to launch, to stop and to clean up."""

from __future__ import annotations

from ...model.job_state import JobState
from ...model.limits import ran_s, walltime_limit_s
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot

OVERRUN_S = 60
"""Work past its limit is expected to leave that many seconds from now."""


class Limits:
    """What a backfilling scheduler may rely on; estimates are for forecasts only, so it does not look at them."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._now_s, self._policy = snapshot.now_s, policy
        self._guaranteed = {team.id for team in snapshot.teams if team.guarantee}

    def length_s(self, record: JobRecord) -> int:
        """Seconds that a waiting gang holds its hosts if it starts, at most: launch, work left, grace and cleaning."""
        work_s = max(1, self._limit_s(record) - record.progress.saved_work_s)
        return self._policy.eviction.launch_s + work_s + self._leaving_s(record)

    def end_s(self, record: JobRecord) -> int:
        """When a gang that holds hosts has left them at the latest, in seconds since the epoch; always after now."""
        now_s = self._now_s
        if record.state is JobState.STOPPING:
            end_s = record.state_since_s + self._leaving_s(record)
        elif record.state is JobState.RUNNING:
            end_s = now_s + self._limit_s(record) - ran_s(record, now_s) + self._leaving_s(record)
        else:
            begun_s = now_s if record.planned_s is None else record.planned_s
            end_s = begun_s + self.length_s(record)
        return end_s if end_s > now_s else now_s + OVERRUN_S

    def _limit_s(self, record: JobRecord) -> int:
        return walltime_limit_s(record, record.job.team in self._guaranteed, self._policy)

    def _leaving_s(self, record: JobRecord) -> int:
        grace_s = record.job.checkpoint.grace_s if record.job.checkpoint else 0
        return grace_s + self._policy.eviction.clean_s
