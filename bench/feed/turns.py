"""The measurements of the table: every loader in turn, round by round, for as long as there is time."""

from __future__ import annotations

import statistics
import time
from typing import Any

import click

from .peers import run
from .rows import Ready

WARM, WAIT, BUSY, COLD, COLD_WAIT = "warm", "wait", "busy", "cold", "cold_wait"
KINDS = (WARM, WAIT, BUSY, COLD, COLD_WAIT)
# What is read from memory comes first, in all its rounds: reading from the disk leaves files there in smaller pages,
# which cost every loader more. Each part begins no round that would end with less than its share of the time left.
PARTS = {"in memory": ((WARM, WAIT, BUSY), 0.5), "from the disk": ((COLD, COLD_WAIT), 0.35)}
_RUN_S = 120.0
_FOR_ROWS = 0.35


class Clock:
    """How much of the time for the whole table is left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.seconds = seconds

    def left_s(self) -> float:
        return self._end - time.monotonic()


def interleaved(
    ready: list[Ready], settings: dict[str, list[str]], rounds: int, clock: Clock
) -> tuple[dict[str, Any], dict[str, int]]:
    """Each measurement of each loader, once per round in turn, and how many rounds there was time for.

    The best number of workers is chosen by the warm runs. What would begin in the last third of the time is left out:
    the other rows need it.
    """
    turns = _Turns(ready, clock)
    done = {}
    for part, (kinds, share) in PARTS.items():
        wanted = {kind: settings[kind] for kind in kinds if kind in settings}
        took, turn = 0.0, 0
        while wanted and turn < rounds and (turn == 0 or clock.left_s() - took > clock.seconds * share):
            turn += 1
            began = clock.left_s()
            for kind, options in wanted.items():
                turns.take(kind, options, f"round {turn} of {rounds}")
            took = began - clock.left_s()
        if wanted:
            done[part] = turn
    return {name: _medians(each, turns.alone) for name, each in turns.found.items()}, done


class _Turns:
    """Runs of all loaders in turn, and what they found: by loader, number of workers and measurement."""

    def __init__(self, ready: list[Ready], clock: Clock) -> None:
        self._ready, self._clock = ready, clock
        self.found: dict[str, dict[int, dict[str, list[dict[str, Any]]]]] = {peer.name: {} for peer, _, _ in ready}
        # The step without data, and the files read in order without a loader.
        self.alone: dict[str, list[float]] = {BUSY: [], COLD: []}
        # The same work for all: each run's own idea of ten milliseconds would differ by half.
        self._work: list[str] = []

    def take(self, kind: str, options: list[str], said: str) -> None:
        """One measurement of each loader."""
        if self._ready and kind == BUSY and self._in_time():
            _, python, folder = self._ready[0]
            answer = run(python, ["run", "null", str(folder), *options, *self._work], _RUN_S)
            self.alone[BUSY].append(float(answer.get("samples_per_s", 0.0)))
            self._work = self._work or ["--step-repeats", str(answer.get("step_repeats", 0))]
            say(f"{said}, {kind}, null: {self.alone[BUSY][-1]:,.0f} samples/s")
        if self._ready and kind == COLD and self._in_time():
            _, python, folder = self._ready[0]
            answer = run(python, ["run", "disk", str(folder), *options], _RUN_S)
            self.alone[COLD].append(float(answer.get("whole_gb_per_s", 0.0)))
            say(f"{said}, {kind}, the disk alone: {self.alone[COLD][-1]:.2f} GB/s")
        for peer, python, folder in self._ready:
            for count in peer.workers if kind == WARM else (_best(self.found[peer.name]),):
                if self._in_time():
                    arguments = ["run", peer.name, str(folder), "--workers", str(count), *options]
                    answer = run(python, [*arguments, *(self._work if kind == BUSY else [])], _RUN_S)
                else:
                    answer = {"fault": f"{kind} was not measured: the time was over"}
                self.found[peer.name].setdefault(count, {}).setdefault(kind, []).append(answer)
                say(f"{said}, {kind}, {peer.name}, {count} workers: {_line(answer)}")

    def _in_time(self) -> bool:
        return self._clock.left_s() > self._clock.seconds * _FOR_ROWS


def listed(done: dict[str, int]) -> str:
    """How many rounds of each part there were, in words."""
    return " and ".join(f"{turns} {part}" for part, turns in done.items())


def _line(answer: dict[str, Any]) -> str:
    if "fault" in answer:
        return str(answer["fault"])
    return (
        f"{answer['samples_per_s']:,.0f} samples/s, {answer['whole_gb_per_s']:.2f} GB/s from the start, "
        f"{answer['cpu_s_per_gb']:.2f} CPU-s/GB, "
        f"wait {answer['wait_share']:.3f}, first batch {answer['first_batch_s']:.3f} s"
    )


def _best(found: dict[int, dict[str, list[dict[str, Any]]]]) -> int:
    return max(found, key=lambda count: _median(found[count].get(WARM, []), "samples_per_s"), default=0)


def _median(answers: list[dict[str, Any]], key: str) -> float:
    values = [answer[key] for answer in answers if key in answer]
    return float(statistics.median(values)) if values else 0.0


def _ratio(answers: list[dict[str, Any]], key: str, alone: list[float]) -> float | None:
    """The median over the rounds of a rate against what the same round had without a loader."""
    ratios = [answer[key] / rate for answer, rate in zip(answers, alone, strict=False) if key in answer and rate]
    return statistics.median(ratios) if ratios else None


def _medians(found: dict[int, dict[str, list[dict[str, Any]]]], alone: dict[str, list[float]]) -> dict[str, Any]:
    best = _best(found)
    kinds = found.get(best, {})
    faults = sorted({answer["fault"] for answers in kinds.values() for answer in answers if "fault" in answer})
    asked = {
        "samples_per_s": (WARM, "samples_per_s"),
        "gb_per_s": (WARM, "gb_per_s"),
        "cpu_s_per_gb": (WARM, "cpu_s_per_gb"),
        "first_batch_s": (WARM, "first_batch_s"),
        "memory_mib": (WARM, "memory_mib"),
        "wait_share_10ms": (WAIT, "wait_share"),
        "cold_gb_per_s": (COLD, "whole_gb_per_s"),
        "cold_cpu_s_per_gb": (COLD, "cpu_s_per_gb"),
        "cold_first_batch_s": (COLD, "first_batch_s"),
        "cold_wait_share_10ms": (COLD_WAIT, "wait_share"),
    }
    measured: dict[str, Any] = {
        name: _median(kinds[kind], key)
        for name, (kind, key) in asked.items()
        if any(key in answer for answer in kinds.get(kind, []))
    }
    against = {"beside_null": (BUSY, "samples_per_s"), "cold_of_disk": (COLD, "whole_gb_per_s")}
    ratios = {name: _ratio(kinds.get(kind, []), key, alone[kind]) for name, (kind, key) in against.items()}
    measured |= {name: ratio for name, ratio in ratios.items() if ratio is not None}
    return {"workers": best, **measured, "faults": faults}


def say(text: str) -> None:
    """Tells how far the measurement is."""
    click.echo(text, err=True)
