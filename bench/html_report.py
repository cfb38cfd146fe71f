"""The report of a comparison as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from ..model.host import Host
from .metrics import measured, steps, waited_s
from .run import Run, Sample
from .svg import Bar, colour, distribution, gantt, lines
from .tables import Table

GANTT_HOSTS = 32
GANTT_DAYS = 7
POINTS = 600

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:920px;margin:2rem auto;padding:0 1rem;color:#111827;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}table{border-collapse:collapse;font-size:13px;width:100%}
th,td{text-align:right;white-space:nowrap;padding:3px 8px;border-bottom:1px solid #e5e7eb}
th:first-child,td:first-child{text-align:left}
.wide{overflow-x:auto}svg{width:100%;height:auto}svg text{font-size:11px;fill:#4b5563}.grid{stroke:#e5e7eb}
.legend span{margin-right:1rem;white-space:nowrap}
.legend i{display:inline-block;width:12px;height:12px;margin-right:5px}
.note{color:#4b5563;font-size:13px}
@media(prefers-color-scheme:dark){body{background:#111827;color:#f3f4f6}svg text{fill:#9ca3af}.grid{stroke:#374151}
th,td{border-color:#374151}.note{color:#9ca3af}}
"""


def html_report(
    title: str, notes: Sequence[str], tables: Sequence[Table], runs: Sequence[Run], hosts: Sequence[Host]
) -> str:
    """Tables, then for the first seed: waits as distributions, allocation over time, a Gantt of each scheduler."""
    body = [f"<h1>{escape(title)}</h1>", *(f'<p class="note">{escape(note)}</p>' for note in notes)]
    body.extend(_table(table) for table in tables)
    body.append("<h2>Waits, first seed</h2>")
    body.append(
        distribution(
            [(run.scheduler, [float(waited_s(job, run)) for job in measured(run)]) for run in runs],
            x_label="wait in the queue (logarithmic; all below a minute stand at its left end)",
        )
    )
    body.append("<h2>Allocation over time, first seed</h2>")
    body.append(lines([(run.scheduler, _allocation(run)) for run in runs], x_label="day", y_label="share", y_most=1.0))
    body.append("<h2>Jobs waiting, first seed</h2>")
    body.append(lines([(run.scheduler, _waiting(run)) for run in runs], x_label="day", y_label="jobs"))
    for run in runs:
        body.append(f"<h2>The fleet under {escape(run.scheduler)}, first seed</h2>")
        body.append(_gantt(run, hosts))
    return html_page(title, body)


def html_page(title: str, body: Sequence[str]) -> str:
    """A page that needs nothing else around pieces of HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>'
        f"</table></div>{notes}"
    )


def _allocation(run: Run) -> list[tuple[float, float]]:
    return _binned(run, lambda sample: sample.held_milli / max(1, sample.capacity_milli))


def _waiting(run: Run) -> list[tuple[float, float]]:
    return _binned(run, lambda sample: sample.waiting)


def _binned(run: Run, value: Callable[[Sample], float]) -> list[tuple[float, float]]:
    """Means over equal parts of the window, in days."""
    width_s = max(1, -(-run.window_s // POINTS))
    sums = [0.0] * (run.window_s // width_s + 1)
    for sample, lasts_s in steps(run):
        at_s, end_s = sample.at_s, sample.at_s + lasts_s
        while at_s < end_s:
            part = at_s // width_s
            until_s = min(end_s, (part + 1) * width_s)
            sums[part] += value(sample) * (until_s - at_s)
            at_s = until_s
    return [(i * width_s / 86_400, total / width_s) for i, total in enumerate(sums[:-1])]


def _gantt(run: Run, hosts: Sequence[Host]) -> str:
    shown = [host for host in hosts if host.gpus][:GANTT_HOSTS]
    rows = {host.id: (number, len(host.gpus)) for number, host in enumerate(shown)}
    end_s = min(run.window_s, GANTT_DAYS * 86_400)
    teams = {team: number for number, team in enumerate(sorted({span.team for span in run.spans}))}
    bars = []
    for span in run.spans:
        if span.host not in rows or span.start_s >= end_s or not span.cards:
            continue
        row, cards = rows[span.host]
        told = f"{span.job} ({span.team}), attempt {span.attempt}: {len(span.cards)} GPUs, "
        told += f"{(span.end_s - span.start_s) / 3600:.1f} h from hour {span.start_s / 3600:.1f}"
        for first, count in _stretches(span.cards):
            bars.append(
                Bar(
                    row=row,
                    start=span.start_s / 86_400,
                    end=span.end_s / 86_400,
                    top=first / cards,
                    height=count / cards,
                    colour=colour(teams[span.team]),
                    told=told,
                )
            )
    return gantt([host.id for host in shown], bars, start=0, end=end_s / 86_400, x_label="day; colours are teams")


def _stretches(cards: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring cards as (first, count)."""
    found: list[tuple[int, int]] = []
    for card in cards:
        if found and found[-1][0] + found[-1][1] == card:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((card, 1))
    return found
