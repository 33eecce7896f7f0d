"""Evicted, Preempted, NodeLost: pods that the cluster took away, by whom and why, also those that are gone by now.

Pods say it by the condition DisruptionTarget or by the reason for which they failed; events tell of pods that are gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.evidence import evidence_of, grouped, one_line, spec_of
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.pods import condition_of, known_pods
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView, kubectl
from trainmaster.runtime.jsontree import JsonObject

DISRUPTIONS: Final = frozenset({Cause.EVICTED, Cause.PREEMPTED, Cause.NODE_LOST})
_CONDITION: Final = "DisruptionTarget"
DISRUPTION_REASONS: Final = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "PreemptionByKubeScheduler": Cause.PREEMPTED,
    "Preempting": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.EVICTED,
    "TerminationByKubelet": Cause.EVICTED,
    "Evicted": Cause.EVICTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "DeletionByTrainmaster": Cause.NODE_LOST,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
}
"""Reasons of the condition, and of pods that failed as a whole."""

_BY_EVENT: Final = {
    "Preempted": Cause.PREEMPTED,
    "Evicted": Cause.EVICTED,
    "TaintManagerEviction": Cause.NODE_LOST,
    "NodeNotReady": Cause.NODE_LOST,
}
EVENT_REASONS: Final = tuple(_BY_EVENT)
"""Reasons of events about pods that are taken away."""

_REASON: Final = re.compile(r"\b(?:PreemptionBy|EvictionBy|TerminationBy|DeletionBy)[A-Z]\w+")
_TAINT_MANAGER: Final = frozenset({"DeletionByTaintManager", "TaintManagerEviction"})
_OF_LOST_NODES: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
_PREEMPTOR: Final = re.compile(r"[Pp]reempted by (?:a )?pod (\S+)")
_RESOURCE: Final = re.compile(r"low on resource: ([\w.-]+)|exceeds? (?:the|its) (?:total )?limit|[Uu]sage of EmptyDir")
_COLUMNS: Final = "NAMESPACE:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid"
_SETTLED: Final = frozenset({State.RUNNING, State.COMPLETE})


def disruptions(view: JobView) -> Iterator[Finding]:
    """Find pods that were taken away, by cause."""
    told: dict[Cause, list[tuple[str, JsonObject]]] = {}
    for pod in known_pods(view):
        if (found := _disruption(view, pod)) is not None:
            told.setdefault(found[0], []).append((found[1], pod))
    findings = {cause: evidence_of(grouped(pods), of=len(pods), condition=_CONDITION) for cause, pods in told.items()}
    if state_of(view).state not in _SETTLED:
        for cause, evidence in _of_gone_pods(view):
            if cause not in told:
                findings.setdefault(cause, []).append(evidence)
    if lost := list(_lost_nodes(view)):
        findings.setdefault(Cause.NODE_LOST, []).extend(lost)
    for cause, of_cause in findings.items():
        since = min((each.at for each in of_cause if each.at is not None), default=None)
        advice = disruption_advice(view, cause, " ".join(each.text for each in of_cause))
        yield Finding(cause, Certainty.CERTAIN, of_cause, since, advice)


def _disruption(view: JobView, pod: JsonObject) -> tuple[Cause, str] | None:
    """Return why a pod was taken away, and in which words that is told."""
    condition, status = condition_of(pod, _CONDITION), pod.get("status") or {}
    sources = [status] if status.get("phase") == "Failed" else []
    if condition.get("status") == "True":
        sources.insert(0, condition)
    for source in sources:
        reason = str(source.get("reason") or "")
        cause = _cause(view, reason, spec_of(pod).get("nodeName"))
        if cause is not None:
            # A pod under pressure says more than its condition.
            message = status.get("message") if status.get("reason") else source.get("message")
            return cause, ": ".join(filter(None, (reason, one_line(message or source.get("message")))))
    return None


def said_disruption(view: JobView, text: str) -> Cause | None:
    """Return why a pod was taken away of which only a text tells; None if it does not."""
    found = _REASON.search(text)
    return None if found is None else _cause(view, found[0], None)


def _cause(view: JobView, reason: str, node: str | None) -> Cause | None:
    cause = DISRUPTION_REASONS.get(reason) or _BY_EVENT.get(reason)
    if reason in _TAINT_MANAGER and not _is_lost(view, node):
        return Cause.EVICTED  # somebody else tainted the node: to drain it, for instance
    return cause


def _is_lost(view: JobView, name: str | None) -> bool:
    """Say whether a node, or any if its name is not known, is gone or does not answer; so it is where nobody looked."""
    if view.nodes is None:
        return True
    if not name:
        return any(_is_lost(view, _name(node)) for node in view.nodes)
    node = next((each for each in view.nodes if each["metadata"]["name"] == name), None)
    if node is None:
        return True
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") in _OF_LOST_NODES for taint in taints) or _unready(node) is not None


def _unready(node: JsonObject) -> JsonObject | None:
    ready = condition_of(node, "Ready")
    return ready if ready.get("status") in ("False", "Unknown") else None


def _of_gone_pods(view: JobView) -> Iterator[tuple[Cause, Evidence]]:
    """Yield what events tell of pods that are gone, the last of each cause."""
    last: dict[Cause, Evidence] = {}
    there = {pod["metadata"]["name"] for pod in known_pods(view)}
    for event in view.events_about("Pod"):
        cause = _cause(view, event.reason, None) if event.reason in _BY_EVENT else None
        if cause is None or event.about.name in there:
            continue
        last[cause] = Evidence(event.about, f"{event.reason}: {one_line(event.note)}", event.last)
    yield from last.items()


def _name(node: JsonObject) -> str:
    return str(node["metadata"]["name"])


def _lost_nodes(view: JobView) -> Iterator[Evidence]:
    """Yield the nodes that do not answer and on which pods of the job should run."""
    if view.nodes is None:
        return
    phases = {"Running", "Unknown"}
    used = {spec_of(pod).get("nodeName") for pod in view.pods or () if (pod.get("status") or {}).get("phase") in phases}
    for node in view.nodes:
        ready = _unready(node)
        if _name(node) in used and ready is not None:
            text = f"it is not ready: {ready.get('reason', '')}: {one_line(ready.get('message'))}"
            yield Evidence(reference_to({"kind": "Node", **node}), text, parse_time(ready.get("lastTransitionTime")))


def disruption_advice(view: JobView, cause: Cause, text: str) -> list[str]:
    """Return what to do about a pod that was taken away; nothing for other causes."""
    if cause is Cause.PREEMPTED:
        found = _PREEMPTOR.search(text)
        listed = kubectl(view, "get", "pods", "-A", "-o", f"custom-columns={_COLUMNS}", namespaced=False)
        by = f"see for whom it made room: {listed} | grep {found[1]}" if found else ""
        return [
            *filter(None, (by,)),
            "give the job a higher priority (priorityClassName), or wait until there is room again",
            "save checkpoints, so that a restart loses little",
        ]
    if cause is Cause.EVICTED and (found := _RESOURCE.search(text)):
        resource = found[1] or "ephemeral-storage"
        return [f"ask for the {resource} that it really uses, so that no node is overbooked, or write less"]
    if cause is Cause.EVICTED:
        of_nodes = kubectl(
            view, "get", "events", "-A", "--field-selector", "involvedObject.kind=Node", namespaced=False
        )
        return [
            f"somebody drained or tainted the node, or it did not answer for a while: {of_nodes}",
            "save checkpoints, so that a restart loses little",
        ]
    return []
