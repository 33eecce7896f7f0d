"""What pods say of themselves, told as events of their job: how containers ended, and what keeps pods from running.

Each is told once: what has been told of a pod is remembered, and how a container ended is only told if that happened
while this process led. F-8: nothing is decided from an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from cachetools import LRUCache

from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.reconciling.jobs.replicas import exit_code, is_terminating, phase_of, trainer_of
from trainmaster.controller.reconciling.problems import EVENT_ACTION
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject

_REMEMBERED: Final = 65_536
_ACTIVE: Final = ("Running", "Pending", "Unknown", "")


class PodWarnings:
    """Tells what is new about pods.

    Args:
        recorder: Where events go.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._told: LRUCache[tuple[str, str], str] = LRUCache(_REMEMBERED)
        """By UID of a pod and what it is about: the last note."""

        self._since: datetime | None = None

    def on_start(self, now: datetime) -> None:
        """Note that this process leads from now on."""
        self._since = now

    def tell(self, job: Job, pods: Iterable[JsonObject]) -> None:
        """Record what is new about the pods of a job as events of it."""
        for each in self._events(job, pods):
            self._recorder.event(job.raw, type=each.type, reason=each.reason, action=EVENT_ACTION, note=each.note)

    def _events(self, job: Job, pods: Iterable[JsonObject]) -> Iterator[JobEvent]:
        # Types and containers may be as many as pods: they are looked through once, not for each pod.
        trainers = {each.lower(): trainer_of(job, each) for each in job.replica_specs}
        for pod in pods:
            label = (pod["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL) or ""
            trainer = trainers.get(label, job.kind.container_name)
            yield from self._news(pod, "exit", self._exits(job, pod, trainer))
            if phase_of(pod) in _ACTIVE and not is_terminating(pod):
                yield from self._news(pod, "abnormal", _abnormal(pod))

    def _news(self, pod: JsonObject, about: str, events: Iterable[JobEvent]) -> Iterator[JobEvent]:
        found = list(events)
        key, text = (pod["metadata"]["uid"], about), "\n".join(f"{each.reason} {each.note}" for each in found)
        if text and self._told.get(key) != text:
            self._told[key] = text
            yield from found

    def _exits(self, job: Job, pod: JsonObject, trainer: str) -> Iterator[JobEvent]:
        code = exit_code(pod, trainer)
        if code is None or self._is_old(pod):
            return
        yield JobEvent("ExitedWithCode", f"Pod: {job.namespace}.{pod['metadata']['name']} exited with code {code}")

    def _is_old(self, pod: JsonObject) -> bool:
        """Whether all that ended in a pod ended before this process led."""
        if self._since is None:
            return False
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        ends = (((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in statuses)
        last = max((str(each) for each in ends if each), default=None)
        # Both are RFC 3339 in UTC and to the second, so that they compare as texts.
        return last is not None and last < time_text(self._since)


def _abnormal(pod: JsonObject) -> Iterator[JobEvent]:
    """Tell why an active pod does not run: by its containers, else its init containers, else its latest condition."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    statuses = status.get("containerStatuses") or status.get("initContainerStatuses") or []
    for each in statuses:
        state = each.get("state") or {}
        terminated, waiting = state.get("terminated") or {}, state.get("waiting") or {}
        if terminated.get("exitCode"):
            note = (
                f"Error pod {name} container {each.get('name')} exitCode: {terminated['exitCode']} "
                f"terminated message: {redact(str(terminated.get('message') or ''))}"
            )
            yield JobEvent(terminated.get("reason") or "Error", note, "Warning")
        elif waiting.get("message"):
            note = f"Error pod {name} container {each.get('name')} waiting message: {redact(str(waiting['message']))}"
            yield JobEvent(waiting.get("reason") or "Waiting", note, "Warning")
    conditions = status.get("conditions") or []
    if not statuses and conditions:
        latest = max(conditions, key=lambda each: str(each.get("lastTransitionTime") or ""))
        if latest.get("status") != "True" and latest.get("message"):
            note = f"Error pod {name} condition message: {latest['message']}"
            yield JobEvent(latest.get("reason") or "Abnormal", note, "Warning")
