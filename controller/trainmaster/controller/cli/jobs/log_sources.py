"""Whose logs a job has: its pods as members (nodes, launchers, initializers), and which run of a container; and reading
these to their present ends, one as it is, several merged by the times of their lines.

Of a member that was replaced, the newest pod counts. Of a container that waits for its next start, the log of the last
run is what there is. An embedded cluster has the logs of deleted pods and of all runs as well.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from trainmaster.controller.cli.follow.job_status import why_failed
from trainmaster.controller.cli.follow.pod_logs import LogOptions
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.container_failures import (
    REPLICATED_JOB_LABEL,
    container_statuses,
    last_run,
    log_container,
    node_of_replica,
    node_title,
    rank_of,
    ranks_of,
    restart_attempt,
)
from trainmaster.controller.explain.pods import is_own, what_it_waits_for
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.api.constants import JOBSET_LABEL, LAUNCHER
from trainmaster.runtime.jobs.constants import (
    JOB_NAME_LABEL,
    JOB_ROLE_LABEL,
    MASTER_ROLE,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    WORKER,
)
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

_LAST: Final = 1 << 31

_LINE_LIMIT: Final = 1 << 20
"""Longer ones are delivered in pieces."""


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

    attempt: int = 0
    """How often the member had been started before, in this pod or another."""

    kept: bool = False
    """Whether the cluster keeps the logs of all runs, also of deleted pods, and finds them by UID and run."""

    is_over: bool = False
    """Whether the run has ended, so that nothing more is written."""

    dropped: int | None = 0
    """How many bytes are missing at the beginning, as far as the cluster tells; None: there is no log any more."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the pods of a job, whichever object it is at the moment."""

    name: str
    """`rank 0`, `node 1 (ranks 4-7)`, `launcher`, `dataset-initializer`; `worker 1` of a job of `kubeflow.org/v1`."""

    node: int | None
    """The number of the node; None for what does not train."""

    ranks: range | None
    """The ranks on it; None if they are unknown, or there are none."""

    leads: bool
    """Whether it is the one whose log is that of the job: rank 0, or the launcher where there is one."""

    pods: tuple[JsonObject, ...]
    """The newest one first."""

    runs: tuple[LogSource, ...]
    """Those whose logs can be read, or could be once, the newest one first."""

    @property
    def pod(self) -> JsonObject:
        """The current one."""
        return self.pods[0]


@dataclass(frozen=True, slots=True)
class KeptLogs:
    """The logs of a job that an embedded cluster has, until the job is deleted."""

    pods: list[JsonObject]
    """Those that are deleted."""

    dropped: Mapping[str, Mapping[str, Mapping[str, int]]]
    """How many bytes a log lacks at its beginning: by UID of the pod, deleted or not, container, and run."""


async def kept_logs(client: KubeClient, job_uid: str) -> KeptLogs | None:
    """Return which logs an embedded cluster has of a job; None for other clusters."""
    status, _, body = await client.raw("GET", f"/trainmaster.dev/logs/{job_uid}")
    if status != HTTPStatus.OK:
        return None
    try:
        found = load_json(body)
        return KeptLogs(found["pods"], found["logs"])
    except (JsonError, KeyError, TypeError):
        return None  # something in between answers everything


def selector(job: Job) -> str:
    """Return the label selector of the pods of a job."""
    if job.is_trainjob:
        return f"{JOBSET_LABEL}={job.name}"
    return f"{JOB_NAME_LABEL}={job.name},{OPERATOR_NAME_LABEL}={job.kind.lower()}-controller"


async def find_members(client: KubeClient, job: Job, kept: KeptLogs | None = None) -> list[Member]:
    """Return the members of a job, from the pods that it has now, and those of which logs are kept."""
    pods = await client.list(PODS, job.namespace, label_selector=selector(job))
    return members(job, pods["items"], kept)


def members(job: Job, pods: Iterable[JsonObject], kept: KeptLogs | None = None) -> list[Member]:
    """Return the members of a job that have pods: nodes in their order, then the others by name."""
    created = job.object["metadata"]["creationTimestamp"]
    present = {pod["metadata"]["uid"]: pod for pod in pods if is_own(pod, job)}
    deleted = {pod["metadata"]["uid"]: pod for pod in (kept.pods if kept else ())}
    # Those of a namesake that was deleted before may still be there.
    own = [pod for pod in (deleted | present).values() if pod["metadata"]["creationTimestamp"] >= created]
    has_master = any(_role(pod) == MASTER_ROLE and _replica_type(pod) != WORKER.lower() for pod in own)
    found: dict[tuple[str, int | None], list[JsonObject]] = {}
    for pod in own:
        found.setdefault(_trainjob_member(pod) if job.is_trainjob else _v1_member(pod, has_master), []).append(pod)
    has_launcher = any(name == LAUNCHER for name, _ in found)
    listed = []
    for (name, node), each in found.items():
        newest_first = sorted(each, key=_age, reverse=True)
        runs: list[LogSource] = []
        first = restart_attempt(newest_first[-1])
        for pod in reversed(newest_first):
            later, count = _runs(pod, kept, first=first, is_deleted=pod["metadata"]["uid"] not in present)
            runs, first = [*later, *runs], first + count
        ranks = None if node is None else ranks_of(newest_first[0], node)
        titled = node_title(node, ranks) if job.is_trainjob and node is not None else name
        leads = name == LAUNCHER if has_launcher else node == 0
        listed.append(Member(titled, node, ranks, leads, tuple(newest_first), tuple(runs)))
    return sorted(listed, key=lambda member: (_LAST if member.node is None else member.node, member.name))


def _age(pod: JsonObject) -> tuple[int, str]:
    """Sort pods by when they were created, of which the time has no more than seconds."""
    return restart_attempt(pod), str(pod["metadata"]["creationTimestamp"])


def of_rank(found: Iterable[Member], rank: int | None) -> list[Member]:
    """Return who runs a rank, or is the node of that number where ranks are unknown; None: who leads."""
    if rank is None:
        return [member for member in found if member.leads]
    known = [member for member in found if member.ranks and rank in member.ranks]
    return known or [member for member in found if member.ranks is None and member.node == rank]


def _trainjob_member(pod: JsonObject) -> tuple[str, int | None]:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(REPLICATED_JOB_LABEL) or pod["metadata"]["name"]), rank_of(pod)


def _v1_member(pod: JsonObject, has_master: bool) -> tuple[str, int | None]:
    """Name a pod of a job of `kubeflow.org/v1`; the master, if there is one, is the node before the workers'."""
    kind, index = _replica_type(pod), (pod["metadata"].get("labels") or {}).get(REPLICA_INDEX_LABEL) or "0"
    return kind if kind == LAUNCHER else f"{kind} {index}", node_of_replica(pod, has_master=has_master)


def _role(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(JOB_ROLE_LABEL, ""))


def _replica_type(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL, "pod")).lower()


def log_source(member: Member, *, previous: bool = False, attempt: int | None = None) -> LogSource | None:
    """Return the run of the member's container to read; None if there is none yet, none before it, or no such attempt.

    Of a pod that has not started yet, the run before is all that there is.
    """
    if attempt is not None:
        return next((run for run in member.runs if run.attempt == attempt), None)
    if not previous:
        return member.runs[0] if member.runs and (member.runs[0].kept or _is_of(member.runs[0], member.pod)) else None
    current = member.pod["metadata"]["uid"]
    return next((run for run in member.runs if run.previous or run.pod_uid != current), None)


def _is_of(run: LogSource, pod: JsonObject) -> bool:
    return run.pod_uid == str(pod["metadata"]["uid"])


def _runs(pod: JsonObject, kept: KeptLogs | None, *, first: int, is_deleted: bool) -> tuple[list[LogSource], int]:
    """Return the runs of the training container, the newest first, and how many there have been in this pod."""
    name, uid, container = pod["metadata"]["name"], pod["metadata"]["uid"], log_container(pod)
    status = next((each for each in container_statuses(pod) if each["name"] == container), {})
    restarts, state = int(status.get("restartCount") or 0), status.get("state") or {}
    current = restarts if "running" in state or "terminated" in state else None
    running = restarts if "running" in state and not is_deleted else None
    told = {} if current is None else {current: 0}
    if "terminated" in (status.get("lastState") or {}):
        told[last_run(status)] = 0
    count = max(told, default=-1) + 1
    dropped: dict[int, int | None] = {**told}
    if kept is not None:
        logs = {int(run): size for run, size in kept.dropped.get(uid, {}).get(container, {}).items()}
        if is_deleted:
            count = max(count, max(logs, default=-1) + 1)
            current = count - 1
        dropped = {run: logs.get(run) for run in range(count)}
    runs = [
        LogSource(
            name, uid, container, run, run != current, first + run, kept is not None, run != running, dropped[run]
        )
        for run in sorted(dropped, reverse=True)
    ]
    return runs, count


def why_no_log(pod: JsonObject) -> str:
    """Say what keeps a pod from having a log."""
    return what_it_waits_for(pod) + why_failed(pod)


async def read(
    client: KubeClient, namespace: str, source: LogSource, options: LogOptions
) -> AsyncGenerator[bytes, None]:
    """Read a log to its present end.

    Raises:
        KubeError: It cannot be read.
    """
    wanted = {
        "container": source.container,
        "previous": "true" if source.previous and not source.kept else None,
        "uid": source.pod_uid if source.kept else None,
        "run": source.run if source.kept else None,
        "tailLines": options.tail,
        "sinceSeconds": options.since_seconds,
        "timestamps": "true" if options.timestamps else None,
    }
    params = {name: str(value) for name, value in wanted.items() if value is not None}
    async with client.stream(PODS.path(namespace, source.pod, "log"), params) as chunks:
        async for chunk in chunks:
            yield chunk


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
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


async def merged(streams: Mapping[str, AsyncGenerator[bytes, None]]) -> AsyncGenerator[tuple[str, bytes], None]:
    """Merge logs with timestamps, by name, in the order of these; yields the name and the line, its time included."""
    cut = {name: lines(chunks) for name, chunks in streams.items()}
    async with AsyncExitStack() as stack:  # who reads the lines may stop before their end
        for stream in (*streams.values(), *cut.values()):
            stack.push_async_callback(stream.aclose)
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
