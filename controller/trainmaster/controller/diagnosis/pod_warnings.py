"""What the pods of jobs of `kubeflow.org/v1` say of themselves, told as events of their job.

Guarantees:
- Each is told once: how containers ended, if that happened while this process led, and what keeps pods from running.
- F-8: nothing is decided from an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, Literal

from cachetools import LRUCache

from trainmaster.controller.container_failures import exit_code
from trainmaster.controller.explain.pods import phase_of
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.kube.events.recorder import EventFields, Recorder
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import trainer_of
from trainmaster.runtime.jsontree import JsonObject

_REMEMBERED: Final = 65_536
_ACTIVE: Final = ("Running", "Pending", "Unknown")


class PodWarnings:
    """Tells what is new about pods."""

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
            self._recorder.event(job.raw, **each)

    def _events(self, job: Job, pods: Iterable[JsonObject]) -> Iterator[EventFields]:
        # Types and containers may be as many as pods: they are looked through once, not for each pod.
        trainers = {each.lower(): trainer_of(job, each) for each in job.replica_specs}
        for pod in pods:
            label = (pod["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL) or ""
            trainer = trainers.get(label, job.kind.container_name)
            yield from self._news(pod, "exit", self._exits(job, pod, trainer))
            if phase_of(pod) in _ACTIVE and not pod["metadata"].get("deletionTimestamp"):
                yield from self._news(pod, "abnormal", _abnormal(pod))

    def _news(self, pod: JsonObject, about: str, events: Iterable[EventFields]) -> Iterator[EventFields]:
        found = list(events)
        key, text = (pod["metadata"]["uid"], about), "\n".join(f"{each['reason']} {each['note']}" for each in found)
        if text and self._told.get(key) != text:
            self._told[key] = text
            yield from found

    def _exits(self, job: Job, pod: JsonObject, trainer: str) -> Iterator[EventFields]:
        code = exit_code(pod, trainer)
        if code is None or self._is_old(pod):
            return
        yield _event(
            "ExitedWithCode", f"Pod: {job.namespace}.{pod['metadata']['name']} exited with code {code}", "Normal"
        )

    def _is_old(self, pod: JsonObject) -> bool:
        """Whether all that ended in a pod ended before this process led."""
        if self._since is None:
            return False
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        ends = (((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in statuses)
        last = max((str(each) for each in ends if each), default=None)
        # Both are RFC 3339 in UTC and to the second, so that they compare as texts.
        return last is not None and last < time_text(self._since)


def _abnormal(pod: JsonObject) -> Iterator[EventFields]:
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
            yield _event(terminated.get("reason") or "Error", note)
        elif waiting.get("message"):
            note = f"Error pod {name} container {each.get('name')} waiting message: {redact(str(waiting['message']))}"
            yield _event(waiting.get("reason") or "Waiting", note)
    conditions = status.get("conditions") or []
    if not statuses and conditions:
        latest = max(conditions, key=lambda each: str(each.get("lastTransitionTime") or ""))
        if latest.get("status") != "True" and latest.get("message"):
            note = f"Error pod {name} condition message: {latest['message']}"
            yield _event(latest.get("reason") or "Abnormal", note)


def _event(reason: str, note: str, event_type: Literal["Normal", "Warning"] = "Warning") -> EventFields:
    return {"type": event_type, "reason": reason, "action": "Reconciling", "note": note}
