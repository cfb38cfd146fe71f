"""Amounts as people write them ("4h", "80GiB", 0.5) become the integers of the books, without float arithmetic."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from ..model.check import MAX_AMOUNT
from ..model.errors import InvalidInput

DURATIONS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
"""Seconds of each unit of time."""

MEMORIES = {
    "K": 2**10,
    "KiB": 2**10,
    "M": 2**20,
    "MiB": 2**20,
    "G": 2**30,
    "GiB": 2**30,
    "T": 2**40,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
"""Bytes of each unit of memory; the bare letters are binary, as in Slurm."""

BANDWIDTHS = {"Mbps": 1, "Mbit/s": 1, "Gbps": 1_000, "Gbit/s": 1_000, "Tbps": 1_000_000, "Tbit/s": 1_000_000}
"""Mbit/s of each unit of bandwidth."""

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+(?:/[a-z]+)?)\s*")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2}):(\d{2})")
_LONG = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_MIB = 2**20


def duration_s(field: str, value: Any) -> int:
    """Whole seconds of "90s", "1h30m", "1.5h", "2d" or Slurm's "2-00:00:00" and "04:00:00".

    Raises InvalidInput for a number without a unit, an unknown unit, or what is not whole seconds.
    """
    right = 'a time with its unit: s, m, h, d or w, such as "90s", "4h", "1h30m" or "2-00:00:00"'
    text = _text(field, value, right)
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return _bounded(field, text, Decimal(days * 86_400 + hours * 3_600 + minutes * 60 + seconds), "s")
    total = sum(
        (amount * _unit(field, text, unit, DURATIONS, right) for amount, unit in _parts(field, text, right)), Decimal()
    )
    return _whole(field, text, total, "seconds", right)


def memory_mib(field: str, value: Any) -> int:
    """Whole MiB of "80GiB", "512MiB", "1TiB", "64G" (binary, as in Slurm) or "80GB" (10^9 bytes, rounded up to MiB).

    Raises InvalidInput for a number without a unit, an unknown unit, or an amount out of range.
    """
    right = 'an amount with its unit: MiB, GiB, TiB, M, G, T, MB, GB or TB, such as "80GiB"'
    text = _text(field, value, right)
    parts = _parts(field, text, right)
    if len(parts) != 1:
        raise InvalidInput(field, f"{text!r} is not one amount of memory", right)
    amount, unit = parts[0]
    size = amount * _unit(field, text, unit, MEMORIES, right)
    return _bounded(field, text, (size / _MIB).to_integral_value(ROUND_CEILING), "MiB")


def bandwidth_mbps(field: str, value: Any) -> int:
    """Whole Mbit/s of "100Gbps", "100Gbit/s" or "400Mbps". Raises InvalidInput as `memory_mib` does."""
    right = 'a bandwidth with its unit: Mbps, Gbps, Tbps (bits, not bytes), such as "100Gbps"'
    text = _text(field, value, right)
    parts = _parts(field, text, right)
    if len(parts) != 1:
        raise InvalidInput(field, f"{text!r} is not one bandwidth", right)
    amount, unit = parts[0]
    return _whole(field, text, amount * _unit(field, text, unit, BANDWIDTHS, right), "Mbit/s", right)


def milli(field: str, value: Any, what: str = "GPUs") -> int:
    """Thousandths of a count of cards or cores: 8, 0.5, "0.125" or "500m" give 8000, 500, 125 and 500.

    Raises InvalidInput for text that is no number, a negative one, or one finer than a thousandth.
    """
    right = f'a number of {what}, such as 8 or 0.5, at most three digits after the point (or "500m" for 0.5)'
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise InvalidInput(field, f"{_shown(value)} is not a number of {what}", right)
    text = str(value).strip()
    scale = 1000
    if isinstance(value, str) and text.endswith("m"):
        text, scale = text[:-1], 1
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise InvalidInput(field, f"{_shown(value)} is not a number of {what}", right) from None
    if not amount.is_finite():
        raise InvalidInput(field, f"{_shown(value)} cannot be booked", right)
    if amount < 0:
        raise InvalidInput(field, f"{text} {what} is negative", right)
    return _whole(field, text, amount * scale, "thousandths", right)


def whole(field: str, value: Any, what: str, low: int = 0) -> int:
    """A whole number at least `low`, from a number or its text. Raises InvalidInput."""
    right = f"a whole number of {what}, at least {low}"
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,15}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"{_shown(value)} is not a whole number", right)
    if not low <= value <= MAX_AMOUNT:
        raise InvalidInput(field, f"{value} {what} is out of range", right)
    return value


def _text(field: str, value: Any, right: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidInput(field, f"{_shown(value)} is not an amount", right)
    text = str(value).strip()
    if text.startswith("-"):
        raise InvalidInput(field, f"{_shown(value)} is negative", right)
    if not isinstance(value, str) or re.fullmatch(r"[\d.]+", text):
        raise InvalidInput(field, f"{_shown(value)} has no unit", right)
    return text


def _parts(field: str, text: str, right: str) -> list[tuple[Decimal, str]]:
    parts = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or len(text) > 100:
            raise InvalidInput(field, f"{_shown(text)} is not an amount", right)
        parts.append((Decimal(part[1]), part[2]))
        at = part.end()
    if not parts:
        raise InvalidInput(field, "the text is empty", right)
    return parts


def _unit(field: str, text: str, unit: str, known: dict[str, int], right: str) -> int:
    """The factor of a unit; case is forgiven where it cannot be mistaken (gib, H), never between units."""
    if unit in known:
        return known[unit]
    singular = unit.lower().removesuffix("s") if len(unit) > 1 else unit.lower()
    wanted = _LONG.get(singular, unit) if known is DURATIONS else unit
    same = {factor for name, factor in known.items() if name.lower() == wanted.lower()}
    if len(same) != 1:
        raise InvalidInput(field, f"{_shown(text)} has the unknown unit {unit!r}", right)
    return same.pop()


def _whole(field: str, text: str, amount: Decimal, unit: str, right: str) -> int:
    if amount != amount.to_integral_value():
        raise InvalidInput(field, f"{_shown(text)} is not a whole number of {unit}", right)
    return _bounded(field, text, amount, unit)


def _bounded(field: str, text: str, amount: Decimal, unit: str) -> int:
    if amount > MAX_AMOUNT:
        raise InvalidInput(field, f"{_shown(text)} is out of range", f"at most {MAX_AMOUNT} {unit}")
    return int(amount)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
