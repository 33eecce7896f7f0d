"""Logs of a job: which runs of which containers have them, and how they are merged by time."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from trainmaster.controller.cli.jobs.log_sources import (
    KeptLogs,
    LogSource,
    lines,
    log_source,
    members,
    merged,
    why_no_log,
)
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

JOB = Job(
    {"metadata": {"name": "a", "namespace": "b", "uid": "1", "creationTimestamp": "2026-01-01T00:00:05Z"}}, TRAINJOBS
)


def pod(name: str, *, part: str = "node", index: str = "0", created: str = "10", **status: object) -> JsonObject:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": part, "batch.kubernetes.io/job-completion-index": index}
    owners = [{"kind": "Job", "name": "a-node-0"}]
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, "ownerReferences": owners}
    metadata["creationTimestamp"] = f"2026-01-01T00:00:{created}Z"
    return {"metadata": metadata, "spec": {"containers": [{"name": "sidecar"}, {"name": "node"}]}, "status": status}


BACKING_OFF = {"reason": "CrashLoopBackOff"}
CREATING = {"reason": "ContainerCreating"}


def container(restarts: int, state: str, last: str = "", **told: str) -> list[JsonObject]:
    return [{"name": "node", "restartCount": restarts, "state": {state: told}, "lastState": {last: {}} if last else {}}]


def test_members_are_in_the_order_of_ranks_and_older_pods_behind_newer_ones() -> None:
    pods = [pod("ten", index="10"), pod("two", index="2"), pod("data", part="dataset-initializer")]
    pods += [pod(name, created=created) for name, created in (("first", "07"), ("second", "08"), ("namesake", "01"))]
    foreign = pod("foreign", index="3")
    foreign["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "of-others"}]
    found = members(JOB, [*pods, foreign])
    assert [member.name for member in found] == ["rank 0", "rank 2", "rank 10", "dataset-initializer"]
    assert [each["metadata"]["name"] for each in found[0].pods] == ["second", "first"]
    assert [member.leads for member in found] == [True, False, False, False]
    # Torchrun starts several ranks on a node, if it runs there.
    for nproc, command, name in (
        *(("1", "python", "rank 1"), ("2", "torchrun", "node 1 (ranks 2-3)")),
        *(("auto", "torchrun", "node 1"), ("500", "sh", "node 1")),
    ):
        node = pod("b", index="1")
        node["spec"]["containers"][1] |= {"command": [command], "env": [{"name": "PET_NPROC_PER_NODE", "value": nproc}]}
        assert [member.name for member in members(JOB, [node])] == [name]
    # A launcher leads.
    found = members(JOB, [pod("rank"), pod("mpirun", part="launcher")])
    assert [(member.name, member.leads) for member in found] == [("rank 0", False), ("launcher", True)]


@pytest.mark.parametrize(
    ("statuses", "runs"),
    [
        ([], []),
        (container(0, "waiting"), []),
        (container(0, "running"), [(0, False)]),
        (container(0, "waiting", "terminated", **BACKING_OFF), [(0, True)]),
        (container(1, "running", "terminated"), [(0, True), (1, False)]),
        (container(1, "terminated", "terminated"), [(0, True), (1, False)]),
        (container(1, "waiting", "terminated", **BACKING_OFF), [(1, True)]),
        (container(1, "waiting", "terminated", **CREATING), [(0, True)]),
    ],
)
def test_a_run_has_the_same_number_in_any_state(statuses: list[JsonObject], runs: list[tuple[int, bool]]) -> None:
    [member] = members(JOB, [pod("only", containerStatuses=statuses)])
    current, before = log_source(member), log_source(member, previous=True)
    assert (current and (current.run, current.previous)) == (runs[-1] if runs else None)
    assert (before and before.run) == next((run for run, previous in runs if previous), None)


def test_the_run_before_may_be_that_of_a_pod_that_was_replaced() -> None:
    pods = [
        pod("old", created="07", containerStatuses=container(0, "terminated")),
        pod("new", created="09", containerStatuses=container(0, "running")),
    ]
    [member] = members(JOB, pods)
    assert log_source(member) == LogSource("new", "uid-new", "node", 0, previous=False, attempt=1)
    assert log_source(member, previous=True) == LogSource("old", "uid-old", "node", 0, previous=False, is_over=True)


def test_of_kept_logs_every_attempt_can_be_read_and_what_is_missing_is_known() -> None:
    """The first pod is deleted: it was restarted twice, the log of its first run is gone, that of the second is cut."""
    first = pod("old", created="07", containerStatuses=container(2, "running", "terminated"))
    second = pod("new", created="09", containerStatuses=container(0, "waiting", **CREATING))
    kept = KeptLogs([first], {"uid-old": {"node": {"1": 700, "2": 0}}, "uid-new": {"node": {"0": 0}}})
    [member] = members(JOB, [second], kept)
    runs = [(run.pod, run.run, run.attempt, run.dropped) for run in member.runs]
    assert runs == [("old", 2, 2, 0), ("old", 1, 1, 700), ("old", 0, 0, None)]
    assert log_source(member) == member.runs[0], "the new pod has printed nothing yet"
    assert log_source(member, attempt=1) == member.runs[1]
    assert log_source(member, attempt=3) is None
    assert [run.is_over for run in member.runs] == [True] * 3


def test_why_there_is_no_log() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "no room"}
    waiting = {"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}
    told: dict[str, dict[str, Any]] = {
        "it has no node: no room": {"conditions": [unscheduled]},
        "its container node waits: ErrImagePull: m": {"phase": "Running", "containerStatuses": [waiting]},
        "it is Failed: Evicted: disk": {"phase": "Failed", "reason": "Evicted", "message": "disk"},
        "it has no node": {"phase": "Pending"},
    }
    assert [why_no_log(pod("only", **status)) for status in told.values()] == list(told)


async def chunks(*parts: bytes) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part


async def test_lines_are_cut_wherever_chunks_end() -> None:
    found = [line async for line in lines(chunks(b"a\nb", b"b\r\n", b"10%\r20%\r", b"30%\n\nend"))]
    assert found == [b"a", b"bb", b"30%", b"", b"end"]


async def test_logs_are_merged_by_time_and_each_stays_in_its_order() -> None:
    first = chunks(b"T1 a\nT4 b\nT3 late\nT9 c\n")
    second = chunks(b"T2 x\n", b"T5 y\nT5 z")
    found = [(name, line) async for name, line in merged({"0": first, "1": second, "2": chunks()})]
    assert b"|".join(line for _, line in found) == b"T1 a|T2 x|T4 b|T3 late|T5 y|T5 z|T9 c"
    assert "".join(name for name, _ in found) == "0100110"
