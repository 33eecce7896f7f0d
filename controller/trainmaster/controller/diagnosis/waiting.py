"""The condition Waiting of a TrainJob, in the words that its owner gets to read. Pure.

Guarantees:
- Why pods do not start is told from half a minute on, or when a start of theirs is seen to have failed, by the same
  functions as `trainmaster explain`; what nobody knows is not told. It is bounded: `LONGEST` characters. In other words
  it is told only if more than numbers have changed.
- M-11: it has no credentials, although the words of others may have some.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.conditions import WAITING
from trainmaster.controller.explain.cause import Cause, Question
from trainmaster.controller.explain.causes.gangs import is_of_gang
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Event, Finding
from trainmaster.controller.explain.pods import is_running, is_scheduled
from trainmaster.controller.explain.state import PATIENCE
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.redaction import redact
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

LONGEST: Final = 1024
"""Characters of a message."""

_DIGITS: Final = re.compile(r"\d+")
_OF_MANAGERS: Final = frozenset({Cause.UNKNOWN, Cause.MANAGER_ABSENT, Cause.ANOTHER_MANAGER_LEADS, Cause.SUSPENDED})
"""What a manager that is at work cannot find, or tells otherwise."""

_FAILS: Final = frozenset({Cause.IMAGE_PULL_FAILED, Cause.CONTAINER_CONFIG_ERROR, Cause.INIT_CONTAINER_FAILED})
"""What has failed, and is told when it is seen; others may only take their time."""

_OF_GANGS: Final = (
    "pods of its gang have no node; `trainmaster explain` tells from their PodGroup whether they lack room"
)
"""What is known without PodGroups and nodes, which the manager does not read for this."""


def kept(pod: JsonObject, *, wholly: bool) -> JsonObject:
    """Return what of a pod is needed to explain why it waits; of one that runs, or not `wholly`, that it is there."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    fields = ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp")
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
        pods: What was `kept` of its pods.
        events: What controllers say of its Jobs, if they were asked.
        failure_is_told: Whether the condition ContainerFailed tells of a failure already.
    """
    job = {"apiVersion": TRAINJOBS.api_version, "kind": TRAINJOBS.kind, **trainjob}
    view = JobView(job, now=now, jobsets=[jobset], pods=pods, events=events)
    explanation = explain(view)
    since = explanation.state.since
    found = next(iter(explanation.findings), None)
    if found is None or since is None or (found.cause not in _FAILS and now - since < PATIENCE):
        return None
    in_gang = any(is_of_gang(pod) and not is_scheduled(pod) for pod in pods)
    if found.cause in _OF_MANAGERS and not (found.cause is Cause.UNKNOWN and in_gang):
        return None
    if failure_is_told and Question.FAILED in found.cause.questions:
        return None
    message = _message(found, _OF_GANGS if found.cause is Cause.UNKNOWN else found.cause.summary)
    if stored is not None and stored.get("reason") == found.cause and _alike(str(stored.get("message")), message):
        message = str(stored["message"])
    return {"type": WAITING, "status": "True", "reason": found.cause.value, "message": message}


def _message(finding: Finding, summary: str) -> str:
    told = "; ".join(" ".join(f"{each.object}: {each.text}".split()) for each in finding.evidence)
    text = redact(f"{summary}: {told}")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def _alike(one: str, other: str) -> bool:
    return _DIGITS.sub("#", one) == _DIGITS.sub("#", other)
