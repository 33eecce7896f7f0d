"""GangIncomplete, and QuotaExceeded of queues of Volcano: what PodGroups say, and which of their pods miss."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.pods import (
    condition_of,
    current_pods,
    has_succeeded,
    is_scheduled,
    missing_pods,
    named,
    phase_of,
)
from trainmaster.controller.explain.view import JobView, condition_since, kubectl
from trainmaster.controller.job_fields import true_conditions
from trainmaster.runtime.api.constants import (
    COSCHEDULING_API_VERSION,
    COSCHEDULING_POD_LABEL,
    JOBSET_LABEL,
    POD_GROUP_KIND,
    SCHEDULING_API_VERSION,
    VOLCANO_API_VERSION,
    VOLCANO_POD_ANNOTATION,
)
from trainmaster.runtime.jsontree import JsonObject

_FITS: Final = "waiting for minCount pods"
"""What Kubernetes says of a pod for which there would be room."""

_DROPPED: Final = (
    "no pod names it: schedulingGroup is dropped by a kube-apiserver without the feature gate GenericWorkload, and by "
    "JobSet before 0.12"
)
_UNSCHEDULABLE: Final = "Unschedulable"
_QUEUE: Final = re.compile(r"queue resource quota insufficient|queue .*(?:closed|overused|not open)", re.IGNORECASE)
"""What Volcano says of a group that has to stay in its queue for the sake of the queue, not of the cluster."""

_QUEUES: Final = "queues.scheduling.volcano.sh"
_OPEN: Final = "Open"
_MISSING: Final = "does not exist"
_STARTED: Final = frozenset({"Running", "Scheduled", "Completed", "Finished", "Succeeded"})
"""Phases of a group that has what it needs, of both kinds."""


def is_of_gang(pod: JsonObject) -> bool:
    """Tell whether a pod, or what pods are made of, is marked as a member of a PodGroup."""
    metadata = pod.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return COSCHEDULING_POD_LABEL in labels or VOLCANO_POD_ANNOTATION in annotations or bool(pod_group_of(pod))


def pod_group_of(pod: JsonObject) -> str | None:
    """Return the PodGroup of Kubernetes itself that a pod names."""
    name: str | None = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return name


def gang_incomplete(view: JobView) -> Iterator[Finding]:
    """Groups that do not start as a whole, and who misses."""
    yield from _groups_missing(view)
    for group in view.pod_groups or ():
        if (group.get("status") or {}).get("phase") in _STARTED or _waits_for_queue(view, group):
            continue
        spec, is_of_kubernetes = group.get("spec") or {}, group.get("apiVersion") == SCHEDULING_API_VERSION
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
        wanted = int((gang.get("minCount") if is_of_kubernetes else spec.get("minMember")) or 0)
        # Whoever has failed had a place: Volcano puts the group back to Pending all the same.
        pods = [pod for pod in current_pods(view) if is_scheduled(pod) or phase_of(pod) != "Failed"]
        if is_of_kubernetes:
            pods = [pod for pod in pods if pod_group_of(pod) == group["metadata"]["name"]]
        if sum(map(_has_room, pods)) >= wanted or (view.has_more_pods and all(map(_has_room, pods))):
            continue
        evidence = [Evidence(reference_to(group), text) for text in _who_misses(view, pods, wanted)]
        if is_of_kubernetes and view.pods and not any(map(pod_group_of, view.pods)):
            evidence.append(Evidence(reference_to(group), _DROPPED))
        said = true_conditions(group).get(_UNSCHEDULABLE)
        if said is not None:
            told = f"{said.get('reason')}: {said.get('message')}" if said.get("message") else str(said.get("reason"))
            evidence.append(Evidence(reference_to(group), told, condition_since(said)))
        refused = condition_of(group, "PodGroupScheduled")
        if refused.get("status") == "False" and refused.get("message"):
            evidence.append(Evidence(reference_to(group), str(refused["message"]), condition_since(refused)))
        evidence += _words_of_scheduler(pods)
        # That pods of it are not there is the matter of the gang; that there is no room for them, of the cluster.
        lacks_pods = len(pods) < wanted and not view.has_more_pods
        certainty = Certainty.CERTAIN if lacks_pods else Certainty.LIKELY
        since = parse_time(group["metadata"].get("creationTimestamp"))
        yield Finding(Cause.GANG_INCOMPLETE, certainty, tuple(evidence), since, _advice(view, group, lacks_pods))


def _groups_missing(view: JobView) -> Iterator[Finding]:
    """Groups of Kubernetes itself that do not exist: it says nothing of pods that wait for one."""
    if view.pod_groups is None:
        return
    there = {
        group["metadata"]["name"] for group in view.pod_groups if group.get("apiVersion") == SCHEDULING_API_VERSION
    }
    waiting: dict[str, list[JsonObject]] = {}
    for pod in current_pods(view):
        name = pod_group_of(pod)
        if name and name not in there and not is_scheduled(pod):
            waiting.setdefault(name, []).append(pod)
    for name, pods in waiting.items():
        group = {"kind": POD_GROUP_KIND, "apiVersion": SCHEDULING_API_VERSION, "metadata": {"name": name}}
        text = f"does not exist, and pods wait for it: {named(pods)}"
        since = parse_time(pods[0]["metadata"].get("creationTimestamp"))
        advice = (f"see why it is not made: {kubectl(view, 'describe', view.kind.lower(), view.name)}",)
        yield Finding(Cause.GANG_INCOMPLETE, Certainty.CERTAIN, (Evidence(reference_to(group), text),), since, advice)


def queue_full(view: JobView) -> Iterator[Finding]:
    """Groups of Volcano that have to stay in their queue."""
    for group in view.pod_groups or ():
        texts = _waits_for_queue(view, group)
        if not texts:
            continue
        queue = str((group.get("spec") or {}).get("queue") or "default")
        since = parse_time(group["metadata"].get("creationTimestamp"))
        if any(_MISSING in text for text in texts):
            queues = kubectl(view, "get", _QUEUES, namespaced=False)
            advice: tuple[str, ...] = (f"create the queue, or name another one; those that there are: {queues}",)
        else:
            look = kubectl(view, "describe", _QUEUES, queue, namespaced=False)
            advice = (
                f"see the queue: {look}",
                "wait until others of the queue end, ask for less, name another queue, or have its capability raised",
            )
        evidence = [Evidence(reference_to(group), text) for text in texts] + list(_queue_evidence(view, queue))
        yield Finding(Cause.QUOTA_EXCEEDED, Certainty.CERTAIN, tuple(evidence), since, advice)


def _waits_for_queue(view: JobView, group: JsonObject) -> Sequence[str]:
    """Return what says that a group of Volcano waits for its queue."""
    if group.get("apiVersion") != VOLCANO_API_VERSION or (group.get("status") or {}).get("phase") != "Pending":
        return ()
    said = true_conditions(group).get(_UNSCHEDULABLE) or {}
    texts = [str(said.get("message") or "")]
    texts += [event.note for event in view.events_about("PodGroup", group["metadata"]["name"])][-1:]
    queue = str((group.get("spec") or {}).get("queue") or "default")
    closed = [
        f"its queue {queue} is {state}"
        for each in view.queues or ()
        if each.get("kind") == "Queue" and each["metadata"]["name"] == queue
        for state in [(each.get("status") or {}).get("state") or _OPEN]
        if state != _OPEN
    ]
    there = {each["metadata"]["name"] for each in view.queues or () if each.get("kind") == "Queue"}
    was_read = view.queues is not None and all(each.what != _QUEUES for each in view.unread)
    missing = [f"its queue {queue} {_MISSING}"] if was_read and queue not in there else []
    return [*missing, *closed, *dict.fromkeys(text for text in texts if _QUEUE.search(text))]


def _queue_evidence(view: JobView, name: str) -> Iterator[Evidence]:
    for queue in view.queues or ():
        capability = (queue.get("spec") or {}).get("capability")
        if queue.get("kind") == "Queue" and queue["metadata"]["name"] == name and capability:
            allocated = (queue.get("status") or {}).get("allocated") or {}
            text = "; ".join(
                f"{resource}: {amount}, of which {allocated.get(resource, 0)} are in use"
                for resource, amount in capability.items()
            )
            yield Evidence(reference_to(queue), f"has {text}")


def _has_room(pod: JsonObject) -> bool:
    return is_scheduled(pod) or has_succeeded(pod)


def _waits_for_others(pod: JsonObject) -> bool:
    return _FITS in str(condition_of(pod, "PodScheduled").get("message"))


def _who_misses(view: JobView, pods: Sequence[JsonObject], wanted: int) -> Iterator[str]:
    waiting = [pod for pod in pods if not _has_room(pod)]
    text = f"starts when {wanted} of its pods can; {len(pods) - len(waiting)} have a node"
    unfit = [pod for pod in waiting if not _waits_for_others(pod)]
    if 0 < len(unfit) < len(waiting):
        text += f"; {len(waiting) - len(unfit)} of {len(waiting)} fit; without room: {named(unfit)}"
    elif waiting:
        text += f"; without one: {named(waiting)}"
    yield text
    if len(pods) < wanted and not view.has_more_pods:
        missing = missing_pods(view)
        which = ", ".join(f"{count} of {group}" for group, count in missing.items())
        yield f"has {len(pods)} pods, fewer than it needs" + (f"; not created: {which}" if which else "")


def _words_of_scheduler(pods: Sequence[JsonObject]) -> Iterator[Evidence]:
    """Return what the scheduler says of the first pod that has no node, of one that waits for others last."""
    for pod in sorted(pods, key=_waits_for_others):
        scheduled = condition_of(pod, "PodScheduled")
        if scheduled.get("status") == "False" and scheduled.get("message"):
            yield Evidence(reference_to({"kind": "Pod", **pod}), str(scheduled["message"]), condition_since(scheduled))
            return


def _advice(view: JobView, group: JsonObject, lacks_pods: bool) -> tuple[str, ...]:
    api_group = str(group.get("apiVersion") or COSCHEDULING_API_VERSION).partition("/")[0]
    resource = f"podgroups.{api_group}"  # those of Volcano and of the scheduler plugins have one name
    look = f"see the group: {kubectl(view, 'describe', resource, group['metadata']['name'])}"
    if lacks_pods:
        of_jobs = ("describe", "jobs", "-l", f"{JOBSET_LABEL}={view.name}")
        made_by = of_jobs if view.is_trainjob else ("describe", view.kind.lower(), view.name)
        return (f"see why the pods that miss are not created: {kubectl(view, *made_by)}", look)
    return ("free room for all of its pods at once, ask for less, or start fewer of them", look)
