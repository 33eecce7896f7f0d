"""`cluster up`: running a cluster in the foreground, or starting one in the background.

The background process is the foreground command in a session of its own, with its terminal replaced by the log. It is
ready when its record names it; when it ends before that, the last lines of its log are the reason.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from trainmaster.devcluster.cluster import Cluster, ClusterSettings
from trainmaster.devcluster.logs import configure_logs
from trainmaster.devcluster.parts import MANAGER, PARTS
from trainmaster.devcluster.state import ClusterError, ClusterRecord, StateDirectory

READY_TIMEOUT = 60.0
"""Seconds that a cluster in the background gets; loading a large journal takes some of them."""

_POLL = 0.05
_REASON_LINES = 15
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(settings: ClusterSettings) -> int:
    """Run the cluster until a signal ends it; returns the exit code."""
    state = settings.state
    _check_configuration(settings)
    state.prepare()
    if state.holder() is not None:
        raise state.already_running()
    configure_logs(state.log)
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: ClusterSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    async with Cluster(settings) as cluster:
        _announce(cluster.record, settings.state)
        print("Press Ctrl-C to stop it; what is in it stays.", flush=True)
        failed = asyncio.create_task(cluster.failure())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)  # a second Ctrl-C is for somebody who does not want to wait
        if failed.done():
            failed.result()
        failed.cancel()
        print("Stopping.", flush=True)


def detach(settings: ClusterSettings) -> int:
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
        _announce(record, state)
        # The interpreter would warn of a child that outlives it, which is the very purpose of this one.
        process.returncode = 0
        return 0
    process.kill()
    process.wait()
    print(f"trainmaster: the cluster did not start; the last lines of {state.log}:", file=sys.stderr)
    for line in _last_lines(state.log, begin):
        print(f"  {line}", file=sys.stderr)
    return 1


def _wait_ready(state: StateDirectory, process: subprocess.Popen[bytes]) -> ClusterRecord | None:
    deadline = time.monotonic() + READY_TIMEOUT
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
    """Tell of a missing file now: the manager would only tell its log."""
    path = settings.manager_config
    if path is not None and MANAGER in settings.parts and not os.access(path, os.R_OK):
        raise ClusterError(f"cannot read {path}; name the configuration file of the manager with --config")


def _announce(record: ClusterRecord, state: StateDirectory) -> None:
    print(f"Cluster is ready at {record.server} (pid {record.pid}); parts: {', '.join(record.parts) or 'none'}")
    print(f"Logs: {state.log}" + (f", {state.manager_log}" if MANAGER in record.parts else ""))
    print("To use it:")
    print(f"  export KUBECONFIG={shlex.quote(record.kubeconfig)}", flush=True)


def _last_lines(path: Path, begin: int) -> list[str]:
    with path.open("rb") as log:
        log.seek(begin if path.stat().st_size >= begin else 0)
        return log.read().decode("utf-8", "replace").splitlines()[-_REASON_LINES:]
