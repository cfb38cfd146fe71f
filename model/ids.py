"""Names of things, as distinct types so that a checker notices a job's name used as a host's."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", str)
HostId = NewType("HostId", str)
SiteId = NewType("SiteId", str)
TeamId = NewType("TeamId", str)
ReservationId = NewType("ReservationId", str)
