"""`phalanx demo`: the whole service on this machine with an example mix of jobs, from submit to finished.

It starts what `phalanx serve` starts, in this process's care, and talks to it over HTTP as anybody would.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from ..model.errors import InvalidInput
from . import demo_jobs, demo_view
from .cli.client import Service, job_path
from .cli.exit_codes import Exit, Stop
from .cli.watch import ENDED
from .serve import serve
from .settings import DEFAULT_PORT, Settings

POLL_S = 0.4
READY_WAIT_S = 120.0


def run_demo(out: Console, *, data: Path | None, port: int | None, stay: bool, limit_s: int) -> int:
    """Runs the mix; returns 0 if every job succeeded. Without `data` it works in a temporary folder, removed after.

    `stay` keeps the service up after the summary until Ctrl-C. Past `limit_s` seconds it gives up with exit code 1.
    """
    with _folder(data) as folder, _terminated_as_interrupted():
        jobs = demo_jobs.first_jobs(folder)
        settings = _settings(folder, port)
        with _Serving(settings) as serving:
            service = Service(settings.url)
            out.print(f"[bold]Phalanx[/] starts on {settings.url} with a local Ray cluster of five pretended hosts ...")
            serving.wait_until_ready(service)
            out.print(f"Status page: [bold]{settings.url}/[/]\n")
            outcome = _Demo(out, service, serving, limit_s).run(jobs)
            if stay:
                out.print(f"\nStill serving {settings.url}/ until Ctrl-C.")
                serving.wait()
            return outcome


class _Demo:
    """Submits, shows, sums up."""

    def __init__(self, out: Console, service: Service, serving: _Serving, limit_s: int) -> None:
        self._out = out
        self._service = service
        self._serving = serving
        self._ends_at = time.monotonic() + limit_s
        self._told: dict[str, str] = {}
        self._warned: dict[str, list[str]] = {}
        self._screen: Live | None = None
        self._acts = self._script()

    def run(self, jobs: list[dict[str, Any]]) -> int:
        """The whole mix, to the last job's end."""
        for job in jobs:
            self._submit(job)
        self._warn()
        self._refused(demo_jobs.impossible_job())
        with self._live():
            self._follow_until(self._all_told)
        return self._sum_up()

    def _all_told(self, jobs: list[dict[str, Any]]) -> bool:
        """Submits what is due; whether nothing is left to submit and every job has ended."""
        for due, job in list(self._acts):
            if due(jobs):
                self._submit(job)
                self._acts.remove((due, job))
        return not self._acts and all(job["state"] in ENDED for job in jobs)

    def _script(self) -> list[tuple[Callable[[list[dict[str, Any]]], bool], dict[str, Any]]]:
        """What is submitted later, and when."""
        probes = ("probe-1", "probe-2", "probe-3", "half-a", "half-b")
        return [
            (lambda now: _state(now, demo_jobs.TRAINING) not in ("queued", "planned"), demo_jobs.waiting_job()),
            (lambda now: _state(now, demo_jobs.FINETUNE) == "running", demo_jobs.pair_job()),
            (lambda now: self._drained(), demo_jobs.short_job()),
            (lambda now: self._drained(), demo_jobs.long_job()),
            (lambda now: all(_state(now, name) in ENDED for name in probes), demo_jobs.borrower_job()),
            (lambda now: _ran_s(now, demo_jobs.BORROWER) > demo_jobs.MIN_RUN_S, demo_jobs.owner_job()),
            (self._well_under_way, demo_jobs.incident_job()),
        ]

    def _drained(self) -> bool:
        """Whether a host is held for the pair."""
        hosts = self._service.get("/v1/hosts")["hosts"]
        return any(demo_jobs.PAIR in host["reserved_for"] for host in hosts)

    def _submit(self, job: dict[str, Any]) -> None:
        answer = self._service.submit(job, f"demo-{job['id']}")
        for warning in answer["warnings"]:
            self._warned.setdefault(warning, []).append(answer["job"])

    def _warn(self) -> None:
        for warning, jobs in self._warned.items():
            self._print(f"Warning for {', '.join(jobs)}: {warning}.\n")

    def _refused(self, job: dict[str, Any]) -> None:
        try:
            self._submit(job)
        except Stop as stop:
            if stop.code is not Exit.REFUSED:
                raise
            self._out.print(f"[bold]{job['id']}[/] is refused at submission: {escape(stop.message)}\n")
            return
        raise Stop(Exit.NO, f"the impossible job {job['id']} was accepted")

    def _follow_until(self, done: Any) -> None:
        """Shows the jobs until `done(jobs)`, or the limit."""
        while True:
            self._serving.check()
            now = self._service.get("/v1/jobs", limit=100)["jobs"]
            self._show(now)
            if done(now):
                return
            if time.monotonic() > self._ends_at:
                raise Stop(Exit.NO, "the jobs did not finish in time")
            time.sleep(POLL_S)

    def _well_under_way(self, jobs: list[dict[str, Any]]) -> bool:
        """Whether the training has done a good part of its steps, and may be preempted."""
        job = next(job for job in jobs if job["id"] == demo_jobs.TRAINING)
        if job["state"] != "running":
            return job["state"] in ENDED
        lines = self._service.get(job_path(demo_jobs.TRAINING, "logs"), rank=0, tail=demo_jobs.STEPS)["lines"]
        return len(lines) >= demo_jobs.STEPS // 4 and time.time() - job["started_s"] > demo_jobs.MIN_RUN_S

    def _show(self, jobs: list[dict[str, Any]]) -> None:
        if self._screen is not None:
            self._screen.update(demo_view.screen(jobs, self._service.get("/v1/hosts")["hosts"]))
            return
        for line in demo_view.changes(jobs, self._told):
            self._print(f"  {line}")

    def _sum_up(self) -> int:
        jobs = self._service.get("/v1/jobs", limit=100)["jobs"]
        lines = self._service.get(job_path(demo_jobs.TRAINING, "logs"), rank=0, tail=10_000)["lines"]
        if told := demo_view.training_told(lines):
            self._out.print(f"\n[bold]{demo_jobs.TRAINING}[/]: {told}")
        decisions = self._decisions()
        for told in demo_view.drains_told(decisions):
            self._out.print(told)
        for job, told in demo_view.preemptions_told(decisions, lines):
            self._out.print(f"[bold]{job}[/]: {told}")
        rounds = self._service.get("/v1/rounds", limit=500)["rounds"]
        demo_view.summary(self._out, self._service.get("/v1/summary"), rounds)
        missed = [job["id"] for job in jobs if job["state"] != "succeeded"]
        if missed:
            raise Stop(Exit.NO, f"not every job succeeded: {', '.join(missed)}")
        return Exit.OK

    def _decisions(self) -> list[dict[str, Any]]:
        """The decisions of the rounds so far, oldest first."""
        numbers = [row["number"] for row in self._service.get("/v1/rounds", limit=500)["rounds"]]
        return [self._service.get(f"/v1/rounds/{number}")["decision"] for number in sorted(numbers)]

    @contextmanager
    def _live(self) -> Iterator[None]:
        if not self._out.is_terminal:
            yield
            return
        with Live(console=self._out, refresh_per_second=4) as screen:
            self._screen = screen
            try:
                yield
            finally:
                self._screen = None

    def _print(self, line: str) -> None:
        self._out.print(line, markup=False)


class _Serving:
    """The service in a thread of this process: its children end with it, whatever ends it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Serving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        while self._thread.is_alive():
            # A second Ctrl-C must not leave half of the processes behind.
            with suppress(KeyboardInterrupt):
                self._thread.join(0.2)

    def _run(self) -> None:
        try:
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                serve(self._settings, out=nowhere, stop=self._stop)
        except BaseException as fault:
            self._fault = fault

    def check(self) -> None:
        """Raises what ended the service, if anything did."""
        if self._fault is not None:
            raise self._fault
        if not self._thread.is_alive():
            raise Stop(Exit.UNREACHABLE, "the service has ended by itself")

    def wait_until_ready(self, service: Service) -> None:
        """Until a scheduler leads and the Ray cluster is up."""
        ends_at = time.monotonic() + READY_WAIT_S
        while time.monotonic() < ends_at:
            self.check()
            with suppress(Stop):
                if service.get("/readyz")["ready"] and (self._settings.data_dir / "ray-address").is_file():
                    return
            time.sleep(0.2)
        raise Stop(Exit.UNREACHABLE, f"the service was not ready within {READY_WAIT_S:.0f} s")

    def wait(self) -> None:
        """Until the service ends or Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.5)
        self.check()


def _state(jobs: list[dict[str, Any]], name: str) -> str:
    return next((str(job["state"]) for job in jobs if job["id"] == name), "")


def _ran_s(jobs: list[dict[str, Any]], name: str) -> float:
    """For how long the job runs by now; for ever once it has ended."""
    job = next((job for job in jobs if job["id"] == name), None)
    if job is None or job["state"] != "running":
        return float("inf") if job is not None and job["state"] in ENDED else 0.0
    return time.time() - float(job["started_s"])


def _settings(folder: Path, port: int | None) -> Settings:
    fleet = folder / "fleet.toml"
    fleet.write_text(demo_jobs.FLEET, encoding="utf-8")
    # The processes of the service read the policy from the file, as those of any installation do.
    config = folder / "phalanx.toml"
    config.write_text(demo_jobs.POLICY, encoding="utf-8")
    (folder / "log").mkdir(exist_ok=True)
    # Warnings of the supervisor belong into a file: on the terminal they would tear the live view.
    logging.basicConfig(filename=folder / "log" / "serve.log", level=logging.WARNING)
    return Settings(
        data_dir=folder,
        store_url=f"sqlite:///{folder / 'phalanx.db'}",
        port=port or _free_port(),
        round_interval_s=1,
        fleet_file=fleet,
        config_file=config,
    )


def _free_port() -> int:
    """The usual port, or any free one where it is taken."""
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise InvalidInput("--port", "no port is free", "a free port")


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        if (data / "phalanx.db").exists():
            raise InvalidInput("--data", f"{data} holds a service's data already", "a new folder")
        yield data.absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="phalanx-demo-"))
    try:
        yield folder
    except Stop as stop:
        # Whoever looks into a failure needs the logs.
        raise Stop(stop.code, f"{stop.message} (logs are kept in {folder / 'log'})") from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM (of `kill`, of `make` when it is stopped) cleans up as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
