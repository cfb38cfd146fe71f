"""What of a round's fixed surroundings is lifted in a what-if world, to find why a gang waits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class World:
    """Which part of the round's fixed surroundings is lifted.

    `no_victims`: all jobs have left that the gang may evict; `no_lower`: all of lower levels, protected or not.
    """

    no_starts: bool = False
    no_running: bool = False
    all_hosts: bool = False
    no_victims: bool = False
    no_lower: bool = False
    no_limits: bool = False
    no_windows: bool = False
    no_reserve: bool = False
    number: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Worlds are looked up often.
        lifted = [getattr(self, each.name) for each in fields(self) if each.init]
        object.__setattr__(self, "number", sum(1 << place for place, yes in enumerate(lifted) if yes))

    def __hash__(self) -> int:
        return self.number

    def __or__(self, other: World) -> World:
        return World(
            self.no_starts or other.no_starts,
            self.no_running or other.no_running,
            self.all_hosts or other.all_hosts,
            self.no_victims or other.no_victims,
            self.no_lower or other.no_lower,
            self.no_limits or other.no_limits,
            self.no_windows or other.no_windows,
            self.no_reserve or other.no_reserve,
        )


NOW = World()
"""The round as it is."""
