"""What the commands about data sets share: sizes, and faults of the dataplane as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from .exit_codes import Exit, Stop

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Size(click.ParamType[int]):
    """Bytes as people write them: 300, 64M, 1.5G (binary units)."""

    name = "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes, at least 1."""
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        unit = text[-1:] if text[-1:] in "KMGT" else ""
        try:
            size = int(float(text.removesuffix(unit)) * _UNITS[unit])
        except (ValueError, OverflowError):
            size = 0
        if size < 1:
            self.fail(f"{value!r} is no size; write 64M, 1.5G or a number of bytes", param, ctx)
        return size


def size(count: int) -> str:
    """Bytes for people, in binary units."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:,.1f} {unit}"


@contextmanager
def told() -> Iterator[None]:
    """Turns faults of the dataplane, and its packages where they are missing, into one sentence and exit code 2."""
    try:
        from ...dataplane.errors import DataplaneError
    except ImportError as fault:  # the folder is always there; only a broken install gets here
        raise Stop(Exit.BAD_INPUT, f"the dataplane cannot be loaded: {fault}") from None
    try:
        yield
    except DataplaneError as fault:
        raise Stop(Exit.BAD_INPUT, str(fault)) from None
    except ModuleNotFoundError as fault:
        raise Stop(
            Exit.BAD_INPUT, f"the package {fault.name} is missing; install it with: pip install 'phalanx[train]'"
        ) from None
