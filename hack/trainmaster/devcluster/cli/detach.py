"""`cluster up --detach`: starting a cluster in the background.

The background process is the foreground command in a session of its own, with its terminal replaced by the log. It is
started when its record names it; when it ends before that, the last lines of its log are the reason. Then the
status of its manager is read, without which it is not ready. A signal on the way stops it again: a start that was
interrupted leaves nothing behind.

Where a cluster is wanted only if there is none, the one that somebody else has started, or is starting at this moment,
is waited for.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from trainmaster.devcluster.cli.cluster_client import ClusterUnreachable, get_manager_status
from trainmaster.devcluster.cli.starting import STOP_SIGNALS, prepare_start, print_remedy, print_usage
from trainmaster.devcluster.manager.health import READY, READY_TIMEOUT, STARTING, ManagerStatus
from trainmaster.devcluster.settings import MANAGER, PARTS, ClusterSettings
from trainmaster.devcluster.state import AlreadyRunning, ClusterError, ClusterRecord, StateDirectory

_START_TIMEOUT = 60.0 + READY_TIMEOUT
"""Seconds that a cluster in the background gets; loading a large journal takes some of them. The manager has its own,
so that it is the cluster that says what is wrong with it."""

_STOP_TIMEOUT = 30.0
_POLL = 0.05
_REASON_LINES = 15


def run_detached(settings: ClusterSettings, *, if_needed: bool = False) -> int:
    """Start the cluster in the background and wait until it is ready; returns the exit code.

    Args:
        settings: Those of the cluster; with `if_needed` they do not count where one runs already.
        if_needed: Whether one that runs already, or is starting, will do.
    """
    state = settings.state
    while True:
        try:
            prepare_start(settings)
        except AlreadyRunning:
            if not if_needed:
                raise
            if _await_other(state):
                return 0
            continue  # it has ended
        if settings.token is not None:
            state.ensure_token(settings.token)  # by file: command lines are visible to everyone on the machine
        begin = state.log.stat().st_size if state.log.exists() else 0
        with _noting_signals() as received:
            with state.in_use(), state.log.open("ab") as log:
                process = _start(settings, log)
            record = _wait_ready(state, process, received)
            overtaken = record is None and not received and process.poll() is not None and state.holder() is not None
            if not (if_needed and overtaken):
                return _report(settings, process, record, begin, received)


def _start(settings: ClusterSettings, log: BinaryIO) -> subprocess.Popen[bytes]:
    settings.state.log.chmod(0o600)
    return subprocess.Popen(  # noqa: S603 - our own command line
        _command(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
    )


def _await_other(state: StateDirectory) -> bool:
    """Wait for the cluster of somebody else, and say where it is; returns whether it got ready before it ended.

    Raises:
        ClusterError: It does neither.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    told = False
    while (pid := state.holder()) is not None:
        record = state.read_record()
        if record is not None and record.pid == pid:
            print_usage(record, state, word="runs already")
            return True
        if not told:
            print(f"trainmaster: a cluster is starting here already (pid {pid}); waiting for it", file=sys.stderr)
            told = True
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the cluster on {state.path} (pid {pid}) is not ready after {_START_TIMEOUT:.0f} s; see {state.log}, "
                "or stop it with `trainmaster cluster down`"
            )
        time.sleep(_POLL)
    return False


def _report(
    settings: ClusterSettings,
    process: subprocess.Popen[bytes],
    record: ClusterRecord | None,
    begin: int,
    received: list[int],
) -> int:
    """Say how the start went, and end what did not become a cluster; returns the exit code."""
    state = settings.state
    manager = None if record is None else _manager_status(state, record)
    if received:
        _end(process)
        print("trainmaster: interrupted; the cluster is stopped again", file=sys.stderr)
        return 128 + received[0]
    if record is not None:
        if manager is None or manager.phase == READY:
            print_usage(record, state)
            # The interpreter would warn of a child that outlives it, which is the very purpose of this one.
            process.returncode = 0
            return 0
        # As `kind create cluster` does it: a start that failed says so by its exit code, and leaves nothing behind.
        # A script that went on would wait for TrainJobs that nobody works on, and a cluster that was left running
        # would refuse the next start, with the configuration corrected. What is in it stays, and so do the logs.
        _end(process)
        print_remedy(manager, settings)
        print("The cluster is stopped again.", file=sys.stderr)
        return 1
    process.kill()
    process.wait()
    print(f"trainmaster: the cluster did not start; the last lines of {state.log}:", file=sys.stderr)
    for line in _last_lines(state.log, begin) or ["(none; is there space left on the disk?)"]:
        print(f"  {line}", file=sys.stderr)
    return 1


@contextmanager
def _noting_signals() -> Iterator[list[int]]:
    """Note the signals that arrive instead of obeying them: whoever started a process has to end it first."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in STOP_SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _manager_status(state: StateDirectory, record: ClusterRecord) -> ManagerStatus | None:
    """Get the status of the manager; None if the cluster has none."""
    if MANAGER not in record.parts:
        return None
    try:
        return get_manager_status(state, record.server)
    except ClusterUnreachable as error:
        return ManagerStatus(STARTING, str(state.manager_log), str(error))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_ready(state: StateDirectory, process: subprocess.Popen[bytes], received: list[int]) -> ClusterRecord | None:
    deadline = time.monotonic() + _START_TIMEOUT
    while not received and process.poll() is None and time.monotonic() < deadline:
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
    if settings.elastic_jobsets:
        command.append("--elastic-jobsets")
    if settings.workload_aware_scheduling:
        command.append("--workload-aware-scheduling")
    if settings.audit_log is not None:
        command += ["--audit-log", str(settings.audit_log.absolute())]
    for image, words in settings.kubelet.entrypoints.items():
        command += ["--entrypoint", f"{image}={shlex.join(words)}"]
    command += ["--networking", settings.kubelet.networking, "--fake-gpus", str(settings.kubelet.fake_gpus)]
    command += ["--nodes", str(settings.kubelet.nodes)]
    command += ["--node-monitor-grace-period", str(settings.node_monitor_grace_period)]
    if settings.endpoint_lag:
        command += ["--endpoint-lag", str(settings.endpoint_lag)]
    return command


def _last_lines(path: Path, begin: int) -> list[str]:
    with path.open("rb") as log:
        log.seek(begin if path.stat().st_size >= begin else 0)
        return log.read().decode("utf-8", "replace").splitlines()[-_REASON_LINES:]
