"""How many threads feed a rank."""

import pytest

from phalanx.dataplane.feeder import gather_threads


@pytest.mark.parametrize(
    ("cores", "ranks", "threads"),
    [(16, "1", 2), (16, "8", 2), (8, "8", 1), (2, "8", 1), (1, "1", 1), (4, "nonsense", 2), (4, "0", 2)],
)
def test_ranks_of_one_host_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, ranks: str, threads: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert gather_threads(None, transformed=False) == threads
    assert gather_threads(None, transformed=True) == 1
    assert gather_threads(3, transformed=True) == 3
