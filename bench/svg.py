"""Plots as inline SVG: lines, cumulative distributions, and a Gantt of hosts. No script, no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 16, 14, 42
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#57534e", "#111827")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One attempt on one host: `row` from the top, from `start` to `end`, `top` and `height` as shares of the row."""

    row: int
    start: float
    end: float
    top: float
    height: float
    colour: str
    told: str


def lines(series: Sequence[tuple[str, Points]], *, x_label: str, y_label: str, y_most: float | None = None) -> str:
    """Step lines over a common x axis, with a legend."""
    most_x = max((x for _, points in series for x, _ in points), default=1.0) or 1.0
    most_y = y_most or max((y for _, points in series for _, y in points), default=1.0) or 1.0
    body = [_grid(most_x, most_y, x_label, y_label, str_of)]
    for number, (_, points) in enumerate(series):
        path = " ".join(
            f"{'L' if i else 'M'}{_x(x / most_x):.1f},{_y(min(y, most_y) / most_y):.1f}"
            for i, (x, y) in enumerate(points)
        )
        body.append(f'<path d="{path}" fill="none" stroke="{colour(number)}" stroke-width="1.6"/>')
    return _svg("".join(body), HEIGHT) + legend([name for name, _ in series])


def distribution(series: Sequence[tuple[str, Sequence[float]]], *, x_label: str) -> str:
    """Cumulative distributions of seconds over a logarithmic axis from a minute to the largest value."""
    most = max((max(values, default=60.0) for _, values in series), default=60.0)
    decades = max(1.0, math.log10(max(most, 600.0) / 60.0))
    body = [_grid(decades, 1.0, x_label, "share of jobs", lambda at: _duration(60 * 10**at))]
    for number, (_, values) in enumerate(series):
        ordered = sorted(values)
        count = max(1, len(ordered))
        keep = sorted({round(i * (count - 1) / 400) for i in range(401)}) if ordered else []
        steps = [(max(0.0, math.log10(max(ordered[i], 60.0) / 60.0)), (i + 1) / count) for i in keep]
        path = " ".join(
            f"{'L' if i else 'M'}{_x(x / decades):.1f},{_y(y):.1f}" for i, (x, y) in enumerate([(0.0, 0.0), *steps])
        )
        body.append(f'<path d="{path}" fill="none" stroke="{colour(number)}" stroke-width="1.6"/>')
    return _svg("".join(body), HEIGHT) + legend([name for name, _ in series])


def gantt(rows: Sequence[str], bars: Sequence[Bar], *, start: float, end: float, x_label: str) -> str:
    """Hosts as rows, attempts as bars as high as the cards they hold; a bar tells its job when pointed at."""
    row_height = 26 if len(rows) <= 40 else 12
    height = TOP + BOTTOM + row_height * len(rows)
    span = (end - start) or 1.0
    body = [
        f'<text x="{LEFT - 6}" y="{TOP + row_height * (i + 0.65):.0f}" text-anchor="end">{escape(name)}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{TOP + row_height * (i + 1)}" y2="{TOP + row_height * (i + 1)}" '
        'class="grid"/>'
        for i, name in enumerate(rows)
    ]
    for bar in bars:
        x0, x1 = (_x((min(max(at, start), end) - start) / span) for at in (bar.start, bar.end))
        y = TOP + row_height * (bar.row + 0.04 + 0.92 * bar.top)
        high = row_height * 0.92 * bar.height
        body.append(
            f'<rect x="{x0:.1f}" y="{y:.1f}" width="{max(0.6, x1 - x0):.1f}" height="{high:.1f}" '
            f'fill="{bar.colour}"><title>{escape(bar.told)}</title></rect>'
        )
    for i in range(8):
        share = i / 7
        told, below = str_of(start + span * share), height - BOTTOM + 18
        body.append(f'<text x="{_x(share):.0f}" y="{below}" text-anchor="middle">{told}</text>')
    body.append(f'<text x="{WIDTH / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return _svg("".join(body), height)


def legend(names: Sequence[str]) -> str:
    """Names with their colours, in the order of the series."""
    items = "".join(
        f'<span><i style="background:{colour(i)}"></i>{escape(name)}</span>' for i, name in enumerate(names)
    )
    return f'<p class="legend">{items}</p>'


def colour(number: int) -> str:
    """The colour of a series."""
    return COLOURS[number % len(COLOURS)]


def str_of(value: float) -> str:
    """A number short enough for an axis."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _grid(most_x: float, most_y: float, x_label: str, y_label: str, x_text: Callable[[float], str]) -> str:
    parts = []
    for i in range(6):
        x, y = _x(i / 5), _y(i / 5)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{str_of(most_y * i / 5)}</text>')
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(x_text(most_x * i / 5))}</text>'
        )
    middle = HEIGHT / 2
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'text-anchor="middle" transform="rotate(-90 14 {middle:.0f})"'
    parts.append(f'<text x="14" y="{middle:.0f}" {turned}>{escape(y_label)}</text>')
    return "".join(parts)


def _svg(body: str, height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">{body}</svg>'


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
