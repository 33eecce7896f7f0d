"""`cluster down`: an orderly end within a limited time, then an end."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from trainmaster.devcluster.state import ClusterError, StateDirectory

GRACE = 30.0
"""Seconds for an orderly end: the manager gets ten of them, and processes of pods have their own grace periods."""

_KILL_GRACE = 10.0
_POLL = 0.05


def stop(state: StateDirectory, *, purge: bool = False) -> int:
    """Stop the cluster if it runs, and delete its state if asked to; returns the exit code."""
    pid = state.holder()
    if pid is None:
        print(f"no cluster is running on {state.path}")
    else:
        _end(state, pid)
        print(f"stopped the cluster on {state.path}")
    if purge and state.lock.exists():
        state.purge()
        print(f"deleted its state in {state.path}")
    return 0


def _end(state: StateDirectory, pid: int) -> None:
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, _KILL_GRACE)):
        # The lock is what counts, not the process: who holds it now may have taken it over from the one that we saw.
        if state.holder() != pid:
            return
        _signal(pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if state.holder() != pid:
                return
            time.sleep(_POLL)
    raise ClusterError(f"the cluster (pid {pid}) does not end, not even by SIGKILL; look at what blocks that process")


def _signal(pid: int, number: signal.Signals) -> None:
    if pid <= 0:
        raise ClusterError("the cluster is just starting; try again in a moment")
    with contextlib.suppress(ProcessLookupError):
        try:
            os.kill(pid, number)
        except PermissionError as error:
            raise ClusterError(f"may not stop the cluster (pid {pid}); do it as the user who started it") from error
