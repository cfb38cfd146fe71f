"""The runner and its supervisor, without Ray: real processes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.adapters.fakes.gpu import FakeGpuLibrary
from phalanx.adapters.ports import GpuReading
from phalanx.adapters.ray import processes
from phalanx.adapters.ray.attempt_files import AttemptFiles, HostStatus
from phalanx.adapters.ray.runner import Caretaker, Runner
from phalanx.adapters.ray.specs import HostSpec, RankSpec
from phalanx.model.errors import PhalanxError, StaleTerm

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[str]:
    name = f"test-{tmp_path.name}-{os.getpid()}"
    yield name
    for process in processes.find(name):
        processes.kill(process, name)


@pytest.fixture
def spec(namespace: str) -> Callable[..., HostSpec]:
    def make(*scripts: str, grace_s: int = 5) -> HostSpec:
        ranks = tuple(
            RankSpec(rank=rank, argv=(sys.executable, "-S", "-c", script), env={"RANK": str(rank)})
            for rank, script in enumerate(scripts)
        )
        return HostSpec(namespace=namespace, job="j", attempt=1, host="h", grace_s=grace_s, ranks=ranks)

    return make


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner("j", 1, "h", str(tmp_path))
    yield runner
    runner.close()


def until(done: Callable[[], object], limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(runner: Runner) -> HostStatus:
    until(lambda: not runner.status().supervised)
    return runner.status()


def test_every_rank_runs_once_and_its_code_is_kept(runner: Runner, spec, tmp_path: Path) -> None:
    once = "import os; open('count-' + os.environ['RANK'], 'a').write('x')"
    wanted = spec(once, once + "; raise SystemExit(4)")
    port = runner.free_port(1)
    runner.launch(1, wanted)
    assert runner.free_port(1) == port  # a successor of a killed adapter asks again
    runner.launch(1, wanted)

    status = ended(runner)
    assert status.ended
    assert status.exits == ((0, 0), (1, 4))
    folder = AttemptFiles(tmp_path, "j", 1).folder
    assert [(folder / f"count-{rank}").read_text() for rank in (0, 1)] == ["x", "x"]


def test_a_second_runner_of_the_attempt_starts_nothing(runner: Runner, spec, tmp_path: Path) -> None:
    runner.launch(1, spec("pass"))
    ended(runner)
    with pytest.raises(PhalanxError, match="started on host h before"):
        Runner("j", 1, "h", str(tmp_path)).launch(2, spec("pass"))


def test_orders_of_an_older_term_are_refused(runner: Runner, spec) -> None:
    port = runner.free_port(3)
    assert runner.free_port(3) == port
    with pytest.raises(StaleTerm):
        runner.launch(2, spec("pass"))
    with pytest.raises(StaleTerm):
        runner.stop(2, 0)
    assert runner.status() == HostStatus()


def test_a_stopped_runner_starts_nothing(runner: Runner, spec) -> None:
    runner.stop(1, 0)
    with pytest.raises(PhalanxError, match="stopped before"):
        runner.launch(1, spec("pass"))


def test_no_grace_kills_at_once(runner: Runner, spec) -> None:
    runner.launch(1, spec(DEAF, DEAF))
    until(lambda: all(runner.read_log(rank, 0, 10) for rank in (0, 1)))
    runner.stop(1, 0)
    assert ended(runner).exits == ((0, -9), (1, -9))


def test_the_grace_ends_a_deaf_rank_and_a_heeding_one_ends_before(runner: Runner, spec) -> None:
    runner.launch(1, spec(DEAF, SLEEP))
    until(lambda: all(runner.read_log(rank, 0, 10) for rank in (0, 1)))
    runner.stop(1, 1)
    assert ended(runner).exits == ((0, -9), (1, -15))


def test_what_a_rank_leaves_behind_is_ended(runner: Runner, spec, namespace: str) -> None:
    leave = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True, env={})"
    )
    runner.launch(1, spec(leave))
    assert ended(runner).exits == ((0, 0),)
    until(lambda: processes.find(namespace) == [])


def test_a_lost_runner_counts_as_a_stop_with_the_grace_of_the_job(
    runner: Runner, spec, namespace: str, tmp_path
) -> None:
    save = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: (open('saved', 'w').close(), sys.exit(0)))\n"
        "print('up', flush=True)\nwhile True: time.sleep(0.05)"
    )
    runner.launch(1, spec(save))
    until(lambda: runner.read_log(0, 0, 10))
    caretaker = Caretaker(namespace)
    assert caretaker.status(str(tmp_path), "j", 1, "h").supervised
    runner.close()
    until(lambda: not caretaker.status(str(tmp_path), "j", 1, "h").supervised)
    status = caretaker.status(str(tmp_path), "j", 1, "h")
    assert (status.exits, status.ended, status.lost) == (((0, 0),), False, True)
    assert (AttemptFiles(tmp_path, "j", 1).folder / "saved").exists()


def test_a_killed_supervisor_leaves_an_attempt_that_is_lost_and_can_be_swept(
    runner: Runner, spec, namespace: str, tmp_path
) -> None:
    child = (
        "import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True); print('up', flush=True); time.sleep(600)"
    )
    runner.launch(1, spec(child))
    until(lambda: runner.read_log(0, 0, 10))
    (supervisor,) = [process for process in processes.find(namespace) if process.supervisor]
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor.pid, signal.SIGKILL)
    assert ended(runner).lost
    caretaker = Caretaker(namespace)
    until(lambda: len(processes.find(namespace)) == 1)
    assert caretaker.attempts() == (("j", 1, "h"),)
    assert caretaker.sweep("j", 1, "h") == ()
    assert processes.find(namespace) == []


def test_ranks_are_the_supervisors_alone_to_find(namespace: str) -> None:
    assert processes.find(namespace) == []
    assert Caretaker(namespace).sweep("j", 1, "h") == ()


def test_a_mark_without_ranks_is_an_attempt_that_was_lost(tmp_path: Path) -> None:
    files = AttemptFiles(tmp_path, "j", 1)
    assert files.status("h", supervised=False) == HostStatus()
    files.folder.mkdir(parents=True)
    (files.folder / "host-h.started").touch()
    assert files.status("h", supervised=False).lost


def test_foreign_processes_are_those_of_no_attempt(namespace: str) -> None:
    readings = [
        GpuReading(index=index, name="H100", memory_mib=81_920, memory_used_mib=0, pids=(os.getpid(),))
        for index in (0, 1)
    ]
    caretaker = Caretaker(namespace, lambda: FakeGpuLibrary(readings))
    assert caretaker.foreign((1, 2)) == (f"process {os.getpid()} on card 1",)
    assert Caretaker(namespace).foreign((0, 1)) == ()


def test_the_log_is_read_in_pieces(tmp_path: Path) -> None:
    files = AttemptFiles(tmp_path, "j", 1)
    assert files.read_log(0, 0, 10) == b""
    files.folder.mkdir(parents=True)
    files.log(0).write_bytes(b"0123456789")
    assert files.read_log(0, 4, 3) == b"456"
    assert files.read_log(0, -2, 10) == b"89"
    assert files.read_log(0, -20, 4) == b"0123"
