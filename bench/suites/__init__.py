"""Timings by pytest-benchmark: `pytest bench/suites --benchmark-only`; not part of the tests."""
