"""How the suite runs: no test is judged by its time, and real services start one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

_ROOT = Path(__file__).parent

settings.register_profile("untimed", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Names each test's group for `pytest -n N --dist loadgroup`: its file, or `services` for what starts any."""
    for item in items:
        where = item.path.relative_to(_ROOT)
        starts = where.parts[0] == "integration" or any(map(item.get_closest_marker, ("ray", "postgres")))
        item.add_marker(pytest.mark.xdist_group("services" if starts else str(where)))
