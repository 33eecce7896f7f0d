"""`cluster down`: an orderly end within a limited time, then an end; and what it ended is said."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from trainmaster.devcluster.cli.cluster_client import ClusterUnreachable, get
from trainmaster.devcluster.settings import KUBELET
from trainmaster.devcluster.state import ClusterError, StateDirectory
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject

GRACE = 30.0
"""Seconds for an orderly end: the manager gets ten of them, and processes of pods have their own grace periods."""

_KILL_GRACE = 10.0
_POLL = 0.05

_LOOK = 2.0
"""Seconds to ask what runs; a server that does not answer by then is stopped all the same."""

_RUNNING_PODS = "/api/v1/pods?fieldSelector=status.phase%3DRunning"
_JOB_LABEL = "training.kubeflow.org/job-name"
_NAMED = 5


def stop(state: StateDirectory, *, purge: bool = False) -> int:
    """Stop the cluster if it runs, and delete its state if asked to; returns the exit code."""
    pid = state.holder()
    if pid is None:
        print(f"no cluster is running on {state.path}")
    else:
        running = _running_pods(state, pid)
        _end(state, pid)
        print(f"stopped the cluster on {state.path}")
        if running:
            print(describe_ended(running, purge=purge))
    if purge and state.lock.exists():
        state.purge()
        print(f"deleted its state in {state.path}")
    return 0


def _running_pods(state: StateDirectory, pid: int) -> list[JsonObject]:
    """Return the pods whose processes end with the cluster; none where that cannot be known."""
    try:
        record = state.read_record()
        if record is None or record.pid != pid or KUBELET not in record.parts:
            return []
        pods: list[JsonObject] = get(state, record.server, _RUNNING_PODS, timeout=_LOOK)["items"]
    except (ClusterError, ClusterUnreachable, KeyError):
        return []
    return pods


def describe_ended(pods: list[JsonObject], *, purge: bool) -> str:
    """Say what ended with the cluster, of the pods that ran in it, and what comes of that."""
    jobs: set[str] = set()
    others = 0
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        name = labels.get(JOBSET_LABEL) or labels.get(_JOB_LABEL)
        if name:
            jobs.add(f"{pod['metadata']['namespace']}/{name}")
        else:
            others += 1
    names = [*sorted(jobs)[:_NAMED], *([f"{len(jobs) - _NAMED} more"] if len(jobs) > _NAMED else [])]
    what = [f"{_count(len(jobs), 'training job')} ({', '.join(names)})"] if jobs else []
    if others:
        what.append(_count(others, "other pod" if jobs else "pod"))
    verb, whose = ("was", "its") if len(jobs) + others == 1 else ("were", "their")
    said = f"{' and '.join(what)} {verb} running; {whose} processes ended with it"
    if purge:
        return said
    if not jobs:
        return f"{said}; after `trainmaster cluster up` pods start again as their restartPolicy says"
    return (
        f"{said}; after `trainmaster cluster up` that counts as a failure:\n"
        "  jobs that may be retried start again, the others are Failed (`trainmaster restart JOB` runs one anew)"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
