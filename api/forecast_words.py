"""Forecasts in the words of the user."""

from __future__ import annotations

from datetime import UTC, datetime

from ..solver.forecast import Forecast, Unforecast
from .ui.render import duration

_WHY = {
    Unforecast.HELD: "starts once it is resumed: it is held",
    Unforecast.DEPENDENCY: "starts only after jobs of which no end can be told",
    Unforecast.NEVER_FITS: "cannot start on this fleet",
    Unforecast.NO_ROOM: "does not start even when all that runs has ended, on the hosts that take work now",
    Unforecast.EXPIRES: "is expected to pass its queue deadline before it starts",
    Unforecast.HORIZON: "does not start within the two weeks that a forecast looks ahead",
    Unforecast.STEPS: "starts later than the forecast looks ahead",
}
_DAY_S = 86_400


def sentence(entry: Forecast, now_s: int) -> str:
    """ "starts about 14:20 UTC (in 25 min)", without its subject; the date stands with it from a day on."""
    if entry.start_s is None:
        return _WHY[entry.why or Unforecast.STEPS]
    ahead_s = entry.start_s - now_s
    if ahead_s <= 0:
        return "starts with one of the next rounds"
    # Finer than a minute would pretend to know more than any estimate does.
    shown_s = ahead_s if ahead_s < 60 else (ahead_s + 30) // 60 * 60
    pattern = "%H:%M UTC" if ahead_s < _DAY_S else "%d %b %H:%M UTC"
    at = datetime.fromtimestamp(entry.start_s, UTC).strftime(pattern)
    return f"starts about {at} (in {duration(shown_s)})"
