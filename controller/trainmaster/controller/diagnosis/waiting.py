"""Why the pods of a TrainJob do not start: the condition Waiting, from what the manager knows of it. Pure.

Guarantees:
- It is told from half a minute on, by the same functions as `trainmaster explain`; what nobody knows is not told.
- It is bounded: `LONGEST` characters. In other words it is told only if more than numbers have changed.
- M-11: it has no credentials, although the words of others may.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.conditions import WAITING
from trainmaster.controller.explain.cause import Cause, Question
from trainmaster.controller.explain.explanation import PATIENCE, explain
from trainmaster.controller.explain.findings import Event, Finding
from trainmaster.controller.explain.pods import is_running
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.redaction import redact
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

LONGEST: Final = 1024
"""Characters of a message."""

_DIGITS: Final = re.compile(r"\d+")
_OF_MANAGERS: Final = frozenset({Cause.UNKNOWN, Cause.MANAGER_ABSENT, Cause.ANOTHER_MANAGER_LEADS, Cause.SUSPENDED})
"""What a manager that is at work cannot find, or tells otherwise."""


def kept(pod: JsonObject, *, wholly: bool) -> JsonObject:
    """Return what of a pod is needed to explain why it waits; of one that runs, or not `wholly`, that it is there."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    fields = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp")
    few: JsonObject = {"kind": "Pod", "metadata": {each: metadata[each] for each in fields if each in metadata}}
    if wholly and not is_running(pod):
        return {**few, "spec": spec, "status": status}
    few["spec"] = {"nodeName": spec["nodeName"]} if spec.get("nodeName") else {}
    containers = status.get("containerStatuses") or ()
    states = [{"name": each.get("name"), "state": each.get("state")} for each in containers]
    few["status"] = {"phase": status.get("phase"), "containerStatuses": states}
    return few


def waiting_condition(
    trainjob: JsonObject,
    jobset: JsonObject,
    pods: Sequence[JsonObject],
    events: Sequence[Event] | None,
    *,
    stored: JsonObject | None,
    failure_is_told: bool,
    now: datetime,
) -> JsonObject | None:
    """Return the condition of a TrainJob whose pods are not all ready; None if there is nothing to tell.

    Args:
        trainjob: The TrainJob.
        jobset: Its JobSet.
        pods: What was `kept` of its pods.
        events: What controllers say of its Jobs, if they were asked.
        stored: The condition as it was told before.
        failure_is_told: Whether the condition ContainerFailed tells of a failure already.
        now: The time.
    """
    job = {"apiVersion": TRAINJOBS.api_version, "kind": TRAINJOBS.kind, **trainjob}
    view = JobView(job, now=now, jobsets=[jobset], pods=pods, events=events)
    explanation = explain(view)
    since = explanation.state.since
    found = next(iter(explanation.findings), None)
    if found is None or found.cause in _OF_MANAGERS or since is None or now - since < PATIENCE:
        return None
    if failure_is_told and Question.FAILED in found.cause.questions:
        return None
    message = _message(found)
    if stored is not None and stored.get("reason") == found.cause and _alike(str(stored.get("message")), message):
        message = str(stored["message"])
    return {"type": WAITING, "status": "True", "reason": found.cause.value, "message": message}


def _message(finding: Finding) -> str:
    told = "; ".join(" ".join(f"{each.object}: {each.text}".split()) for each in finding.evidence)
    text = redact(f"{finding.cause.summary}: {told}")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def _alike(one: str, other: str) -> bool:
    return _DIGITS.sub("#", one) == _DIGITS.sub("#", other)
