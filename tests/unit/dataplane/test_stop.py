import os
import signal
import subprocess
import sys

SCRIPT = """
import os, signal, threading
from phalanx.dataplane.stop import agree_to_stop, grace_left_s, stop_requested

failures = []
def early():
    try:
        stop_requested()
    except RuntimeError as error:
        failures.append(str(error))
thread = threading.Thread(target=early)
thread.start()
thread.join()
assert "main thread" in failures[0]

assert not stop_requested() and not agree_to_stop() and grace_left_s() is None
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGTERM)
assert stop_requested() and agree_to_stop()
assert 0 < grace_left_s() <= 30, grace_left_s()
os.environ["PHALANX_GRACE_S"] = "0"
assert grace_left_s() == 0
del os.environ["PHALANX_GRACE_S"]
assert grace_left_s() is None
print("saved")
"""


def test_sigterm_is_noted_and_the_grace_runs() -> None:
    environment = {**os.environ, "PHALANX_GRACE_S": "30"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "saved\n", "")


def test_before_anyone_asks_sigterm_ends_the_process() -> None:
    script = "import os, signal, phalanx.dataplane.stop; os.kill(os.getpid(), signal.SIGTERM)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGTERM
