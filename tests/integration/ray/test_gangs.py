"""Gangs on a real local Ray cluster: start, environment, logs, exit codes, stop."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from phalanx.adapters.reports import Saved, last_saved, read_steps
from phalanx.model.event import GangExited, GangReleased, GangReserved, GangRunning, GangStartFailed
from phalanx.model.intent import GangPhase, RankExit
from phalanx.model.job import KeyValue

pytestmark = pytest.mark.ray

TELL = "import json, os; print(json.dumps(dict(os.environ)))"
REPORT = """
import json, os
folder, rank = os.environ["PHALANX_REPORT_DIR"], int(os.environ["RANK"])
os.makedirs(folder, exist_ok=True)
times = {"wait_s": 1, "compute_s": 2 + rank, "checkpoint_s": 0, "peers_s": 0, "longest_s": 1}
line = {"version": 1, "at_s": 50, "host": os.environ["PHALANX_HOST"], "rank": rank, "step": 9, "steps": 9, **times}
with open(f"{folder}/rank-{rank:05d}.jsonl", "a") as file:
    file.write(json.dumps(line) + chr(10))
if rank == 0:
    with open(f"{folder}/saved.jsonl", "a") as file:
        file.write(json.dumps({"version": 1, "at_s": 40, "step": 9}) + chr(10))
"""
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def test_a_gang_on_two_hosts_runs_to_its_end(driver, make_intent, tmp_path: Path) -> None:
    intent = make_intent(
        [(0, (0, 1)), (0, (2, 3)), (1, (1, 3))], TELL, env=(KeyValue(key="LEARNING_RATE", value="3e-4"),)
    )
    driver.finish(intent)

    assert [type(event) for event in driver.events] == [GangReserved, GangRunning, GangExited, GangReleased]
    assert driver.told(intent, GangExited).exits == tuple(RankExit(rank=rank, code=0) for rank in range(3))
    seen = [json.loads((tmp_path / "logs" / intent.job.id / "1" / f"{rank}.log").read_text()) for rank in range(3)]
    assert [e["RANK"] for e in seen] == ["0", "1", "2"]
    assert [e["LOCAL_RANK"] for e in seen] == ["0", "1", "0"]
    assert {e["WORLD_SIZE"] for e in seen} == {"3"}
    assert [e["LOCAL_WORLD_SIZE"] for e in seen] == ["2", "2", "1"]
    assert [e["CUDA_VISIBLE_DEVICES"] for e in seen] == ["0,1", "2,3", "1,3"]
    assert [e["PHALANX_HOST"] for e in seen] == ["h0", "h0", "h1"]
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in seen}) == 1
    assert {e["PHALANX_JOB"] for e in seen} == {intent.job.id}
    assert {(e["PHALANX_ATTEMPT"], e["PHALANX_ROLE"], e["PHALANX_GRACE_S"]) for e in seen} == {("1", "worker", "5")}
    assert {e["PHALANX_CHECKPOINT_DIR"] for e in seen} == {str(tmp_path / "checkpoints" / intent.job.id)}
    assert [e["PHALANX_CACHE_DIR"] for e in seen] == [str(tmp_path / "cache" / h) for h in ("h0", "h0", "h1")]
    assert {e["LEARNING_RATE"] for e in seen} == {"3e-4"}
    assert not [
        key for e in seen for key in e if key.startswith("RAY_") or key in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")
    ]


def test_what_ranks_report_is_copied_before_their_attempt_is_released(driver, make_intent, tmp_path: Path) -> None:
    driver.mirror = tmp_path / "copies"
    intent = make_intent([(0, (0,)), (1, (0,))], REPORT)
    driver.finish(intent)

    folder = driver.mirror / intent.job.id / "1" / "reports"
    assert [(steps.rank, steps.host, steps.own_us) for steps in read_steps(folder)] == [
        (0, "h0", 333_333),
        (1, "h1", 444_444),
    ]
    assert last_saved(folder) == Saved(step=9, at_s=40)
    assert (folder / "rank-00000.jsonl").read_text().count("version") == 1


def test_half_cards_are_pinned_to_the_cards_that_were_chosen(driver, make_intent, tmp_path: Path) -> None:
    """R9: Ray itself would put them on cards 0, 0, 1, 1."""
    intent = make_intent([(0, (card,)) for card in range(4)], TELL, gpu_milli=500)
    driver.finish(intent)

    logs = [(tmp_path / "logs" / intent.job.id / "1" / f"{rank}.log").read_text() for rank in range(4)]
    assert [json.loads(log)["CUDA_VISIBLE_DEVICES"] for log in logs] == ["0", "1", "2", "3"]


def test_a_card_that_our_books_show_whole_is_whole_to_ray(driver, make_intent) -> None:
    """Two halves of card 1 are left by the gangs that end; Ray must not see them as halves of two cards."""
    halves = [make_intent([(0, (card,))], SLEEP, gpu_milli=500) for card in (0, 1, 0, 1)]
    rest = make_intent([(0, (2, 3))], SLEEP)
    driver.run(rest)
    for intent in halves:
        driver.intents.append(intent)
    driver.until(lambda: all(driver.told(intent, GangRunning) for intent in halves))
    for intent in (halves[0], halves[2]):
        driver.stop(intent, grace_s=0)
    driver.until(lambda: driver.told(halves[0], GangReleased) and driver.told(halves[2], GangReleased))
    whole = make_intent([(0, (0,))], "pass")
    driver.finish(whole)

    assert driver.told(whole, GangExited).exits == (RankExit(rank=0, code=0),)


def test_one_failing_rank_ends_the_gang_and_its_code_is_told(driver, make_intent) -> None:
    script = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)"
    intent = make_intent([(0, (0,)), (1, (0,))], script)
    driver.finish(intent)

    exited = driver.told(intent, GangExited)
    assert exited.exits == (RankExit(rank=1, code=3),)
    assert exited.cause == "rank 1 exited with code 3"
    assert exited.lost_host is None


def test_a_command_that_does_not_exist_exits_127_and_says_why(driver, make_intent) -> None:
    from dataclasses import replace

    from phalanx.model.job import Command

    intent = make_intent([(0, (0,))], "")
    intent = replace(intent, job=replace(intent.job, command=Command(argv=("/no/such/program",))))
    driver.intents.append(intent)
    driver.until(lambda: driver.told(intent, GangExited))

    assert driver.told(intent, GangExited).exits == (RankExit(rank=0, code=127),)
    assert "cannot run '/no/such/program'" in driver.executor.logs(intent.job.id, 1, 0)[-1]


def test_a_warned_rank_saves_its_work_within_the_grace(driver, make_intent, tmp_path: Path) -> None:
    script = f"""
import os, signal, sys, time
def save(*_):
    time.sleep(0.3)
    open({str(tmp_path)!r} + '/saved-' + os.environ['RANK'], 'w').write('step 7')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('up', flush=True)
while True: time.sleep(0.1)
"""
    intent = make_intent([(0, (0,)), (1, (0,))], script, grace_s=20)
    driver.run(intent)
    driver.until(lambda: all(driver.executor.logs(intent.job.id, 1, rank) for rank in (0, 1)))
    driver.stop(intent)
    driver.until(lambda: driver.told(intent, GangReleased))

    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]


def test_a_rank_that_ignores_the_warning_is_killed_with_all_that_it_started(
    driver, make_intent, tmp_path: Path
) -> None:
    script = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=True, env={{}})
open({str(tmp_path / "pids")!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')
print('up', flush=True)
while True: time.sleep(0.1)
"""
    intent = make_intent([(0, (0,))], script, grace_s=1)
    driver.run(intent)
    driver.until(lambda: driver.executor.logs(intent.job.id, 1, 0))
    driver.stop(intent)
    driver.until(lambda: driver.phase(intent) is GangPhase.EXITED or driver.told(intent, GangReleased))
    driver.until(lambda: driver.told(intent, GangReleased))

    assert (tmp_path / "logs" / intent.job.id / "1" / "0.exit").read_text() == "-9"
    for pid in (tmp_path / "pids").read_text().split():
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


def test_a_gang_that_does_not_fit_never_stays_pending(driver, make_intent) -> None:
    """R7: it is refused at once, holds nothing on the host where it would fit, and starts when there is room."""
    first = make_intent([(1, (0, 1, 2, 3))], SLEEP)
    driver.run(first)
    second = make_intent([(0, (0, 1)), (1, (0, 1))], "pass")
    driver.intents.append(second)
    driver.until(lambda: driver.told(second, GangReleased))
    failed = driver.told(second, GangStartFailed)
    assert failed.host == "h1"
    assert failed.cause == "host h1 has 0 GPU free in Ray, 2 GPU asked"

    driver.stop(first, grace_s=0)
    driver.until(lambda: driver.told(first, GangReleased))
    again = make_intent([(0, (0, 1)), (1, (0, 1))], "pass", job=second.job.id, attempt=2)
    driver.finish(again)
    assert driver.told(again, GangExited).exits == (RankExit(rank=0, code=0), RankExit(rank=1, code=0))
