"""What is printed of an explanation, as text and as JSON: compared with files, which people have looked at."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.failing_pods import container_status, pod, terminated
from support.job_views import (
    NODES,
    at,
    condition,
    event,
    job,
    jobset,
    moment,
    pending,
    pytorchjob,
    running,
    trainjob,
    view,
)

from trainmaster.controller.cli.explain.text import lines_of, to_json
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import JobView, Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

GOLDEN = Path(__file__).parent / "golden"
SNAPSHOT = {"kind": "ConfigMap", "metadata": {"name": "s", "namespace": "team", "creationTimestamp": at(1)}}


def waiting() -> JobView:
    """Pods that no node can take, for somebody who may not see nodes."""
    told = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    pods = [pending(rank, told) for rank in range(NODES)]
    events = [
        event("FailedScheduling", told, kind="Pod", name=f"demo-node-0-{rank}", first=3, last=250) for rank in range(4)
    ]
    unread = [Unread("nodes", WhyUnread.FORBIDDEN, "you have no right to list them")]
    return view(snapshots=[SNAPSHOT], jobsets=[jobset()], jobs=[job()], pods=pods, events=events, unread=unread)


def failed() -> JobView:
    """A rank that failed, and the others that were stopped for it."""
    first = pod(2, containers=[container_status(terminated(1, at=40))], phase="Failed", created=3)
    others = [pod(rank, containers=[container_status(terminated(143, at=41))], phase="Failed") for rank in (0, 1, 3)]
    lines = (
        "epoch 3",
        "Traceback (most recent call last):",
        '  File "train.py", line 9, in <module>',
        "ValueError: NaN",
    )
    words = "jobset failed due to one or more job failures (first failed job: demo-node-0)"
    ended = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", since=42)
    return view(
        trainjob(condition("Failed", "FailedJobs", words, since=43)),
        jobsets=[jobset(condition("Failed", "FailedJobs", words, since=43))],
        jobs=[job(ended)],
        pods=[*others, first],
        events=[],
        logs={(first["metadata"]["uid"], "node"): lines},
    )


def suspended() -> JobView:
    """A job that somebody has suspended."""
    held = trainjob(condition("Suspended", since=60), suspend=True)
    fields: JsonObject = {"f:spec": {"f:suspend": {}}}
    held["metadata"]["managedFields"] = [{"manager": "trainmaster-cli", "time": at(60), "fieldsV1": fields}]
    return view(
        held, jobsets=[jobset(suspend=True)], jobs=[job()], pods=[], command_options=("--kubeconfig", "my file")
    )


def fine() -> JobView:
    """A job that runs, and whose first node has written something lately."""
    pods = [running(node, started=9) for node in range(NODES)]
    wrote = {each["metadata"]["uid"]: moment(290) for each in pods[:2]}
    return view(jobsets=[jobset()], jobs=[job()], pods=pods, events=[], last_output=wrote)


def silent() -> JobView:
    """A job all pods of which run, one of which has written nothing for longer than the others, and one has ended."""
    pods = [*(running(node, started=9) for node in range(2)), pod(2, terminated(0), phase="Succeeded")]
    wrote = {each["metadata"]["uid"]: moment(at) for each, at in zip(pods, (20, 170), strict=False)}
    return view(jobsets=[jobset(nodes=3)], jobs=[job()], pods=pods, events=[], last_output=wrote)


def barrier() -> JobView:
    """A job whose second node sleeps, while the first one waits for it: both have written something a minute ago."""
    pods = [running(node, started=9) for node in range(2)]
    wrote = {each["metadata"]["uid"]: moment(240) for each in pods}
    return view(jobsets=[jobset(nodes=2)], jobs=[job()], pods=pods, events=[], last_output=wrote)


def asleep() -> JobView:
    """A job whose first node has written nothing, while another one goes on to write."""
    pods = [running(node, started=9) for node in range(2)]
    wrote = {each["metadata"]["uid"]: at for each, at in zip(pods, (None, moment(299)), strict=True)}
    return view(jobsets=[jobset(nodes=2)], jobs=[job()], pods=pods, events=[], last_output=wrote)


def complete() -> JobView:
    """A job that is complete, and will be deleted."""
    done = trainjob(condition("Complete", "AllJobsCompleted", "jobset completed successfully", since=60))
    done["spec"]["ttlSecondsAfterFinished"] = 3600
    return view(done, jobsets=[jobset()], jobs=[job()], pods=[])


def new() -> JobView:
    """A job that was created just now."""
    return view(jobsets=[jobset()], jobs=[job()], pods=[], now=5)


def deleted() -> JobView:
    """A job of which only events are left."""
    events = [
        event("ContainerFailed", "attempt 0: rank 1 (pod demo-node-0-1-x, container node) failed at "
              "2026-01-01T00:00:40Z with exit code 137 (OOMKilled: it needed more memory than its limit)", first=41),
        event("FailedJobs", "jobset failed due to one or more job failures", kind="JobSet", first=43),
    ]  # fmt: skip
    return replace(view(events=events), is_deleted=True)


def v1() -> JobView:
    """A job of kubeflow.org/v1 of which a worker is refused."""
    note = 'Error creating: pods "demo-worker-2" is forbidden: exceeded quota: few, requested: pods=1'
    pods = []
    for index in range(2):
        worker = running(index, started=9)
        labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
        worker["metadata"] |= {"labels": labels, "name": f"demo-worker-{index}"}
        pods.append(worker)
    return view(
        pytorchjob(condition("Created", since=1)),
        pods=pods,
        events=[event("FailedCreatePod", note, kind="PyTorchJob", first=4, last=200, count=9)],
    )


VIEWS: dict[str, Callable[[], JobView]] = {
    each.__name__: each
    for each in (waiting, failed, suspended, fine, silent, barrier, asleep, complete, new, deleted, v1)
}


@pytest.mark.parametrize("failing", [False, True])
def test_of_a_thousand_pods_little_is_printed(failing: bool) -> None:
    """Of many that are alike one is shown, with how many they are; of many that differ, some."""
    told = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    pods = [pending(rank, f"{told} ({rank})", suffix=str(rank)) for rank in range(1000)]
    if failing:
        ends = [terminated(1 + rank % 100, message=f"ValueError: {rank} " * 100) for rank in range(1000)]
        pods = [pod(rank, containers=[container_status(end)], phase="Failed") for rank, end in enumerate(ends)]
    names = [each["metadata"]["name"] for each in pods]
    events = [event("Warns", f"{number}", kind="Pod", name=names[number % 1000]) for number in range(5000)]
    found = view(jobsets=[jobset(nodes=1000)], jobs=[job()], pods=pods, events=events)
    lines = list(lines_of(explain(found), found))
    assert len(lines) < 60
    assert sum(map(len, lines)) < 20_000
    assert any("(997 more pods in other words)" in line or "800 more containers failed" in line for line in lines)


def test_what_was_overcome_is_told_with_its_last_words() -> None:
    """Of a former pod, as an embedded cluster keeps it; the job goes on."""
    crashed = pod(1, terminated(1, at=40, message="ValueError: my loss is NaN"), phase="Failed", attempt=0)
    restarted = jobset()
    restarted["status"]["restarts"] = 1
    pods = [running(rank, started=60, attempt=1) for rank in range(NODES)]
    shown = view(jobsets=[restarted], pods=pods, former_pods=[crashed])
    lines = list(lines_of(explain(shown), shown))
    (told,) = lines[lines.index("it has overcome:") + 1 :][:1]
    assert "rank 1: container node failed with exit code 1" in told
    assert "it said last: ValueError: my loss is NaN" in told


def test_the_text_is_as_it_was_looked_at() -> None:
    for name, make in VIEWS.items():
        found = make()
        assert "\n".join(lines_of(explain(found), found)) + "\n" == (GOLDEN / f"{name}.txt").read_text()


def test_the_json_is_what_programs_rely_on() -> None:
    views = {name: each() for name, each in VIEWS.items()}
    made = {name: json.loads(json.dumps(to_json(explain(each), each))) for name, each in views.items()}
    for name in ("waiting", "failed"):
        assert made[name] == json.loads((GOLDEN / f"{name}.json").read_text())
    assert {tuple(each) for each in made.values()} == {tuple(made["waiting"])}, "all have the same fields"
    others = replace(views["fine"], foreign_pods=[pod(9)])
    assert to_json(explain(others), others)["foreignPods"] == ["demo-node-0-9-abcde"]
