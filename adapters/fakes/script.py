"""How an attempt behaves on the fake executor, and how far it has come by the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...model.ids import HostId
from ...model.intent import Intent, RankExit
from ..booking import Booking


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How an attempt behaves. Times in seconds; `run_s` None runs until stopped.

    `codes` are exit codes by rank (0 where none is given), `stop_code` that of a rank which heeds the warning within
    `stop_s`. `refused` is why the launch fails; empty: it does not.
    """

    launch_s: int = 1
    run_s: int | None = None
    codes: tuple[int, ...] = ()
    stop_s: int = 1
    stop_code: int = 0
    ignores_warning: bool = False
    refused: str = ""


@dataclass(slots=True, kw_only=True)
class ScriptedGang:
    """One attempt that follows its script."""

    intent: Intent
    script: Script
    bookings: dict[HostId, Booking]
    launched_s: int | None = None
    stop_s: int | None = None
    grace_s: int = 0
    lost: HostId | None = None
    frozen_exits: dict[int, int] = field(default_factory=dict)

    def exits(self, now_s: int) -> tuple[RankExit, ...]:
        """The ranks that have ended by now."""
        for rank in range(len(self.intent.placement.workers)):
            code = self._code(rank, now_s)
            if code is not None:
                self.frozen_exits.setdefault(rank, code)
        return tuple(RankExit(rank=rank, code=code) for rank, code in sorted(self.frozen_exits.items()))

    def _code(self, rank: int, now_s: int) -> int | None:
        if self.launched_s is None:
            return None
        script = self.script
        up_s = self.launched_s + script.launch_s
        if script.run_s is not None and now_s >= up_s + script.run_s:
            return script.codes[rank] if rank < len(script.codes) else 0
        if self.stop_s is None:
            return None
        heeds = not script.ignores_warning and script.stop_s <= self.grace_s
        if heeds:
            return script.stop_code if now_s >= self.stop_s + script.stop_s else None
        return -9 if now_s >= self.stop_s + self.grace_s else None
