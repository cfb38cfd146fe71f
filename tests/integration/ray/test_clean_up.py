"""Folders of attempts on real hosts: those that are past what is kept go, and a gang that runs keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.adapters.retention import attempt_folders

pytestmark = pytest.mark.ray

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def test_old_folders_go_and_those_of_living_gangs_stay_whoever_asks(driver, make_intent, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    done = make_intent([(0, (0,)), (1, (0,))], "print('done')")
    driver.finish(done)
    lives = make_intent([(0, (0,))], SLEEP)
    driver.run(lives)

    seen = []

    def everything(folders):
        seen.append([folder.key for folder in folders])
        return seen[-1]

    assert driver.executor.clean_up(everything) == 1
    assert seen == [[(done.job.id, 1), (lives.job.id, 1)]], "three hosts, one folder of logs"
    assert [folder.key for folder in attempt_folders(logs)] == [(lives.job.id, 1)]
    assert driver.executor.clean_up(everything) == 0
