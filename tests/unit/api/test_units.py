"""Units: what people write becomes exact integers, and what is wrong is named with the units that would be right."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.api import units
from phalanx.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("4h", 14_400),
        ("1h30m", 5_400),
        ("1.5h", 5_400),
        ("2d", 172_800),
        ("2-00:00:00", 172_800),
        ("04:00:00", 14_400),
        ("30 min", 1_800),
        ("2 hours", 7_200),
    ],
)
def test_durations(text, seconds):
    assert units.duration_s("walltime", text) == seconds


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("80GiB", 81_920),
        ("512MiB", 512),
        ("1TiB", 1_048_576),
        ("64G", 65_536),
        ("80GB", 76_294),
        ("0.5GiB", 512),
        ("80gib", 81_920),
    ],
)
def test_memories(text, mib):
    assert units.memory_mib("memory", text) == mib


def test_bandwidths():
    assert units.bandwidth_mbps("network", "100Gbps") == 100_000
    assert units.bandwidth_mbps("network", "400Mbit/s") == 400


@pytest.mark.parametrize(("value", "milli"), [(8, 8000), (0.5, 500), ("0.125", 125), ("500m", 500), (0.1, 100), (0, 0)])
def test_cards(value, milli):
    assert units.milli("gpus", value) == milli


@pytest.mark.parametrize(
    ("reader", "value", "words"),
    [
        (units.duration_s, 60, "has no unit"),
        (units.duration_s, "60", "has no unit"),
        (units.duration_s, "4 parsecs", "unknown unit"),
        (units.duration_s, "80GiB", "unknown unit"),
        (units.duration_s, "0.3s", "whole number of seconds"),
        (units.duration_s, "-4h", "negative"),
        (units.duration_s, "", "empty"),
        (units.duration_s, None, "not an amount"),
        (units.duration_s, True, "not an amount"),
        (units.duration_s, "99999999999999w", "out of range"),
        (units.memory_mib, "4h", "unknown unit"),
        (units.memory_mib, 80, "has no unit"),
        (units.memory_mib, "1GiB 2GiB", "not one amount"),
        (units.memory_mib, float("nan"), "has no unit"),
        (units.bandwidth_mbps, "10GB/s", "unknown unit"),
        (units.milli, float("nan"), "cannot be booked"),
        (units.milli, float("inf"), "cannot be booked"),
        (units.milli, -1, "negative"),
        (units.milli, "eight", "not a number"),
        (units.milli, 0.0001, "whole number of thousandths"),
        (units.milli, [8], "not a number"),
    ],
)
def test_wrong_amounts_say_what_is_right(reader, value, words):
    with pytest.raises(InvalidInput) as fault:
        reader("here", value)
    assert fault.value.path == "here"
    assert words in fault.value.problem
    assert fault.value.expected


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 8_000), min_size=1, max_size=20))
def test_sums_of_decimals_are_exact(parts):
    written = [float(Decimal(part) / 1000) for part in parts]
    assert sum(units.milli("gpus", value) for value in written) == sum(parts)
