"""Gang: every worker of every role, or none."""

from phalanx.model.job import Role, WorkerRequest
from phalanx.solver.constraints import gang

TRAINER = Role(name="trainer", count=3, request=WorkerRequest(gpu_milli=1_000))
EVALUATOR = Role(name="evaluator", count=1, request=WorkerRequest(gpu_milli=1_000))


def test_nothing_started_is_feasible(world):
    instance = world.instance([world.host("a")], [world.job("j", TRAINER)])
    assert world.feasible(instance, gang.add, started={"j": False}, at={("j", "trainer", "a"): 0})


def test_all_workers_of_all_roles_is_feasible(world):
    instance = world.instance([world.host("a"), world.host("b")], [world.job("j", TRAINER, EVALUATOR)])
    counts = {("j", "trainer", "a"): 2, ("j", "trainer", "b"): 1, ("j", "evaluator", "b"): 1}
    assert world.feasible(instance, gang.add, started={"j": True}, at=counts)


def test_one_worker_short_is_infeasible(world):
    instance = world.instance([world.host("a")], [world.job("j", TRAINER)])
    assert not world.feasible(instance, gang.add, at={("j", "trainer", "a"): 2})


def test_one_role_without_the_other_is_infeasible(world):
    instance = world.instance([world.host("a")], [world.job("j", TRAINER, EVALUATOR)])
    counts = {("j", "trainer", "a"): 3, ("j", "evaluator", "a"): 0}
    assert not world.feasible(instance, gang.add, at=counts)


def test_workers_of_a_gang_that_does_not_start_are_infeasible(world):
    instance = world.instance([world.host("a")], [world.job("j", EVALUATOR)])
    assert not world.feasible(instance, gang.add, started={"j": False}, at={("j", "evaluator", "a"): 1})
