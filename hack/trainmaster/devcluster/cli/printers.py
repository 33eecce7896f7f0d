"""What `cluster up` prints: how to use the cluster, and what is wrong with its manager."""

from __future__ import annotations

import shlex
import sys

from trainmaster.devcluster.manager.health import CRASHING, ManagerStatus
from trainmaster.devcluster.settings import MANAGER, ClusterSettings
from trainmaster.devcluster.state import ClusterRecord, StateDirectory


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
