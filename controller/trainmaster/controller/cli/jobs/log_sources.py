"""Whose logs a job has: its pods as members (ranks, launchers, initializers), and which run of a container; and reading
these to their present ends, one as it is, several merged by the times of their lines.

Of a member that was replaced, the newest pod counts. Of a container that waits for its next start, the log of the last
run is what there is.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.container_failures import (
    JOBSET_LABEL,
    REPLICATED_JOB_LABEL,
    container_statuses,
    last_run,
    rank_of,
)
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.api.constants import LAUNCHER, NODE
from trainmaster.runtime.jobs.constants import (
    JOB_NAME_LABEL,
    JOB_ROLE_LABEL,
    MASTER_ROLE,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    WORKER,
)
from trainmaster.runtime.jsontree import JsonObject

_LAST: Final = 1 << 31

_LINE_LIMIT: Final = 1 << 20
"""Longer ones are delivered in pieces."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the pods of a job, whichever object it is at the moment."""

    name: str
    """`rank 0`, `launcher`, `dataset-initializer`; `worker-1` of a job of `kubeflow.org/v1`."""

    rank: int | None
    leads: bool
    """Whether it is the one whose log is that of the job: rank 0, or the launcher where there is one."""

    pods: tuple[JsonObject, ...]
    """The newest one first."""

    @property
    def pod(self) -> JsonObject:
        """The current one."""
        return self.pods[0]


@dataclass(frozen=True, slots=True)
class LogSource:
    """One run of a container."""

    pod: str
    pod_uid: str
    container: str
    run: int
    """How often the container had been restarted before."""

    previous: bool
    """Whether the current run is a later one."""


def selector(job: Job) -> str:
    """Return the label selector of the pods of a job."""
    if job.is_trainjob:
        return f"{JOBSET_LABEL}={job.name}"
    return f"{JOB_NAME_LABEL}={job.name},{OPERATOR_NAME_LABEL}={job.kind.lower()}-controller"


def members(job: Job, pods: Iterable[JsonObject]) -> list[Member]:
    """Return the members of a job that have pods: ranks in their order, then the others by name."""
    created = job.object["metadata"]["creationTimestamp"]
    # Those of a namesake that was deleted before may still be there.
    own = [pod for pod in pods if pod["metadata"]["creationTimestamp"] >= created]
    has_master = any(_role(pod) == MASTER_ROLE and _replica_type(pod) != WORKER.lower() for pod in own)
    found: dict[tuple[str, int | None], list[JsonObject]] = {}
    for pod in own:
        found.setdefault(_trainjob_member(pod) if job.is_trainjob else _v1_member(pod, has_master), []).append(pod)
    has_launcher = any(name == LAUNCHER for name, _ in found)
    listed = [
        Member(
            name,
            rank,
            name == LAUNCHER if has_launcher else rank == 0,
            tuple(sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)),
        )
        for (name, rank), pods in found.items()
    ]
    return sorted(listed, key=lambda member: (_LAST if member.rank is None else member.rank, member.name))


def _trainjob_member(pod: JsonObject) -> tuple[str, int | None]:
    rank = rank_of(pod)
    if rank is not None:
        return f"rank {rank}", rank
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(REPLICATED_JOB_LABEL) or pod["metadata"]["name"]), None


def _v1_member(pod: JsonObject, has_master: bool) -> tuple[str, int | None]:
    """Name a pod of a job of `kubeflow.org/v1`; the master, if there is one, is the rank before the workers'."""
    labels = pod["metadata"].get("labels") or {}
    kind, index = _replica_type(pod), labels.get(REPLICA_INDEX_LABEL) or "0"
    name = kind if kind == LAUNCHER else f"{kind}-{index}"
    if _role(pod) == MASTER_ROLE and kind != LAUNCHER:
        return name, 0
    return name, int(index) + has_master if kind == WORKER.lower() and index.isdecimal() else None


def _role(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(JOB_ROLE_LABEL, ""))


def _replica_type(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL, "pod")).lower()


def log_source(member: Member, *, previous: bool = False) -> LogSource | None:
    """Return the run of the member's container to read; None if there is none yet, or if there was none before it."""
    current = _runs(member.pod)
    if not previous:
        return current[0] if current else None
    older = [run for pod in member.pods[1:] for run in _runs(pod)]
    later = [run for run in current if run.previous]
    return next(iter([*later, *older]), None)


def _runs(pod: JsonObject) -> list[LogSource]:
    """Return the runs of the training container whose logs can be read, the newest first."""
    container = log_container(pod)
    for status in container_statuses(pod):
        if status["name"] != container:
            continue
        uid, restarts = pod["metadata"]["uid"], int(status.get("restartCount") or 0)
        state, last = status.get("state") or {}, status.get("lastState") or {}
        runs = []
        if "running" in state or "terminated" in state:
            runs.append(LogSource(pod["metadata"]["name"], uid, container, restarts, previous=False))
        if "terminated" in last:
            runs.append(LogSource(pod["metadata"]["name"], uid, container, last_run(status), previous=True))
        return runs
    return []


def log_container(pod: JsonObject) -> str:
    """Return the container of a pod whose log counts."""
    names: list[str] = [container["name"] for container in pod["spec"]["containers"]]
    return NODE if NODE in names else names[0]


def why_no_log(pod: JsonObject) -> str:
    """Say what keeps a pod from having a log."""
    status = pod.get("status") or {}
    for each in status.get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"it is not scheduled: {each.get('message') or each.get('reason')}"
    if pod["spec"].get("schedulingGates"):
        gates = ", ".join(gate["name"] for gate in pod["spec"]["schedulingGates"])
        return f"it is held back by scheduling gates: {gates}"
    for each in container_statuses(pod):
        waiting = (each.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in {None, "PodInitializing"}:
            return f"its container {each['name']} waits: {waiting['reason']}" + _colon(waiting.get("message"))
    if status.get("message") or status.get("reason"):
        return f"{status.get('reason') or status.get('phase')}" + _colon(status.get("message"))
    return f"it is {status.get('phase') or 'Pending'}, and its container has not started"


def _colon(text: str | None) -> str:
    return f": {text}" if text else ""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a log is wanted, and how it is shown."""

    tail: int | None = None
    since_seconds: int | None = None
    timestamps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of it is wanted."""
        return self.tail is None and self.since_seconds is None

    def params(self, source: LogSource) -> dict[str, str]:
        """Return the parameters of the request."""
        wanted = {
            "container": source.container,
            "previous": "true" if source.previous else None,
            "tailLines": self.tail,
            "sinceSeconds": self.since_seconds,
            "timestamps": "true" if self.timestamps else None,
        }
        return {name: str(value) for name, value in wanted.items() if value is not None}


async def read(client: KubeClient, namespace: str, source: LogSource, options: LogOptions) -> AsyncIterator[bytes]:
    """Read a log to its present end.

    Raises:
        KubeError: It cannot be read.
    """
    async with client.stream(PODS.path(namespace, source.pod, "log"), options.params(source)) as chunks:
        async for chunk in chunks:
            yield chunk


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut a stream into lines, without their ends; of a progress bar only its last state."""
    rest = b""
    async for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield _visible(line)
        if len(rest) > _LINE_LIMIT:
            yield _visible(rest)
            rest = b""
    if rest:
        yield _visible(rest)


def _visible(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


async def merged(streams: Mapping[str, AsyncIterator[bytes]]) -> AsyncIterator[tuple[str, bytes]]:
    """Merge logs with timestamps, by name, in the order of these; yields the name and the line, its time included."""
    cut = {name: lines(chunks) for name, chunks in streams.items()}
    firsts = await asyncio.gather(*(anext(stream, None) for stream in cut.values()))
    heap = [
        (line.partition(b" ")[0], number, line, name)
        for number, (name, line) in enumerate(zip(cut, firsts, strict=True))
        if line is not None
    ]
    heapq.heapify(heap)
    while heap:
        stamp, number, line, name = heap[0]
        yield name, line
        following = await anext(cut[name], None)
        if following is None:
            heapq.heappop(heap)
        else:
            # A line that is not in order, or the rest of a long one, belongs behind the one before it.
            heapq.heapreplace(heap, (max(stamp, following.partition(b" ")[0]), number, following, name))
