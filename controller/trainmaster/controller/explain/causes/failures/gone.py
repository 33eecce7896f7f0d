"""Why pods never ran that are gone by now, as their events tell: a deadline takes them away before anybody looks.

Of jobs that have failed only. Why containers of TrainJobs failed is told by the manager (see `told`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.advice import run_again
from trainmaster.controller.explain.causes.pods.container_config import lacks_something
from trainmaster.controller.explain.causes.pods.evidence import one_line
from trainmaster.controller.explain.causes.pods.images import image_advice
from trainmaster.controller.explain.causes.pods.scheduling import FAILED_SCHEDULING, OF_GANGS
from trainmaster.controller.explain.causes.pods.volumes import OF_VOLUMES
from trainmaster.controller.explain.findings import Certainty, Event, Evidence, Finding
from trainmaster.controller.explain.pods import known_pods
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView, own_pod_specs
from trainmaster.runtime.api.constants import NODE

_OF_IMAGES: Final = re.compile(
    r"pull(?:ing)? image|ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|parse image name"
)
_RESTARTS: Final = re.compile(r"[Bb]ack-off restarting failed container")
_STOPPED: Final = re.compile(r"Stopping container (\S+)")
_OF_CONTAINERS: Final = frozenset({"Failed", "InspectFailed", "BackOff", "FailedMount", "FailedAttachVolume"})
_WORDS: Final = {
    Cause.UNSCHEDULABLE: "it never had a node",
    Cause.VOLUME_PENDING: "it never had its volumes",
    Cause.IMAGE_PULL_FAILED: "it never had its image",
    Cause.CONTAINER_CONFIG_ERROR: "its container could not be created",
    Cause.CONTAINER_FAILED: "its container failed again and again",
    Cause.INIT_CONTAINER_FAILED: "it never got beyond its init container",
}
_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)


def of_gone_pods(view: JobView) -> Iterator[Finding]:
    """Find what kept pods from running that are gone."""
    if state_of(view).state is not State.FAILED:
        return
    there = {pod["metadata"]["name"] for pod in known_pods(view)}
    by_pod: dict[str, list[Event]] = {}
    for event in view.events_about("Pod"):
        if event.about.name not in there:
            by_pod.setdefault(event.about.name, []).append(event)
    told: dict[Cause, list[Event]] = {}
    for events in by_pod.values():
        if (found := _what_kept(view, events)) is not None:
            told.setdefault(found[0], []).append(found[1])
    for cause, events in told.items():
        more = f" (so it was of {len(events) - 1} more)" if len(events) > 1 else ""
        evidence = Evidence(events[0].about, f"{_WORDS[cause]}{more}: {one_line(events[0].note)}", events[0].last)
        since = min((event.first for event in events if event.first is not None), default=None)
        yield Finding(cause, Certainty.LIKELY, [evidence], since, _advice(view, cause, events[0].note))


def _advice(view: JobView, cause: Cause, note: str) -> Sequence[str]:
    """Return what to do; nothing where the cause says as much. No log can be read any more."""
    if cause in (Cause.CONTAINER_FAILED, Cause.INIT_CONTAINER_FAILED):
        return run_again(view)
    return [image_advice(note)] if cause is Cause.IMAGE_PULL_FAILED else ()


def _what_kept(view: JobView, events: Sequence[Event]) -> tuple[Cause, Event] | None:
    """Return what kept one pod from running, and the event that tells most of it; None if it ran, or nothing tells."""
    scheduling = [each for each in events if each.reason in (FAILED_SCHEDULING, "Scheduled")]
    if scheduling and scheduling[-1].reason == FAILED_SCHEDULING:
        note = scheduling[-1].note
        if OF_VOLUMES.search(note):
            return Cause.VOLUME_PENDING, scheduling[-1]
        return None if OF_GANGS.search(note) else (Cause.UNSCHEDULABLE, scheduling[-1])
    started = max((each.last or _BEFORE_ALL for each in events if each.reason == "Started"), default=_BEFORE_ALL)
    told = [(cause, each) for each in events if (cause := _of_container(each, started)) is not None]
    if told:
        last = told[-1][0]
        return last, max((each for cause, each in told if cause is last), key=lambda each: len(each.note))
    mains = _training_containers(view, events[0].about.name)
    stopped = [(found[1], each) for each in events if (found := _STOPPED.search(each.note)) is not None]
    if stopped and mains and all(container not in mains for container, _ in stopped):
        return Cause.INIT_CONTAINER_FAILED, stopped[-1][1]
    return None


def _of_container(event: Event, started: datetime) -> Cause | None:
    """Return what a container waited for; None if it had that when one was started last."""
    if event.reason not in _OF_CONTAINERS:
        return None
    if _RESTARTS.search(event.note):
        return Cause.CONTAINER_FAILED
    if (event.last or _BEFORE_ALL) < started:
        return None
    if lacks_something(event.note):
        return Cause.CONTAINER_CONFIG_ERROR
    if event.reason in ("FailedMount", "FailedAttachVolume"):
        return Cause.VOLUME_PENDING
    return Cause.IMAGE_PULL_FAILED if _OF_IMAGES.search(event.note) else None


def _training_containers(view: JobView, pod: str) -> set[str]:
    """Return the names of the containers of a pod that are no init containers; none if nobody knows."""
    if view.is_trainjob:
        return {NODE} if pod.startswith(f"{view.name}-{NODE}-") else set()
    return {str(each.get("name")) for spec in own_pod_specs(view) for each in spec.get("containers") or ()}
