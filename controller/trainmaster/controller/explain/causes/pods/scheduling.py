"""Unschedulable: pods that no node can take; which resource, taint, selector or device is in the way, and by how much.

The scheduler says it in the condition PodScheduled and in events FailedScheduling; its words name no amounts, no labels
and, from Kubernetes 1.34 on, no taints: these come from the pods and the nodes. What the scheduler says of claims of
volumes, of gangs and of queues are other causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.gangs import is_of_gang
from trainmaster.controller.explain.causes.pods.evidence import (
    evidence_of,
    grouped,
    labels_of,
    one_line,
    spec_of,
    waiting_pods,
)
from trainmaster.controller.explain.findings import (
    Certainty,
    Evidence,
    Finding,
    ObjectReference,
    parse_time,
    reference_to,
)
from trainmaster.controller.explain.pods import condition_of, current_pods, is_scheduled
from trainmaster.controller.explain.view import JobView, kubectl, nodes_field, resource_field
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError
from trainmaster.runtime.resource_requirements import Resources, pod_requests

_OF_CLAIMS: Final = re.compile(r"persistentvolume", re.IGNORECASE)
OF_GANGS: Final = re.compile(r"pod ?group|sibling pods|queue |tasks in gang|\bgang\b", re.IGNORECASE)
"""What the scheduler says of gangs and queues."""

_OVERUSED: Final = "resource in cluster is overused"
"""What Volcano says of a gang for which the whole cluster has too little left."""

_OF_NODES: Final = ("taint", "affinity", "selector", "were unschedulable", "claims", "Too many pods")
"""What the scheduler says of nodes that no room on them would mend."""

_INSUFFICIENT: Final = re.compile(r"\bInsufficient ([\w./-]*\w)")
FAILED_SCHEDULING: Final = "FailedScheduling"
"""The reason of the event by which a scheduler says that a pod has no node."""


_NODES: Final = 3
_GIBI: Final = 2**30


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What is in the way of a pod on some node, with what helps."""

    evidence: Sequence[Evidence]
    advice: Sequence[str]


def unschedulable(view: JobView) -> Iterator[Finding]:
    """Find pods that no node can take."""
    told = [(message, pod) for pod in waiting_pods(view) if (message := scheduling_message(view, pod))]
    largest = _largest_nodes(view, [message for message, _ in told]) if view.pod_groups else {}
    told = [(message, pod) for message, pod in told if not _is_said_of_others(view, pod, message, largest)]
    groups = grouped(told)
    if not groups:
        yield from _beyond_volumes(view)
        return
    evidence, advice = evidence_of(groups, of=len(told), condition="PodScheduled"), []
    for message, pods in groups:
        for obstacle in _obstacles(view, pods[0], message):
            evidence += [each for each in obstacle.evidence if each not in evidence]
            advice += [each for each in obstacle.advice if each not in advice]
    times = [parse_time(condition_of(pod, "PodScheduled").get("lastTransitionTime")) for _, pod in told]
    since = min((time for time in times if time is not None), default=None)
    yield Finding(Cause.UNSCHEDULABLE, Certainty.CERTAIN, evidence, since, advice)


def _beyond_volumes(view: JobView) -> Iterator[Finding]:
    """Find what no node has enough of, for pods of which the scheduler says only that a volume is missing."""
    for pod in waiting_pods(view):
        if not view.nodes or not _OF_CLAIMS.search(scheduling_message(view, pod)):
            continue
        wanted = {name: (amount, _largest(view.nodes, name)) for name, amount in _requests(pod).items()}
        never = [name for name, (amount, has) in wanted.items() if amount and (has is None or amount > has[1])]
        if obstacles := list(_scarce(view, pod, never)):
            evidence = [each for obstacle in obstacles for each in obstacle.evidence]
            advice = [each for obstacle in obstacles for each in obstacle.advice]
            since = parse_time(pod["metadata"].get("creationTimestamp"))
            yield Finding(Cause.UNSCHEDULABLE, Certainty.LIKELY, evidence, since, advice)
            return


def _is_said_of_others(view: JobView, pod: JsonObject, message: str, largest: Mapping[str, Quantity]) -> bool:
    """Say whether a pod waits for its volumes, its queue, or for the other pods of its gang: it would fit alone."""
    in_gang = bool(view.pod_groups) or (view.pod_groups is None and is_of_gang(pod))
    if _OF_CLAIMS.search(message) or OF_GANGS.search(message) or (in_gang and _OVERUSED in message):
        return True
    scarce = _INSUFFICIENT.findall(message)
    if not in_gang or not scarce or any(words in message for words in _OF_NODES):
        return False
    if view.pod_groups is None or view.nodes is None:
        return True  # only these tell whether it would fit alone
    requests = _requests(pod)
    return all(name in largest and name in requests and not requests[name] > largest[name] for name in scarce)


def _largest_nodes(view: JobView, messages: Iterable[str]) -> Mapping[str, Quantity]:
    """Return of each resource that messages call scarce how much the largest node has, where one has it."""
    names = {name for message in set(messages) for name in _INSUFFICIENT.findall(message)}
    found = {name: _largest(view.nodes or (), name) for name in names}
    return {name: largest[1] for name, largest in found.items() if largest is not None}


def _requests(pod: JsonObject) -> Resources:
    try:
        return pod_requests(spec_of(pod))
    except QuantityError:  # somebody else's server let it in
        return {}


def scheduling_message(view: JobView, pod: JsonObject) -> str:
    """Return why a pod has no node, in the words of the scheduler; empty if it has one, or nobody tried."""
    condition = condition_of(pod, "PodScheduled")
    if condition.get("status") == "True" or spec_of(pod).get("nodeName"):
        return ""
    if condition.get("reason") == "Unschedulable" and condition.get("message"):
        return str(condition["message"])
    events = view.events_about("Pod", pod["metadata"]["name"])
    told = [event.note for event in events if event.reason == FAILED_SCHEDULING]
    return told[-1] if told else ""


def _obstacles(view: JobView, pod: JsonObject, message: str) -> Iterator[_Obstacle]:
    yield from _scarce(view, pod, dict.fromkeys(_INSUFFICIENT.findall(message)))
    nodes = view.nodes or ()
    if "untolerated taint" in message:
        yield _taints(view, pod, nodes)
    if "node affinity/selector" in message or "node selector" in message:
        yield _selector(view, pod, nodes)
    if "were unschedulable" in message:
        cordoned = [node for node in nodes if (node.get("spec") or {}).get("unschedulable")]
        names = [node["metadata"]["name"] for node in cordoned]
        yield _Obstacle(
            [Evidence(_node(node), "it is cordoned: it takes no new pods") for node in cordoned[:_NODES]],
            [f"let it take pods again: {_of_nodes(view, 'uncordon', name)}" for name in names[:_NODES]],
        )
    if "Too many pods" in message:
        yield _Obstacle([], ["add a node, or wait until other pods end: the nodes run as many pods as they may"])
    if "no nodes available" in message:
        yield _Obstacle([], [f"see why the cluster has no nodes: {_of_nodes(view, 'get', 'nodes')}"])
    if "resourceclaim" in message or "claims" in message or "device class" in message:
        yield _Obstacle([], [f"see which devices there are: {_of_nodes(view, 'get', 'resourceslices,deviceclasses')}"])
    if "free ports" in message:
        yield _Obstacle([], ["use no hostPort, or fewer pods for each node"])
    if "affinity rules" in message or "topology spread" in message:
        yield _Obstacle([], ["loosen the affinity, or the spread, between pods that the runtime or the job demands"])


def _scarce(view: JobView, pod: JsonObject, names: Iterable[str]) -> Iterator[_Obstacle]:
    """Say how much of each scarce resource is asked for, and what the nodes have for all pods that run together."""
    requests, pods = _requests(pod), current_pods(view)
    for name in names:
        wanted, largest = requests.get(name), _largest(view.nodes or (), name)
        if wanted is None or view.nodes is None:
            continue
        where = resource_field(view, name)
        node, has = largest if largest is not None else (None, Quantity.parse("0"))
        text = f"it asks for {_readable(wanted)} of {name}"
        about = reference_to({"kind": "Pod", **pod})
        there = [amount for each in view.nodes if (amount := _allocatable(each, name)) is not None]
        count = 1 if view.has_more_pods else sum(_requests(each).get(name) == wanted for each in pods)
        room = sum(amount.nano // wanted.nano for amount in there if wanted)
        if not has:
            evidence = Evidence(about, f"{text}, which no node has")
            advice = f"add nodes with {name}, or ask for none: {where}"
        elif wanted > has and node is not None:
            missing = _readable(wanted - has)
            evidence = Evidence(
                _node(node),
                f"it is the largest node and has {_readable(has)} of {name}: {missing} too little for a pod",
            )
            advice = f"{_at_most(there, name, count)} ({where}), or add larger nodes"
        elif room < count:
            together = _readable(sum(there, Quantity.parse("0")))
            text = f"its {count} pods ask for {_readable(wanted)} of {name} each"
            text = f"{text}; all nodes together have {together}, room for {room} of them"
            evidence = Evidence(view.reference, text)
            fewer = f"take at most {room} node{'s' if room > 1 else ''} for the job ({nodes_field(view)})"
            advice = f"{fewer}, {_at_most(there, name, count)} ({where}), or add nodes to the cluster"
        else:
            own = sum(map(is_scheduled, pods))
            among = f", {own} of this job among them" if own else ""
            text = f"{text}; the largest node has {_readable(has)}, of which other pods use too much{among}"
            evidence = Evidence(about, text)
            fewer = f"take fewer nodes for the job ({nodes_field(view)})" if own else "wait until other pods end"
            advice = f"{fewer}, ask for less {name} ({where}), or add nodes"
        yield _Obstacle([evidence], [advice])


def _at_most(there: Sequence[Quantity], name: str, count: int) -> str:
    """Say how much each of some pods can ask for, so that nodes have room for all of them."""
    unit = {"cpu": 10**6, "memory": 2**20 * 10**9}.get(name, 10**9)
    low, high = 0, max(there).nano // unit
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(amount.nano // (middle * unit) for amount in there) >= count
        low, high = (middle, high) if fits else (low, middle - 1)
    if not low:
        return f"ask for less {name}"
    pods = f"each of its {count} pods" if count > 1 else "its pod"
    return f"ask for at most {Quantity(low * unit, max(there).notation)} of {name} for {pods}"


def _largest(nodes: Sequence[JsonObject], name: str) -> tuple[JsonObject, Quantity] | None:
    found = [(node, amount) for node in nodes if (amount := _allocatable(node, name)) is not None]
    return max(found, key=lambda each: each[1].nano, default=None)


def _allocatable(node: JsonObject, name: str) -> Quantity | None:
    try:
        return Quantity.parse((node.get("status") or {}).get("allocatable", {})[name])
    except (KeyError, TypeError, QuantityError):
        return None


def _taints(view: JobView, pod: JsonObject, nodes: Sequence[JsonObject]) -> _Obstacle:
    evidence, advice = [], []
    for node in nodes:
        for taint in _untolerated(pod, node):
            text = f"{taint.get('key')}{'=' + taint['value'] if taint.get('value') else ''}:{taint.get('effect')}"
            evidence.append(Evidence(_node(node), f"it has the taint {text}, which the pods do not tolerate"))
            remove = _of_nodes(view, "taint", "nodes", node["metadata"]["name"], f"{text}-")
            advice.append(f"tolerate {text} in the pods, or remove it: {remove}")
    return _Obstacle(evidence[:_NODES], advice[:_NODES])


def _untolerated(pod: JsonObject, node: JsonObject) -> Iterator[JsonObject]:
    tolerations = spec_of(pod).get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            yield taint


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def _selector(view: JobView, pod: JsonObject, nodes: Sequence[JsonObject]) -> _Obstacle:
    spec = spec_of(pod)
    evidence, advice = [], []
    about = reference_to({"kind": "Pod", **pod})
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        values = sorted({labels_of(node)[key] for node in nodes if key in labels_of(node)})
        if value in values:
            continue
        there = f"nodes have {key}={', '.join(values[:_NODES])}" if values else "no node has the label"
        evidence.append(Evidence(about, f"it selects nodes by {key}={value}; {there}"))
        label = [_of_nodes(view, "label", "node", node["metadata"]["name"], f"{key}={value}") for node in nodes[:1]]
        advice.append(f"select other nodes, or label one that fits{f', as: {label[0]}' if label else ''}")
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        " and ".join(
            _expression(each) for each in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))
        )
        for term in required.get("nodeSelectorTerms") or ()
    ]
    if terms:
        evidence.append(Evidence(about, one_line(f"its node affinity demands {'; or '.join(terms)}")))
        advice.append("loosen the node affinity of the pods, or label a node as it demands")
    if not evidence and spec.get("nodeSelector"):
        labels = ", ".join(f"{key}={value}" for key, value in sorted(spec["nodeSelector"].items()))
        evidence.append(Evidence(about, one_line(f"it selects nodes by {labels}")))
        look = _of_nodes(view, "get", "nodes", "--show-labels")
        advice.append(f"see which nodes have these labels together: {look}")
    return _Obstacle(evidence, advice)


def _expression(expression: JsonObject) -> str:
    values = ", ".join(map(str, expression.get("values") or ()))
    return " ".join(filter(None, (expression.get("key"), expression.get("operator"), f"[{values}]" if values else "")))


def _of_nodes(view: JobView, *words: str) -> str:
    return kubectl(view, *words, namespaced=False)


def _node(node: JsonObject) -> ObjectReference:
    return reference_to({"kind": "Node", **node})


def _readable(amount: Quantity) -> str:
    """Write memory as people speak of it: nodes have an odd number of Ki."""
    gibibytes = amount.nano / (_GIBI * 10**9)
    return f"{gibibytes:.1f}".removesuffix(".0") + "Gi" if gibibytes >= 1 else str(amount)
