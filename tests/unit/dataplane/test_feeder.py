"""How many threads feed a rank, and what they learn of it."""

import pytest

from phalanx.dataplane import Field, feeder
from phalanx.dataplane.feeder import Feeder, gather_threads
from phalanx.dataplane.ring import new_ring


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


def test_a_caller_that_only_waits_is_hungry(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, told = [0.0], []
    monkeypatch.setattr(feeder.time, "perf_counter", lambda: now_s[0])
    rings = [new_ring((Field("n", "int64", ()),), 1, 3, pinned=False)]
    fed = Feeder(rings, lambda _g, out: dict(out.tensors), 0, lambda g: g + 1, None, None, hungry=told.append)
    wait = rings[0].ready.get

    class Slow:
        """A queue from which every other batch comes at once, as from two threads, the others after half a second."""

        wait_s = 0.0

        def get(self) -> object:
            self.wait_s = 0.5 - self.wait_s
            now_s[0] += self.wait_s
            return wait()

        def empty(self) -> bool:
            return True

    fed._rings[0] = type(rings[0])(rings[0].free, Slow(), rings[0].stop)  # type: ignore[arg-type]
    try:
        for computed_s in (0.01, 0.01, 0.01, 0.01, 1.0, 0.01, 0.01, *[0.001] * 20):
            now_s[0] += computed_s
            fed.take()
    finally:
        fed._rings[0] = rings[0]
        fed.end()
    assert told[:6] == [False, False, False, True, False, False], "everybody waits for the first three"
    assert told[-1]
