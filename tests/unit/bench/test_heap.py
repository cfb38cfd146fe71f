"""The event heap: seconds, then priorities, then the order of scheduling."""

from phalanx.bench.heap import End, Heap, HostDies, Release, Round, Submit, Up, Wake


def test_happenings_of_one_second_come_by_priority_then_by_order() -> None:
    heap = Heap()
    for happening in (
        Round(),
        Wake(),
        Submit(0),
        Submit(1),
        Up(("a", 1)),
        HostDies("h"),
        End(("a", 1), 0),
        Release(("a", 1)),
    ):
        heap.push(5, happening)
    heap.push(4, Round())
    assert len(heap) == 9
    found = [heap.pop() for _ in range(9)]
    assert [at_s for at_s, _ in found] == [4] + [5] * 8
    told = [type(happening).__name__ for _, happening in found[1:]]
    assert told == ["Release", "End", "HostDies", "Up", "Submit", "Submit", "Wake", "Round"]
    assert [happening.index for _, happening in found if isinstance(happening, Submit)] == [0, 1]
