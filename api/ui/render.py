"""The templates and the few filters that they use."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from .fleet_map import hue

FOLDER = Path(__file__).parent
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def environment() -> Environment:
    """The templates, escaping everything; an unknown name in a template is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"duration": duration, "moment": moment, "amount": amount, "gpus": gpus, "hue": hue, "iso": iso}
    return made


def render(templates: Environment, name: str, **values: Any) -> str:
    """One page."""
    return templates.get_template(name).render(**values)


def duration(seconds: int) -> str:
    """ "3 d 4 h", "12 min", "5 s": the two largest units, the second only where it is not zero."""
    left = max(0, seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        amount_, left = divmod(left, size)
        if amount_ or parts:
            parts.append(f"{amount_} {unit}" if amount_ else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0 s"


def moment(at_s: int) -> str:
    """A time of day with its date, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at_s: int) -> str:
    """The same for machines."""
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def gpus(milli: int) -> str:
    """milli-GPU as GPUs: 8000 is "8", 500 is "0.5"."""
    return f"{milli / 1000:g}"


def amount(value: int, unit: str) -> str:
    """A goal's value in the unit that people read: milli-GPU amounts become GPU amounts."""
    if unit.startswith("mGPU"):
        return f"{value / 1000:,.0f} {unit.removeprefix('m').replace('*s', '·s')}"
    return f"{value:,} {unit}"
