"""Jobs that failed, mostly by a deadline, and whose pods are gone: why these never ran, as their events tell."""

from typing import Any

import pytest
from support.job_views import condition, event, pytorchjob, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.gone import of_gone_pods
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Event
from trainmaster.runtime.jsontree import JsonObject

DEADLINE = condition("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline", since=30)
MISSING = 'configmap "train-config" not found'
PULL = 'Failed to pull image "registry.example/x:1": lookup registry.example: no such host'
SELECTOR = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


def told(reason: str, note: str, *, pod: str = "demo-node-0-0-abcde", first: float = 2, **more: Any) -> Event:
    return event(reason, note, kind="Pod", name=pod, first=first, **more)


def normal(reason: str, note: str = "", **more: Any) -> Event:
    return told(reason, note, warning=False, **more)


def causes(*events: Event, job: JsonObject | None = None) -> list[Cause]:
    return [each.cause for each in of_gone_pods(view(job or trainjob(DEADLINE), pods=[], events=list(events)))]


NODE = normal("Scheduled")
INIT = normal("Started", "Started container init")
BACK_OFF = told("BackOff", 'Back-off pulling image "registry.example/x:1"')
KEPT: list[tuple[Cause, list[Event]]] = [
    (Cause.UNSCHEDULABLE, [told("FailedScheduling", SELECTOR)]),
    (Cause.VOLUME_PENDING, [told("FailedScheduling", '0/1 nodes: persistentvolumeclaim "imagenet" not found.')]),
    (Cause.VOLUME_PENDING, [NODE, told("FailedAttachVolume", "AttachVolume.Attach failed for volume pv-1: timed out")]),
    (Cause.CONTAINER_CONFIG_ERROR, [NODE, told("FailedMount", f"MountVolume.SetUp failed: {MISSING}")]),
    (Cause.CONTAINER_CONFIG_ERROR, [NODE, told("Failed", 'Error: secret "hf" not found')]),
    (Cause.IMAGE_PULL_FAILED, [NODE, INIT, told("Failed", PULL), told("Failed", "Error: ErrImagePull"), BACK_OFF]),
    (
        Cause.IMAGE_PULL_FAILED,
        [NODE, told("InspectFailed", "couldn't parse image name"), told("Failed", "Error: InvalidImageName")],
    ),
    (Cause.INIT_CONTAINER_FAILED, [NODE, INIT, normal("Killing", "Stopping container init", first=30)]),
]


@pytest.mark.parametrize(("cause", "events"), KEPT)
def test_what_kept_a_job_from_starting_is_why_its_deadline_was_over(cause: Cause, events: list[Event]) -> None:
    assert causes(*events) == [cause]
    found = explain(view(trainjob(DEADLINE), jobsets=[], jobs=[], pods=[], events=events)).findings
    assert [each.cause for each in found] == [cause, Cause.DEADLINE_EXCEEDED]


def test_the_event_that_tells_most_is_shown_and_how_many_pods_it_was() -> None:
    events = [
        told(reason, note, pod=f"demo-node-0-{rank}-abcde")
        for rank in range(3)
        for reason, note in (("Failed", PULL), ("Failed", "Error: ErrImagePull"))
    ]
    (found,) = of_gone_pods(view(trainjob(DEADLINE), pods=[], events=events))
    assert [each.text for each in found.evidence] == [f"it never had its image (so it was of 2 more): {PULL}"]
    assert found.what_next == ["correct the registry in the name of the image: its host name cannot be resolved"]
    # Nothing is said of pods that are there nor of jobs that go on.
    events = [told("FailedScheduling", SELECTOR)]
    assert list(of_gone_pods(view(pods=[], events=events))) == []
    assert list(of_gone_pods(view(trainjob(DEADLINE), pods=[running(0)], events=events))) == []


def test_what_was_overcome_is_not_why() -> None:
    starts = normal("Started", "Started container node", first=9)
    for events in (
        [told("FailedScheduling", SELECTOR), normal("Scheduled", first=5), starts],
        [NODE, told("FailedMount", MISSING), starts],
        [normal("Started", "Started container node"), normal("Killing", "Stopping container node", first=30)],
        [told("FailedScheduling", "pod group demo: 2 of 4 pods fit")],
    ):
        assert causes(*events) == []


def test_a_job_of_kubeflow_org_that_was_restarted_too_often_and_whose_pods_were_cleaned_up() -> None:
    too_often = "Job demo has failed because it has reached the specified backoff limit"
    failed = pytorchjob(condition("Failed", "PyTorchJobFailed", too_often, since=16))
    back_off = "Back-off restarting failed container pytorch in pod demo-worker-0"
    events = [
        told("BackOff", back_off, pod="demo-worker-0", first=10, last=14),
        normal("Started", "Started container pytorch", pod="demo-worker-0", first=9, last=16),
        normal("Killing", "Stopping container pytorch", pod="demo-worker-0", first=16),
    ]
    found = explain(view(failed, pods=[], events=events)).findings
    assert [each.cause for each in found] == [Cause.CONTAINER_FAILED]
    assert found[0].evidence[0].text == f"its container failed again and again: {back_off}"
    assert "trainmaster restart pytorchjob/demo -n team" in found[0].what_next[0]
    assert "cleanPodPolicy" in found[0].what_next[1]
