"""Sentences: every kind of reason has one, amounts are in the words of people."""

from __future__ import annotations

import pytest

from phalanx.model.decision import Reason, ReasonKind, RuleFamily
from phalanx.model.ids import JobId
from phalanx.solver.wording import amount, duration, sentence


@pytest.mark.parametrize("kind", list(ReasonKind))
def test_every_kind_has_a_sentence(kind: ReasonKind) -> None:
    text = sentence(Reason(job=JobId("a"), kind=kind, subject="H100", asked=8_000, available=3_000, unit="mGPU"))
    assert text[0].isupper()
    assert text.endswith(".")
    assert "{" not in text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1_000, "mGPU", "1 GPU"),
        (8_000, "mGPU", "8 GPUs"),
        (500, "mGPU", "0.5 GPUs"),
        (1_000, "milli-cores", "1 CPU core"),
        (2_500, "milli-cores", "2.5 CPU cores"),
        (81_920, "MiB", "80 GiB"),
        (1_536, "MiB", "1.5 GiB"),
        (512, "MiB", "512 MiB"),
        (90, "s", "1 min 30 s"),
        (1, "workers", "1 worker"),
        (3, "workers", "3 workers"),
        (100, "Mbit/s", "100 Mbit/s"),
    ],
)
def test_amounts(value: int, unit: str, shown: str) -> None:
    assert amount(value, unit) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (3_600, "1 h"), (3_661, "1 h 1 min"), (90_061, "1 d 1 h"), (86_460, "1 d 1 min")],
)
def test_durations(seconds: int, shown: str) -> None:
    assert duration(seconds) == shown


def test_what_would_help_follows() -> None:
    reason = Reason(
        job=JobId("a"),
        kind=ReasonKind.BUSY,
        families=(RuleFamily.CAPACITY,),
        subject="H100",
        asked=8_000,
        available=3_000,
        unit="mGPU",
        helps=("starts at once on A100", "starts at once with 2 GPUs per worker"),
    )
    assert sentence(reason) == (
        "It asks 8 GPUs of H100, of which 3 GPUs are free now; the rest is in use. "
        "It would start at once on A100, or with 2 GPUs per worker."
    )


def test_a_second_thing_that_is_short_is_said_besides() -> None:
    reason = Reason(
        job=JobId("a"),
        kind=ReasonKind.HOSTS_UNAVAILABLE,
        families=(RuleFamily.ELIGIBILITY, RuleFamily.CAPACITY),
        subject="h1 is down",
        besides="room that is in use",
    )
    assert sentence(reason) == (
        "It would need hosts that take no work now: h1 is down. It would need room that is in use besides."
    )
