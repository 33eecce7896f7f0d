"""How containers of a training job ended that should not have, from what their pods say; pure.

A container that is restarted in place (`restartPolicy: OnFailure`) tells of its last run in `lastState`: a failure can
be read until the next one, or until the pod is deleted.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.api.constants import COMPLETION_INDEX_ANNOTATION, NODE
from trainmaster.runtime.jsontree import JsonObject

JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
RESTART_ATTEMPT_LABEL: Final = "jobset.sigs.k8s.io/restart-attempt"

_MEANINGS: Final = {
    126: "the command cannot be executed",
    127: "the command was not found",
    128: "the container could not be started",
    134: "aborted: SIGABRT, often an assertion in native code",
    137: "killed: SIGKILL, often for want of memory, or when a pod does not stop in time",
    139: "crashed: SIGSEGV, a bad memory access in native code",
    143: "ended: SIGTERM, somebody stopped it",
}
_SIGNALS_FROM: Final = 128
_ENDED_BY_OTHERS: Final = frozenset({128 + signal.SIGKILL, 128 + signal.SIGTERM})


@dataclass(frozen=True, slots=True)
class ContainerFailure:
    """One run of a container that failed."""

    pod: str
    pod_uid: str
    container: str
    rank: int | None
    """The number of the node, counted from 0; None for what does not train: initializers, launchers, sidecars."""

    attempt: int
    """How often the whole workload had been started anew before."""

    run: int
    """How often the container had been restarted in its pod before."""

    exit_code: int
    reason: str
    message: str
    """Its termination message: the end of its log where the pod asks for that; may be empty."""

    at: str
    """RFC 3339, to the second."""

    @property
    def order(self) -> tuple[str, bool, int]:
        """Sorts failures: by time; of those in one second, who was stopped by somebody else comes last."""
        return self.at, self.exit_code in _ENDED_BY_OTHERS, -1 if self.rank is None else self.rank


def container_failures(pod: JsonObject) -> list[ContainerFailure]:
    """Return the failures that a pod still tells of, the current and the last run of each container."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    attempt = labels.get(RESTART_ATTEMPT_LABEL, "0")
    found = []
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        runs = container.get("restartCount", 0)
        # While it waits for its restart, that is not counted yet.
        before = runs if "waiting" in (container.get("state") or {}) else runs - 1
        for name, run in (("lastState", before), ("state", runs)):
            ended = (container.get(name) or {}).get("terminated")
            if not ended or not ended.get("exitCode"):
                continue
            found.append(
                ContainerFailure(
                    pod=metadata["name"],
                    pod_uid=metadata["uid"],
                    container=container["name"],
                    rank=rank_of(pod) if container["name"] == NODE else None,
                    attempt=int(attempt) if attempt.isdecimal() else 0,
                    run=run,
                    exit_code=ended["exitCode"],
                    reason=ended.get("reason") or "",
                    message=ended.get("message") or "",
                    at=ended.get("finishedAt") or "",
                )
            )
    return found


def first_failure(failures: Iterable[ContainerFailure]) -> ContainerFailure | None:
    """Return the one that is most likely the cause of the others."""
    return min(failures, key=lambda failure: failure.order, default=None)


def rank_of(pod: JsonObject) -> int | None:
    """Return the number of the node that a pod of a TrainJob is; None if it is none."""
    labels = pod["metadata"].get("labels") or {}
    index = labels.get(COMPLETION_INDEX_ANNOTATION) or labels.get(JOB_INDEX_LABEL) or "0"
    return int(index) if labels.get(REPLICATED_JOB_LABEL) == NODE and index.isdecimal() else None


def meaning_of(exit_code: int) -> str:
    """Say what an exit code means beyond failure; empty if nobody can know.

    Codes above 128 are how shells and container runtimes write the number of a signal.
    """
    if exit_code in _MEANINGS:
        return _MEANINGS[exit_code]
    try:
        return f"ended by {signal.Signals(exit_code - _SIGNALS_FROM).name}"
    except ValueError:
        return ""
