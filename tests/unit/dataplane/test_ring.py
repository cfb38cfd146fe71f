import threading
from collections.abc import Callable

import pytest
import torch

from phalanx.dataplane import Field
from phalanx.dataplane.ring import Buffer, Failed, Filled, done_with, fill, new_ring, receive

FIELDS = (Field("x", "bfloat16", (2,)), Field("n", "int64", ()))


def number(g: int, out: Buffer) -> dict[str, torch.Tensor]:
    out.arrays["n"][:] = g
    return dict(out.tensors)


def by(step: int) -> Callable[[int], int]:
    return lambda g: g + step


def test_a_ring_has_buffers_of_the_fields_dtypes() -> None:
    ring = new_ring(FIELDS, 3, buffers=4, pinned=False)
    buffers = [ring.free.get_nowait() for _ in range(4)]
    assert ring.free.empty()
    first = buffers[0]
    assert first is not None
    assert (first.tensors["x"].dtype, first.tensors["x"].shape) == (torch.bfloat16, (3, 2))
    first.arrays["x"][:] = torch.full((3, 2), 1.5, dtype=torch.bfloat16).view(torch.uint16).numpy()
    assert first.tensors["x"].tolist() == [[1.5, 1.5]] * 3


def test_a_buffer_is_not_filled_before_copies_out_of_it_are_done() -> None:
    story: list[str] = []

    class Event:
        def synchronize(self) -> None:
            story.append("copied")

    def gather(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        story.append(f"filled at {g}")
        return number(g, out)

    ring = new_ring(FIELDS, 1, buffers=3, pinned=False)
    buffer = ring.free.get_nowait()
    while not ring.free.empty():
        ring.free.get_nowait()
    assert buffer is not None
    buffer.busy = Event()
    ring.free.put(buffer)
    ring.free.put(None)
    fill(ring, gather, 5, by(1), None)
    assert story == ["copied", "filled at 5"]
    assert buffer.busy is None


def test_batches_come_in_order_and_buffers_go_round() -> None:
    ring = new_ring(FIELDS, 1, buffers=3, pinned=False)
    thread = threading.Thread(target=fill, args=(ring, number, 10, by(4), None))
    thread.start()
    seen = []
    for _ in range(9):
        item = ring.ready.get()
        assert isinstance(item, Filled)
        seen.append(int(receive(item)["n"][0]))
        done_with(item.buffer)
        ring.free.put(item.buffer)
    ring.stop.set()
    ring.free.put(None)
    thread.join()
    assert seen == list(range(10, 46, 4))


def test_an_error_is_handed_over_and_ends_the_thread() -> None:
    def broken(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        raise OSError(f"no batch at {g}")

    ring = new_ring(FIELDS, 1, buffers=3, pinned=False)
    fill(ring, broken, 3, by(1), None)
    item = ring.ready.get_nowait()
    assert isinstance(item, Failed)
    assert str(item.error) == "no batch at 3"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("on_device", [True, False])
def test_copies_to_a_cuda_device_see_the_batch_they_belong_to(on_device: bool) -> None:
    ring = new_ring((Field("n", "int64", (1 << 20,)),), 1, buffers=3, pinned=True)
    device = torch.device("cuda") if on_device else None
    thread = threading.Thread(target=fill, args=(ring, number, 0, by(1), device))
    thread.start()
    copies = []
    for _ in range(50):
        item = ring.ready.get()
        assert isinstance(item, Filled)
        copies.append(receive(item)["n"].to("cuda", non_blocking=True))
        if item.copied is None:
            done_with(item.buffer)
        ring.free.put(item.buffer)
    ring.stop.set()
    ring.free.put(None)
    thread.join()
    assert [int(copy.min()) for copy in copies] == [int(copy.max()) for copy in copies] == list(range(50))
