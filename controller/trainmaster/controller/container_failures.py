"""How containers of a training job ended that should not have, from what their pods say; pure.

A container that is restarted in place (`restartPolicy: OnFailure`) tells of its last run in `lastState`: a failure can
be read until the next one, or until the pod is deleted.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from trainmaster.controller.last_words import exceptions
from trainmaster.runtime.api.constants import (
    ANCESTORS,
    ATTEMPTS_BEFORE_LABEL,
    COMPLETION_INDEX_ANNOTATION,
    JOB_INDEX_LABEL,
    LAUNCHER,
    NODE,
    PET_NPROC_PER_NODE,
    TRAINER_ANCESTOR,
)
from trainmaster.runtime.jobs.constants import (
    JOB_ROLE_LABEL,
    MASTER_ROLE,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    WORKER,
)
from trainmaster.runtime.jsontree import JsonObject

REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_UID_LABEL: Final = "jobset.sigs.k8s.io/jobset-uid"
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
SIGNALS_FROM: Final = 128
"""Exit codes above it are how container runtimes write the number of a signal."""

ENDED_BY_OTHERS: Final = frozenset({128 + signal.SIGKILL, 128 + signal.SIGTERM})
"""Exit codes of what somebody stopped."""

LOST_A_PEER: Final = re.compile(
    r"connection (?:closed|reset|refused)|ConnectionRefusedError|broken pipe|remote process exited"
    r"|socket timeout|recvValue failed|DistNetworkError|DistStoreError|heartbeat|got signal: 15",
    re.IGNORECASE,
)
"""What gloo, NCCL, c10d and the coordinator of JAX say when another rank is gone, or was never there, and torchrun when
it is stopped.
"""

_REFUSED: Final = re.compile(r"connection ?refused", re.IGNORECASE)

_ATTEMPT: Final = re.compile(r"(?:^|; )attempt (\d{1,6})(?:, restart (\d{1,6}))?: [^()\n]{1,300} \(pod ", re.MULTILINE)
"""How conditions begin what they tell of an attempt (`diagnosis.first_failures`); what programs say comes later."""

_TORCHRUN: Final = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)")

_DIGITS: Final = 9
"""The most of a number of processes; a variable may have any length."""

_CREATED: Final = (None, "", "ContainerCreating", "PodInitializing")
OOM_KILLED: Final = "OOMKilled"
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
"""Nobody saw the end of the container; kubelets then write 137, of which nothing can be concluded."""

_MOMENT: Final = timedelta(seconds=2)
"""How long a launcher takes to end after a process of it that raised something."""

TAKEN_AWAY: Final = frozenset({"DeadlineExceeded", "Evicted", "NodeLost", "Preempting", "Terminated", "NodeShutdown"})
"""Reasons of pods that failed as a whole, whatever their containers did."""

NOT_STARTED: Final = 128
"""The exit code that kubelets write for a container that could not be started."""

_REASONS: Final = {OOM_KILLED: "it needed more memory than its limit", STATUS_UNKNOWN: "nobody saw how it ended"}
"""What reasons mean that kubelets give; they know more than the exit code tells."""

_INITIALIZERS: Final = frozenset(ANCESTORS) - {TRAINER_ANCESTOR}


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

    replicated_job: str = ""
    """The name of the ReplicatedJob whose pod it is."""

    ranks: range | None = None
    """Those on its node; None if nobody knows."""

    is_initial: bool = False
    """Whether it prepares what others train: an init container, or an initializer."""

    memory_limit: str = ""
    """The limit of its memory; empty if it has none."""

    tells_log: bool = False
    """Whether its message is the end of its log, so that it wrote nothing where that is empty."""

    superseded: bool = field(default=False, compare=False)
    """Whether the container has been started again since."""

    stopped: bool = field(default=False, compare=False)
    """Whether it ended because its pod was deleted, as the Job controller does when another pod has failed."""

    @property
    def order(self) -> tuple[str, bool, int]:
        """Sorts failures: by time; of those in one second, who was stopped or left alone by others comes last."""
        by_others = self.reason != OOM_KILLED and (
            self.stopped or self.exit_code in ENDED_BY_OTHERS or self.lost_a_peer
        )
        return self.at, by_others, -1 if self.rank is None else self.rank

    @property
    def precedence(self) -> tuple[bool, tuple[str, bool, int]]:
        """Sorts failures of an attempt, the likeliest cause first: who lost a peer is none where another one failed.

        The peer may end later: its launcher stops its other processes first.
        """
        return self.lost_a_peer and self.reason != OOM_KILLED, self.order

    @property
    def lost_a_peer(self) -> bool:
        """Whether it said last that another rank is gone."""
        return LOST_A_PEER.search(self._said) is not None

    @property
    def was_refused(self) -> bool:
        """Whether it said last that nothing listened where it connected to: a rank that is gone, or a wrong address."""
        return _REFUSED.search(self._said) is not None

    @property
    def _said(self) -> str:
        """What it raised, or else all that it said: warnings before an exception are overcome."""
        return "\n".join(exceptions(self.message)) or self.message


def container_failures(pod: JsonObject) -> list[ContainerFailure]:
    """Return the failures that a pod still tells of, the current and the last run of each container.

    Of a pod that failed before any container of it ran, as nodes refuse some, one container could not be started.
    """
    metadata, status = pod["metadata"], pod.get("status") or {}
    found = []
    # Why a pod was evicted, or failed otherwise as a whole, no container of it can tell.
    disruption, _ = disruption_of(pod) or ("", "")
    of_pod = ": ".join(each for each in (status.get("reason"), status.get("message")) if each) or disruption
    deleted = None if disruption else _deletion(metadata)
    for container in container_statuses(pod):
        runs = container.get("restartCount", 0)
        for name, run in (("lastState", last_run(container)), ("state", runs)):
            ended = (container.get(name) or {}).get("terminated")
            if not ended or not ended.get("exitCode"):
                continue
            found.append(
                _failure(
                    pod,
                    container["name"],
                    run=run,
                    exit_code=ended["exitCode"],
                    reason=ended.get("reason") or "",
                    message=ended.get("message") or of_pod,
                    at=ended.get("finishedAt") or "",
                    stopped=deleted is not None and _is_stopped(ended, deleted),
                    superseded=name == "lastState" and not (container.get("state") or {}).get("waiting"),
                )
            )
    if not found and status.get("phase") == "Failed" and status.get("reason") and not disruption:
        found += _not_started(pod, status)
    return found


def _not_started(pod: JsonObject, status: JsonObject) -> Iterator[ContainerFailure]:
    """Yield the container that a pod was refused for."""
    names = [each["name"] for each in container_statuses(pod) if (each.get("state") or {}).get("waiting")]
    names += [each["name"] for each in (pod.get("spec") or {}).get("containers") or ()]
    if names and status["reason"] not in TAKEN_AWAY:
        conditions = status.get("conditions") or ()
        at = next((each.get("lastTransitionTime") for each in conditions if each.get("type") == "Ready"), None)
        yield _failure(
            pod,
            names[0],
            run=0,
            exit_code=NOT_STARTED,
            reason=status["reason"],
            message=status.get("message") or "",
            at=at or "",
        )


def _failure(pod: JsonObject, container: str, **known: Any) -> ContainerFailure:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    replicated_job = (metadata.get("labels") or {}).get(REPLICATED_JOB_LABEL, "")
    initial = [each for each in spec.get("initContainers") or () if each.get("name") == container]
    main = [each for each in spec.get("containers") or () if each.get("name") == container]
    found: JsonObject = next(iter((*initial, *main)), {})
    return ContainerFailure(
        pod=metadata["name"],
        pod_uid=metadata["uid"],
        container=container,
        rank=rank_of(pod) if container == NODE else None,
        attempt=restart_attempt(pod),
        replicated_job=replicated_job,
        ranks=None if (node := rank_of(pod)) is None else ranks_of(pod, node),
        is_initial=bool(initial) or replicated_job in _INITIALIZERS,
        tells_log=found.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        memory_limit=str(((found.get("resources") or {}).get("limits") or {}).get("memory") or ""),
        **known,
    )


def container_statuses(pod: JsonObject) -> list[JsonObject]:
    """Return what a pod tells of its containers, those that initialize it first."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def exit_code(pod: JsonObject, container: str) -> int | None:
    """Return the exit code of the container that trains, or of the first one if none has its name; None: unknown."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    named = next((each for each in statuses if each.get("name") == container), None)
    status = named or next(iter(statuses), None) or {}
    terminated = (status.get("state") or {}).get("terminated")
    return terminated.get("exitCode") if isinstance(terminated, dict) else None


def restart_attempt(pod: JsonObject) -> int:
    """Return how often the whole workload had been started anew before this pod of it, its JobSet or a new one."""
    labels = pod["metadata"].get("labels") or {}
    attempt, before = labels.get(RESTART_ATTEMPT_LABEL, "0"), labels.get(ATTEMPTS_BEFORE_LABEL, "0")
    return sum(int(each) for each in (attempt, before) if each.isdecimal())


def restarts_of(pods: Iterable[JsonObject], told: str = "") -> int:
    """Return how often the training was started again: as a whole, and in each attempt its node that was most often.

    A crash of one node that ends the others too counts once.

    Args:
        pods: Those that are there; of a node that was replaced perhaps several.
        told: What conditions say of failures, which stays when pods are gone.
    """
    runs: dict[int, dict[int, int]] = {}
    for pod in pods:
        if (rank := rank_of(pod)) is not None:
            statuses = [each for each in container_statuses(pod) if each.get("name") == NODE]
            of_attempt = runs.setdefault(restart_attempt(pod), {})
            of_attempt[rank] = of_attempt.get(rank, 0) + 1 + sum(each.get("restartCount") or 0 for each in statuses)
    restarts = {attempt: max(of_nodes.values()) - 1 for attempt, of_nodes in runs.items()}
    for attempt, restart in _ATTEMPT.findall(told):
        restarts[int(attempt)] = max(restarts.get(int(attempt), 0), int(restart or 0))
    return max(restarts, default=0) + sum(restarts.values())


def last_run(container: JsonObject) -> int:
    """Return which run of a container `lastState` tells of, counting from 0.

    The kubelet counts a restart when it creates the container, not while it waits to do so (CrashLoopBackOff).
    """
    runs: int = container.get("restartCount", 0)
    waiting = (container.get("state") or {}).get("waiting")
    is_created = waiting is None or waiting.get("reason") in _CREATED
    return max(runs - 1, 0) if is_created else runs


def disruption_of(pod: JsonObject) -> tuple[str, str] | None:
    """Say why the cluster takes a pod away, and since when: preemption, eviction, a node that is gone; None: it stays.

    The time is in RFC 3339; both may be empty. Volcano says it in the condition Ready.
    """
    for condition in (pod.get("status") or {}).get("conditions") or ():
        told = condition.get("type"), condition.get("status")
        if told == ("DisruptionTarget", "True") or (*told, condition.get("reason")) == ("Ready", "False", "Evict"):
            why = ": ".join(each for each in (condition.get("reason"), condition.get("message")) if each)
            return why, str(condition.get("lastTransitionTime") or "")
    return None


def _deletion(metadata: JsonObject) -> datetime | None:
    """Return when the deletion of an object was asked for."""
    until = _time(metadata.get("deletionTimestamp"))
    try:
        return None if until is None else until - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    except OverflowError:
        return None  # a grace period has any length, and no calendar is that long


def _is_stopped(ended: JsonObject, deleted: datetime) -> bool:
    """Whether a container ended by the deletion of its pod; of what happened about then its code and its words tell."""
    at, message = _time(ended.get("finishedAt")), str(ended.get("message") or "")
    if at is None:
        return True
    if at > deleted:
        return at - deleted > _MOMENT or not exceptions(message) or LOST_A_PEER.search(message) is not None
    return at == deleted and ended["exitCode"] in ENDED_BY_OTHERS


def _time(text: str | None) -> datetime | None:
    return None if not text else datetime.fromisoformat(text)


def rank_of(pod: JsonObject) -> int | None:
    """Return the number of the node that a pod of a TrainJob is; None if it is none."""
    labels = pod["metadata"].get("labels") or {}
    index = labels.get(COMPLETION_INDEX_ANNOTATION) or labels.get(JOB_INDEX_LABEL) or "0"
    return int(index) if labels.get(REPLICATED_JOB_LABEL) == NODE and index.isdecimal() else None


def node_of_replica(pod: JsonObject, *, has_master: bool) -> int | None:
    """Return the number of the node that a pod of a job of `kubeflow.org/v1` is, the master first; None if it is none.

    Args:
        has_master: Whether the job has a master or chief besides its workers.
    """
    labels = pod["metadata"].get("labels") or {}
    kind, index = str(labels.get(REPLICA_TYPE_LABEL, "")).lower(), labels.get(REPLICA_INDEX_LABEL) or "0"
    if labels.get(JOB_ROLE_LABEL) == MASTER_ROLE and kind not in {LAUNCHER, WORKER.lower()}:
        return 0
    return int(index) + has_master if kind == WORKER.lower() and index.isdecimal() else None


def is_launcher(pod: JsonObject) -> bool:
    """Whether a pod starts the ranks of MPI, which print to it."""
    labels = pod["metadata"].get("labels") or {}
    return LAUNCHER in {labels.get(REPLICATED_JOB_LABEL), str(labels.get(REPLICA_TYPE_LABEL)).lower()}


def log_container(pod: JsonObject) -> str:
    """Return the container of a pod that trains, and whose log counts."""
    names: list[str] = [container["name"] for container in pod["spec"]["containers"]]
    return NODE if NODE in names else names[0]


def ranks_of(pod: JsonObject, node: int) -> range | None:
    """Return the ranks that torchrun starts on a node, one for each process.

    None where it counts processes itself, where several are wanted and nothing tells that torchrun starts them, or of
    a pod of which only the status is known.
    """
    containers = (pod.get("spec") or {}).get("containers") or ()
    variables = [each for container in containers for each in container.get("env") or ()]
    processes = next((str(each.get("value")) for each in variables if each.get("name") == PET_NPROC_PER_NODE), "1")
    words = [word for each in containers for word in (*(each.get("command") or ()), *(each.get("args") or ()))]
    if not containers or not processes.isdecimal() or len(processes) > _DIGITS:
        return None
    if processes != "1" and not any(_TORCHRUN.search(str(word)) for word in words):
        return None
    return range(node * int(processes), (node + 1) * int(processes))


def node_title(node: int, ranks: range | None) -> str:
    """Name a node by its rank, or, where it has several, or nobody knows how many, as a node."""
    if not ranks:
        return f"node {node}"
    return f"rank {ranks.start}" if len(ranks) == 1 else f"node {node} (ranks {ranks.start}-{ranks[-1]})"


def meaning_of(exit_code: int, reason: str = "") -> str:
    """Say what the reason of a container means, or else its exit code beyond failure; empty if nobody can know.

    Codes above 128 are how shells and container runtimes write the number of a signal.
    """
    if reason in _REASONS:
        return _REASONS[reason]
    if exit_code in _MEANINGS:
        return _MEANINGS[exit_code]
    try:
        return f"ended by {signal.Signals(exit_code - SIGNALS_FROM).name}"
    except ValueError:
        return ""
