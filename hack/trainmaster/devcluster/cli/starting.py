"""What starts in the foreground and in the background have in common: the checks before, and what is printed.

Whoever starts one in the background imports nothing of the cluster itself: that takes most of a second. Without the
extra that the cluster needs he fails here, at its jsonpatch, and not with the log of a process that did not start.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import Final

import jsonpatch  # noqa: F401 - see above

from trainmaster.devcluster.manager.health import CRASHING, ManagerStatus
from trainmaster.devcluster.settings import MANAGER, ClusterSettings
from trainmaster.devcluster.state import ClusterError, ClusterRecord, StateDirectory

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def prepare_start(settings: ClusterSettings) -> None:
    """Prepare the state directory.

    Raises:
        ClusterError: A cluster runs on it, it cannot be used, or the configuration of the manager cannot be read.
    """
    path = settings.manager_config
    # A missing file is found now: the manager would only say so in its log. It is one file, which is merged with ours.
    if path is not None and MANAGER in settings.parts and (path.is_dir() or not os.access(path, os.R_OK)):
        raise ClusterError(f"cannot read {path}; name the configuration file of the manager with --config")
    settings.state.prepare()
    if settings.state.holder() is not None:
        raise settings.state.already_running()


def print_remedy(manager: ManagerStatus, settings: ClusterSettings) -> None:
    """Say what is wrong with a manager that does not come up, and what to do."""
    print_problem(manager)
    remedy = "correct what the error names"
    if settings.manager_config is not None:
        remedy += f" (its configuration comes from {settings.manager_config.absolute()})"
    print(f"  what next:  {remedy}, and start the cluster again", file=sys.stderr)
    print("              --without manager starts it without one", file=sys.stderr, flush=True)


def print_problem(manager: ManagerStatus) -> None:
    """Say what is wrong with a manager."""
    problem = "does not run" if manager.phase == CRASHING else "is not ready"
    print(f"trainmaster: the manager of the cluster {problem}: {manager.summary}", file=sys.stderr)
    label = "last error:" if manager.exit_code is not None else "waits for: "
    print(f"  {label} {manager.message}", file=sys.stderr)
    print(f"  its log:    {manager.log}", file=sys.stderr, flush=True)


def print_usage(record: ClusterRecord, state: StateDirectory, *, word: str = "is ready") -> None:
    """Say where the cluster is, how to use it, and what its user should know about how it started."""
    print(f"Cluster {word} at {record.server} (pid {record.pid}); parts: {', '.join(record.parts) or 'none'}")
    print(f"Logs: {state.log}" + (f", {state.manager_log}" if MANAGER in record.parts else ""))
    for note in record.notes:
        print(f"Note: {note}")
    print("To use it:")
    print(f"  export KUBECONFIG={shlex.quote(record.kubeconfig)}", flush=True)
