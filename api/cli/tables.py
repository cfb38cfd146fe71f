"""Tables and lines for people, by rich; plain when stdout is no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# A pipe has no width; cutting a reason to 80 columns there would lose it.
_PIPE_WIDTH = 160


def console(stderr: bool = False) -> Console:
    """Where a command writes; wide when piped."""
    plain = Console(stderr=stderr, highlight=False)
    return plain if plain.is_terminal else Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], right: Sequence[str] = ()
) -> Table:
    """A light table; the columns named in `right` are aligned right."""
    made = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return made


def seconds(value: int | float | None) -> str:
    """A duration as people say it: "42s", "3m 20s", "5h 03m", "2d 04h"; "-" for None."""
    if value is None:
        return "-"
    total = round(value)
    days, hours, minutes, rest = total // 86_400, total % 86_400 // 3_600, total % 3_600 // 60, total % 60
    if days:
        return f"{days}d {hours:02}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def gpus(milli: int) -> str:
    """milli-GPU as a number of GPUs."""
    return f"{milli / 1000:g}"


def amount(value: int, unit: str) -> str:
    """A goal's value in its own unit: milli-GPU as GPU, milli-GPU-seconds as GPU-seconds."""
    shown = {"mGPU": (1_000, "GPU"), "mGPU*s": (1_000, "GPU-s")}.get(unit)
    if shown is None:
        return f"{value:,} {unit}"
    return f"{value / shown[0]:,.0f} {shown[1]}" if value % shown[0] == 0 else f"{value / shown[0]:,.3f} {shown[1]}"
