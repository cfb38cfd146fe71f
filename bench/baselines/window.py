"""Part of a profile as a supply: what stays free on each host over a stretch of time."""

from __future__ import annotations

import numpy as np

from ...model.ids import TeamId
from ...model.job import Job, Role
from .booked import Booked
from .floor import Ints
from .profile import Profile, Use, cards_for, workers


class Window:
    """What is free in all slots from `start` up to `end`."""

    def __init__(self, profile: Profile, start: int, end: int) -> None:
        self._profile = profile
        self._free: Ints = profile.free[start:end].min(axis=0)
        self._taken: list[tuple[int, list[int]]] = []

    def room(self, role: Role, team: TeamId, gpu_type: str | None) -> Ints:
        """Workers of the role that each host takes for the whole stretch."""
        return workers(role.request, gpu_type, self._profile.kinds, self._free)

    def take(self, job: Job, role: Role, gpu_type: str | None, host: int, number: int) -> None:
        """Takes that many workers from the host."""
        request = role.request
        cards = cards_for(role, gpu_type, self._profile.kinds, self._free[:, host], number)
        amounts = [*cards, *(number * a for a in (request.cpu_milli, request.memory_mib, request.network_mbps))]
        self._free[:, host] -= amounts
        self._taken.append((host, amounts))

    def undo(self) -> None:
        """Gives back what was taken."""
        for host, amounts in self._taken:
            self._free[:, host] += amounts
        self._taken.clear()

    @property
    def use(self) -> Use:
        """What was taken of each host."""
        total: Use = {}
        for host, amounts in self._taken:
            name = self._profile.floor.hosts[host].id
            total[name] = [a + b for a, b in zip(total.get(name, [0] * len(amounts)), amounts, strict=True)]
        return total


class Promised:
    """What is free on the books now and stays free until an end: where a gang may start beside reservations."""

    def __init__(self, booked: Booked, window: Window) -> None:
        self._booked, self._window = booked, window

    def room(self, role: Role, team: TeamId, gpu_type: str | None) -> Ints:
        """Workers of the role that each host takes now and for the whole stretch."""
        both: Ints = np.minimum(self._booked.room(role, team, gpu_type), self._window.room(role, team, gpu_type))
        return both

    def take(self, job: Job, role: Role, gpu_type: str | None, host: int, number: int) -> None:
        """Takes that many workers from both."""
        self._booked.take(job, role, gpu_type, host, number)
        self._window.take(job, role, gpu_type, host, number)

    def undo(self) -> None:
        """Gives back to both."""
        self._booked.undo()
        self._window.undo()
