"""The processes of a run: an API server and a manager, each of its own, and what the kernel knows about them.

Whatever is started here ends with the benchmark, however that ends: it hangs on a lifeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bench.api import BenchmarkFailed
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.manager import parent_death
from trainmaster.devcluster.settings import PARTS
from trainmaster.devcluster.state import StateDirectory

TESTS: Final = Path(__file__).parents[2] / "tests"
FAULTY_CLUSTER: Final = "support.devcluster.faultycluster"
"""The module of the tests that runs the embedded cluster with the control API of faults."""

_START_TIMEOUT = 180.0
_STOP_TIMEOUT = 30.0
_POLL = 0.02
_LOOK = 0.5
_LAST_LINES = 15
_WORST_LAG = "trainmaster_event_loop_lag_worst_seconds"

_QUIET_FOR: Final = 1.0
_QUIET_CPU: Final = 0.03
"""Seconds of CPU per second that a manager with nothing to do may take; the kernel counts hundredths."""


@dataclass(frozen=True, slots=True)
class Server:
    """An API server."""

    kubeconfig: Path
    audit_log: Path
    """Where it logs requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What managers of our own are run as."""

    interpreter: Sequence[str] = (sys.executable,)
    """The Python of the environment that they are installed in, with what runs it."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables besides our own."""


class Process:
    """A process that is measured, whoever started it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if _stat(pid) is None:
            raise BenchmarkFailed(f"there is no /proc/{pid}: the benchmark needs Linux, and the process has to run")

    async def ended(self) -> None:
        """Return when it runs no more."""
        while (stat := _stat(self.pid)) is not None and stat[0] not in {"Z", "X"}:  # noqa: ASYNC110 - it may be no child
            await asyncio.sleep(_LOOK)

    def cpu(self) -> float:
        """Return the seconds of CPU that it has used, in user mode and in the kernel."""
        fields = _stat(self.pid)
        if fields is None:
            raise BenchmarkFailed(f"process {self.pid} has ended")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return the megabytes that are resident."""
        return self._status("VmRSS")

    def peak_memory(self) -> float:
        """Return the most megabytes that ever were."""
        return self._status("VmHWM")

    async def rest(self, *, patience: float) -> None:
        """Wait until it has nothing more to do, but no longer than `patience` seconds."""
        deadline = time.monotonic() + patience
        before = self.cpu()
        while time.monotonic() < deadline:
            await asyncio.sleep(_QUIET_FOR)
            now = self.cpu()
            if now - before <= _QUIET_CPU * _QUIET_FOR:
                return
            before = now
        raise BenchmarkFailed(
            f"process {self.pid} is still busy after {patience:.0f} s; does it reconcile in a circle?"
        )

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise BenchmarkFailed(f"/proc/{self.pid}/status does not tell {name}")


class Manager(Process):
    """A manager that the benchmark has started."""

    def __init__(
        self, process: subprocess.Popen[bytes], *, started: float, log: Path, health: str, metrics: str
    ) -> None:
        super().__init__(process.pid)
        self._process = process
        self._started = started
        self._log = log
        self._health = health
        self._metrics = metrics
        self.ready_after: float
        """Seconds from its start until it was ready."""

    async def wait_ready(self) -> None:
        """Wait until its readiness probe succeeds."""
        async with aiohttp.ClientSession() as session:
            while not await succeeds(session, self._health):
                if self._process.poll() is not None or time.monotonic() > self._started + _START_TIMEOUT:
                    raise BenchmarkFailed(f"the manager does not become ready; its last lines:\n{self.last_lines()}")
                await asyncio.sleep(_POLL)
        self.ready_after = time.monotonic() - self._started

    async def metrics(self) -> str:
        """Return its metrics as text."""
        async with aiohttp.ClientSession() as session, session.get(self._metrics) as response:
            return await response.text()

    async def worst_stall(self) -> float | None:
        """Return the longest time, in seconds, in which its event loop did not turn, if it measures that."""
        for family in text_string_to_metric_families(await self.metrics()):
            for sample in family.samples:
                if sample.name == _WORST_LAG:
                    return float(sample.value)
        return None

    def last_lines(self) -> str:
        """Return the end of its log."""
        return _last_lines(self._log)


def python_path(*directories: Path) -> str:
    """Return the search path of a Python that finds these besides what it finds by itself."""
    return os.pathsep.join([*map(str, directories), *filter(None, [os.environ.get("PYTHONPATH")])])


@asynccontextmanager
async def api_server(directory: Path) -> AsyncIterator[Server]:
    """Run a bare API server."""
    audit, log = directory / "audit.log", directory / "server.log"
    state = StateDirectory(directory / "cluster")
    command = [FAULTY_CLUSTER, "cluster", "up", "--state-dir", str(state.path)]
    command += ["--without", ",".join(PARTS), "--audit-log", str(audit)]
    async with run_process(command, log, {"PYTHONPATH": python_path(TESTS)}) as process:
        deadline = time.monotonic() + _START_TIMEOUT
        while (record := state.read_record()) is None or record.pid != process.pid:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkFailed(f"the API server does not start; its last lines:\n{_last_lines(log)}")
            await asyncio.sleep(_POLL)
        yield Server(state.kubeconfig, audit)


@asynccontextmanager
async def manager(kubeconfig: Path, directory: Path, *, program: Program | None = None) -> AsyncIterator[Manager]:
    """Run a manager that is ready, on free ports of the loopback interface.

    It runs without leader election and webhooks.

    Args:
        kubeconfig: How it reaches the API server.
        directory: Where it may write.
        program: What it is run as; by default our own Python.
    """
    program = program or Program()
    health, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    file = directory / "manager.yaml"
    content = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"enabled": False},
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": metrics, "secureServing": False},
    }
    file.write_text(json.dumps(content), encoding="utf-8")
    log = directory / "manager.log"
    command = ["trainmaster.controller.cli", "manager", "--kubeconfig", str(kubeconfig), "--config", str(file)]
    started = time.monotonic()
    async with run_process(command, log, program.environment, interpreter=program.interpreter) as process:
        running = Manager(
            process,
            started=started,
            log=log,
            health=f"http://{health}/readyz",
            metrics=f"http://{metrics}/metrics",
        )
        await running.wait_ready()
        yield running


@asynccontextmanager
async def run_process(
    command: list[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    interpreter: Sequence[str] = (sys.executable,),
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a module with arguments, with some variables besides our own, until the block ends.

    It keeps its bytecode, as an installed program does, whatever our environment says: to compile everything at each
    start would take a second.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own program; starting it takes a millisecond
            # As a file: the environment of another commit may not have that module.
            [*interpreter, "-P", parent_death.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**inherited, **(environment or {})},
        )
    try:
        yield process
    finally:
        await _stop(process)


async def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, _STOP_TIMEOUT)
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _stat(pid: int) -> list[str] | None:
    """Return what the kernel tells of a process, from its state on; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()  # the name of the program, in parentheses, may contain anything


async def succeeds(session: aiohttp.ClientSession, url: str) -> bool:
    """Return whether a server answers, with 200."""
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
