import queue
import threading
from functools import partial

import pytest
import torch

from phalanx.dataplane import Field
from phalanx.dataplane.ring import Buffer, Failed, Filled, Job, Jobs, done_with, fill, receive

FIELDS = (Field("x", "bfloat16", (2,)), Field("n", "int64", ()))
new_buffer = partial(Buffer, FIELDS, 1, {}, pinned=False)


def number(g: int, out: Buffer) -> dict[str, torch.Tensor]:
    out.arrays["n"][:] = g
    return dict(out.tensors)


def jobs_of(*wanted: Job | None) -> Jobs:
    jobs: Jobs = queue.SimpleQueue()
    for job in wanted:
        jobs.put(job)
    return jobs


def test_buffers_have_the_fields_dtypes() -> None:
    first = Buffer(FIELDS, 3, {}, pinned=False)
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

    buffer = new_buffer()
    buffer.busy = Event()
    fill(jobs_of(Job(5, buffer), None), new_buffer, gather, None, threading.Event())
    assert story == ["copied", "filled at 5"]
    assert buffer.busy is None


def test_batches_come_in_order_and_buffers_go_round() -> None:
    given = [Job(10, None), Job(14, None)]
    jobs = jobs_of(*given)
    thread = threading.Thread(target=fill, args=(jobs, new_buffer, number, None, threading.Event()))
    thread.start()
    seen, buffers = [], set()
    for g in range(18, 54, 4):
        item = given.pop(0).ready.get()
        assert isinstance(item, Filled)
        seen.append(int(receive(item)["n"][0]))
        done_with(item.buffer)
        buffers.add(id(item.buffer))
        given.append(Job(g, item.buffer))
        jobs.put(given[-1])
    jobs.put(None)
    thread.join()
    assert seen == list(range(10, 46, 4))
    assert len(buffers) == 2


def test_what_was_given_is_not_done_any_more_once_told_to_stop() -> None:
    job, stop = Job(0, None), threading.Event()
    stop.set()
    fill(jobs_of(job), new_buffer, number, None, stop)
    assert job.ready.empty()


def test_an_error_is_handed_over_and_ends_the_thread() -> None:
    def broken(g: int, out: Buffer) -> dict[str, torch.Tensor]:
        raise OSError(f"no batch at {g}")

    jobs = [Job(3, None), Job(4, None)]
    fill(jobs_of(*jobs), new_buffer, broken, None, threading.Event())
    item = jobs[0].ready.get_nowait()
    assert isinstance(item, Failed)
    assert str(item.error) == "no batch at 3"
    assert jobs[1].ready.empty()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("on_device", [True, False])
def test_copies_to_a_cuda_device_see_the_batch_they_belong_to(on_device: bool) -> None:
    pinned = partial(Buffer, (Field("n", "int64", (1 << 20,)),), 1, {}, pinned=True)
    device = torch.device("cuda") if on_device else None
    given = [Job(g, None) for g in range(3)]
    jobs = jobs_of(*given)
    thread = threading.Thread(target=fill, args=(jobs, pinned, number, device, threading.Event()))
    thread.start()
    copies = []
    for g in range(3, 53):
        item = given.pop(0).ready.get()
        assert isinstance(item, Filled)
        copies.append(receive(item)["n"].to("cuda", non_blocking=True))
        if item.copied is None:
            done_with(item.buffer)
        given.append(Job(g, item.buffer))
        jobs.put(given[-1])
    jobs.put(None)
    thread.join()
    assert [int(copy.min()) for copy in copies] == [int(copy.max()) for copy in copies] == list(range(50))
