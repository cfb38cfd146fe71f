"""The form of the what-if page, and the change that it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.change import MOST_ADDED, AddHosts, Change, ChangeHost, ChangeTeam
from ..model.codec import nearest
from ..model.errors import InvalidInput
from ..model.host import HostState
from ..model.ids import HostId, JobId, TeamId
from .units import whole


@dataclass(frozen=True, slots=True)
class Form:
    """The fields as typed; empty ones ask for nothing."""

    like: str = ""
    count: str = ""
    remove: str = ""
    state_host: str = ""
    state: str = ""
    team: str = ""
    weight: str = ""
    drop: str = ""

    @property
    def filled(self) -> bool:
        """Whether anything at all is asked."""
        return any((self.like, self.remove, self.state_host, self.team, self.drop))


def change_of(form: Form) -> Change:
    """The change that the filled fields ask for. Raises InvalidInput naming the field."""
    added: tuple[AddHosts, ...] = ()
    if form.like:
        count = whole("count", form.count or "1", "hosts", low=1)
        if count > MOST_ADDED:
            raise InvalidInput("count", f"{count} hosts at once", f"at most {MOST_ADDED}")
        added = (AddHosts(like=HostId(form.like.strip()), count=count),)
    hosts: tuple[ChangeHost, ...] = ()
    if form.state_host:
        known = {str(state): state for state in HostState}
        if form.state not in known:
            raise InvalidInput("state", f"{form.state!r} is no state of a host", nearest(form.state, known))
        hosts = (ChangeHost(host=HostId(form.state_host.strip()), state=known[form.state]),)
    teams: tuple[ChangeTeam, ...] = ()
    if form.team:
        weight = whole("weight", form.weight, "shares", low=1)
        teams = (ChangeTeam(team=TeamId(form.team.strip()), weight=weight),)
    return Change(
        add_hosts=added,
        remove_hosts=(HostId(form.remove.strip()),) if form.remove else (),
        hosts=hosts,
        remove_jobs=(JobId(form.drop.strip()),) if form.drop else (),
        teams=teams,
    )
