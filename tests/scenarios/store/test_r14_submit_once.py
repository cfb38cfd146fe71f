"""R14: a client that gives up in the middle of a submission, at any point, leaves one job or none, never half."""

from __future__ import annotations

import contextlib
import threading

import pytest
from store_world import World, a_job, check_books

from phalanx.adapters.store import queue
from phalanx.model.policy import Policy


class ClientGone(Exception):
    """The request was dropped here."""


class Interrupting:
    """Books that fail at their n-th call."""

    def __init__(self, books, calls: int) -> None:
        self._books, self._left = books, calls

    def __getattr__(self, name: str):
        method = getattr(self._books, name)

        def call(*args, **kwargs):
            self._left -= 1
            if self._left < 0:
                raise ClientGone(name)
            result = method(*args, **kwargs)
            if self._left == 0:
                raise ClientGone(name)
            return result

        return call


def test_interrupted_at_every_point_there_is_one_job_or_none(world: World) -> None:
    interrupted = 0
    for point in range(1, 100):
        before = world.store.snapshot(1)
        try:
            with world.store._library.write() as books:
                queue.submit(Interrupting(books, point), a_job("j1"), "key", world.now, Policy())
            break
        except ClientGone:
            interrupted += 1
            assert world.store.snapshot(1) == before
            assert world.store.events(after=before.version) == ()
    assert interrupted >= 4
    again = world.store.submit(a_job("j1"), now_s=world.now + 1, client_key="key")
    assert (again.job, again.created) == ("j1", False)
    assert len(world.store.jobs().jobs) == 1


def test_the_retry_after_an_answer_was_lost_finds_the_job_whatever_became_of_it(world: World) -> None:
    world.store.submit(a_job("j1"), now_s=world.now, client_key="key")
    world.run("j1")
    world.finish("j1")
    again = world.store.submit(a_job("other-name"), now_s=world.now + 9, client_key="key")
    assert (again.job, again.created) == ("j1", False)
    check_books(world.store)


@pytest.mark.parametrize("clients", [8])
def test_many_at_once_with_one_key_make_one_job(world: World, clients: int) -> None:
    gate = threading.Barrier(clients)
    answers = []

    def client(number: int) -> None:
        gate.wait()
        answers.append(world.store.submit(a_job(f"j{number}"), now_s=world.now, client_key="key"))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == clients
    assert sum(answer.created for answer in answers) == 1
    assert {answer.job for answer in answers} == {world.store.jobs().jobs[0].id}
    assert len(world.store.jobs().jobs) == 1


def test_a_name_may_be_fought_over_by_many(world: World) -> None:
    made = []

    def client() -> None:
        with contextlib.suppress(ValueError):
            made.append(world.store.submit(a_job("same"), now_s=world.now))

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.created for answer in made] == [True]
