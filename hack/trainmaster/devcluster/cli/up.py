"""`cluster up`: running a cluster in the foreground, or starting one in the background.

The background process is the foreground command in a session of its own, with its terminal replaced by the log. It is
started when its record names it; when it ends before that, the last lines of its log are the reason. Then the
status of its manager is read, without which it is not ready.

The log has one readable line an event, in a file that does not grow without limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog

from trainmaster.devcluster.cli.cluster_client import ClusterUnreachable, get_manager_status
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.manager.health import CRASHING, READY, READY_TIMEOUT, STARTING, ManagerHealth, ManagerStatus
from trainmaster.devcluster.settings import MANAGER, PARTS, ClusterSettings
from trainmaster.devcluster.state import ClusterError, ClusterRecord, StateDirectory

_LEVEL = logging.INFO
_SIZE_LIMIT = 10 * 2**20


def configure_logging(path: Path) -> None:
    """Write the logs of structlog and of the standard library to a file."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVEL),
        cache_logger_on_first_use=True,
    )
    handler = RotatingFileHandler(path, maxBytes=_SIZE_LIMIT, backupCount=1, encoding="utf-8")
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("trainmaster").setLevel(_LEVEL)


_START_TIMEOUT = 60.0 + READY_TIMEOUT
"""Seconds that a cluster in the background gets; loading a large journal takes some of them. The manager has its own,
so that it is the cluster that says what is wrong with it."""

_STOP_TIMEOUT = 30.0
_POLL = 0.05
_REASON_LINES = 15
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_foreground(settings: ClusterSettings) -> int:
    """Run the cluster until a signal ends it; returns the exit code."""
    state = settings.state
    _check_configuration(settings)
    state.prepare()
    if state.holder() is not None:
        raise state.already_running()
    configure_logging(state.log)
    asyncio.run(_run(settings))
    return 0


async def _run(settings: ClusterSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    async with Cluster(settings) as cluster:
        failed = asyncio.create_task(cluster.failure())
        stopped = asyncio.create_task(stop.wait())
        reported = asyncio.create_task(_report_start(cluster, settings))
        await asyncio.wait([failed, stopped, reported], return_when=asyncio.FIRST_COMPLETED)
        if reported.done():
            reported.result()
            reporting = asyncio.create_task(_report_changes(cluster.health))
            await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
            reporting.cancel()
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)  # a second Ctrl-C is for somebody who does not want to wait
        if failed.done():
            failed.result()
        failed.cancel()
        reported.cancel()
        print("Stopping.", flush=True)


async def _report_start(cluster: Cluster, settings: ClusterSettings) -> None:
    """Wait until it is known how the start went, and print it.

    Without its manager the cluster runs on: the API server, and all that is in it, can still be looked at, and who
    started it in the foreground reads this.
    """
    manager = await cluster.wait_ready()
    problem = manager is not None and manager.phase != READY
    if manager is not None and problem:
        _print_remedy(manager, settings)
    _print_usage(cluster.record, settings.state, word="runs" if problem else "is ready")
    print("Press Ctrl-C to stop it; what is in it stays.", flush=True)


async def _report_changes(health: ManagerHealth) -> None:
    """Print when the manager begins to crash, and when it recovers."""
    while True:
        if health.status.phase != READY:
            await health.until(lambda status: status.phase == READY)
            print("trainmaster: the manager of the cluster runs again", file=sys.stderr, flush=True)
        _print_problem(await health.until(lambda status: status.phase == CRASHING))


def run_detached(settings: ClusterSettings) -> int:
    """Start the cluster in the background and wait until it is ready; returns the exit code."""
    state = settings.state
    _check_configuration(settings)
    state.prepare()
    if state.holder() is not None:
        raise state.already_running()
    if settings.token is not None:
        state.ensure_token(settings.token)  # handed over by file: command lines are visible to everyone on the machine
    begin = state.log.stat().st_size if state.log.exists() else 0
    with state.log.open("ab") as log:
        state.log.chmod(0o600)
        process = subprocess.Popen(  # noqa: S603 - our own command line
            _command(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    record = _wait_ready(state, process)
    if record is not None:
        manager = _manager_status(state, record)
        if manager is None or manager.phase == READY:
            _print_usage(record, state)
            # The interpreter would warn of a child that outlives it, which is the very purpose of this one.
            process.returncode = 0
            return 0
        # As `kind create cluster` does it: a start that failed says so by its exit code, and leaves nothing behind.
        # A script that went on would wait for TrainJobs that nobody works on, and a cluster that was left running
        # would refuse the next start, with the configuration corrected. What is in it stays, and so do the logs.
        _end(process)
        _print_remedy(manager, settings)
        print("The cluster is stopped again.", file=sys.stderr)
        return 1
    process.kill()
    process.wait()
    print(f"trainmaster: the cluster did not start; the last lines of {state.log}:", file=sys.stderr)
    for line in _last_lines(state.log, begin):
        print(f"  {line}", file=sys.stderr)
    return 1


def _manager_status(state: StateDirectory, record: ClusterRecord) -> ManagerStatus | None:
    """Get the status of the manager; None if the cluster has none."""
    if MANAGER not in record.parts:
        return None
    try:
        return get_manager_status(state, record)
    except ClusterUnreachable as error:
        return ManagerStatus(STARTING, str(state.manager_log), str(error))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_ready(state: StateDirectory, process: subprocess.Popen[bytes]) -> ClusterRecord | None:
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        if state.holder() == process.pid:
            record = state.read_record()
            if record is not None and record.pid == process.pid:
                return record
        time.sleep(_POLL)
    return None


def _command(settings: ClusterSettings) -> list[str]:
    command = [sys.executable, "-P", "-m", "trainmaster.devcluster", "cluster", "up"]
    command += ["--state-dir", str(settings.state.path), "--port", str(settings.port or 0)]
    if missing := [part for part in PARTS if part not in settings.parts]:
        command += ["--without", ",".join(missing)]
    if settings.kubeconfig is not None:
        command += ["--kubeconfig", str(settings.kubeconfig.absolute())]
    if settings.manager_config is not None:
        command += ["--config", str(settings.manager_config.absolute())]
    if settings.rbac:
        command.append("--rbac")
    if settings.audit_log is not None:
        command += ["--audit-log", str(settings.audit_log.absolute())]
    command += ["--networking", settings.kubelet.networking, "--fake-gpus", str(settings.kubelet.fake_gpus)]
    if settings.fault_control:
        command.append("--fault-control")
    return command


def _check_configuration(settings: ClusterSettings) -> None:
    """Find a missing file now: the manager would only say so in its log."""
    path = settings.manager_config
    if path is not None and MANAGER in settings.parts and not os.access(path, os.R_OK):
        raise ClusterError(f"cannot read {path}; name the configuration file of the manager with --config")


def _print_remedy(manager: ManagerStatus, settings: ClusterSettings) -> None:
    """Say what is wrong with a manager that does not come up, and what to do."""
    _print_problem(manager)
    remedy = "correct what the error names"
    if settings.manager_config is not None:
        remedy = f"correct {settings.manager_config.absolute()}, from which its configuration comes"
    print(f"  what next:  {remedy}, and start the cluster again", file=sys.stderr)
    print("              --without manager starts it without one", file=sys.stderr, flush=True)


def _print_problem(manager: ManagerStatus) -> None:
    problem = "does not run" if manager.phase == CRASHING else "is not ready"
    print(f"trainmaster: the manager of the cluster {problem}: {manager.summary}", file=sys.stderr)
    label = "last error:" if manager.exit_code is not None else "waits for: "
    print(f"  {label} {manager.message}", file=sys.stderr)
    print(f"  its log:    {manager.log}", file=sys.stderr, flush=True)


def _print_usage(record: ClusterRecord, state: StateDirectory, *, word: str = "is ready") -> None:
    print(f"Cluster {word} at {record.server} (pid {record.pid}); parts: {', '.join(record.parts) or 'none'}")
    print(f"Logs: {state.log}" + (f", {state.manager_log}" if MANAGER in record.parts else ""))
    print("To use it:")
    print(f"  export KUBECONFIG={shlex.quote(record.kubeconfig)}", flush=True)


def _last_lines(path: Path, begin: int) -> list[str]:
    with path.open("rb") as log:
        log.seek(begin if path.stat().st_size >= begin else 0)
        return log.read().decode("utf-8", "replace").splitlines()[-_REASON_LINES:]
