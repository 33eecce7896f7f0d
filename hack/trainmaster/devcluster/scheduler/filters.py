"""The filter plugins: whether a pod fits on a node, and if not, why; and the queue sort plugin. Pure.

Looked at: resources and the number of pods, ports of the host, node selector and required node affinity, taints,
cordoned nodes. The words are those of the Kubernetes scheduler, on which people and tools rely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.controllers.tainteviction import tolerates
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources

_SELECTOR = "node(s) didn't match Pod's node affinity/selector"
_TAINT = "node(s) had untolerated taint(s)"
_CORDONED = "node(s) were unschedulable"
_NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
_TOO_MANY = "Too many pods"
NEVER_FITS = "it can never run here"
"""What the message of a pod says that asks for more than any node has, whatever else runs."""

_INSUFFICIENT = "Insufficient "
_ZERO = Quantity.parse("0")
_GIBI = 2**30

_NO_DEVICES = "cannot allocate all claims: the embedded cluster has no devices; use a cluster with a driver for them"
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


class HostPort(NamedTuple):
    """A port of a node that a pod has to itself."""

    protocol: str
    address: str
    port: int


def filter_node(
    pod: JsonObject,
    requests: Resources,
    node: JsonObject,
    used: Resources,
    pods: int,
    *,
    ports: Collection[HostPort] = (),
) -> list[str]:
    """Return the reasons why the pod cannot run on the node beside what uses it already; none means that it can.

    `used` are the resources, `pods` the number of pods and `ports` the ports of the host that are in use there.
    """
    spec, wanted = pod["spec"], node.get("spec") or {}
    if wanted.get("unschedulable"):
        return [_CORDONED]
    if not _matches_node_affinity(spec, node):
        return [_SELECTOR]
    if not _tolerates(spec.get("tolerations") or (), wanted.get("taints") or ()):
        return [_TAINT]
    if any(_clash(wanted_port, taken) for wanted_port in host_ports(pod) for taken in ports):
        return [_NO_PORTS]
    allocatable = node.get("status", {}).get("allocatable") or {}
    reasons = []
    if "pods" in allocatable and pods + 1 > Quantity.parse(allocatable["pods"]).ceil():
        reasons.append(_TOO_MANY)
    for name, request in sorted(requests.items()):
        free = _allocatable(node, name) - used.get(name, _ZERO)
        if request and request > free:
            reasons.append(f"{_INSUFFICIENT}{name}")
    return reasons


def host_ports(pod: JsonObject) -> set[HostPort]:
    """Return the ports of the host that a pod wants."""
    return {
        HostPort(port.get("protocol", "TCP"), port.get("hostIP") or "0.0.0.0", port["hostPort"])  # noqa: S104 - compared
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def _clash(one: HostPort, other: HostPort) -> bool:
    same_address = one.address == other.address or "0.0.0.0" in (one.address, other.address)  # noqa: S104 - compared
    return (one.protocol, one.port) == (other.protocol, other.port) and same_address


def fit_error(reasons: Iterable[Iterable[str]], nodes: int) -> str:
    """Word the message of an unschedulable pod from the reasons of each node."""
    if not nodes:
        return "no nodes available to schedule pods"
    counted = Counter(reason for of_node in reasons for reason in of_node)
    parts = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{nodes} nodes are available: {parts}."


def explain_insufficiency(requests: Resources, reasons: Iterable[Iterable[str]], nodes: Sequence[JsonObject]) -> str:
    """Say what was asked for and what the largest node has of what no node had enough of; empty if that is nothing.

    It does not say what is in use: it would change with every other pod, and be written anew for each that waits.
    """
    every = {reason for of_node in reasons for reason in of_node}
    scarce = {name: amount for name, amount in sorted(requests.items()) if f"{_INSUFFICIENT}{name}" in every}
    if not scarce:
        return ""
    largest = {name: max(_allocatable(node, name) for node in nodes) for name in scarce}
    asked = "; for ".join(
        f"{_readable(amount)} {name}, the largest node has {_readable(largest[name])}"
        for name, amount in scarce.items()
    )
    if any(amount > largest[name] for name, amount in scarce.items()):
        return f" The pod asks for {asked}: {NEVER_FITS}."
    return f" The pod asks for {asked}, of which other pods use too much."


def _allocatable(node: JsonObject, resource: str) -> Quantity:
    return Quantity.parse((node.get("status", {}).get("allocatable") or {}).get(resource, "0"))


def _readable(amount: Quantity) -> str:
    """Write memory as people speak of it: nodes have an odd number of Ki."""
    gibibytes = amount.nano / (_GIBI * 10**9)
    return f"{gibibytes:.1f}".removesuffix(".0") + "Gi" if gibibytes >= 1 else str(amount)


def pre_filter_error(problem: str, nodes: int) -> str:
    """Word the message of a pod that has to wait for a reason that has nothing to do with any single node."""
    return f"0/{nodes} nodes are available: {problem}."


def _matches_node_affinity(spec: JsonObject, node: JsonObject) -> bool:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or matches_node_selector(affinity, node)


def matches_node_selector(selector: JsonObject | None, node: JsonObject) -> bool:
    """Tell whether one of the terms of a node selector matches the node."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_matches_term(term, labels, fields) for term in (selector or {}).get("nodeSelectorTerms") or ())


def _matches_term(term: JsonObject, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions = [(each, labels) for each in term.get("matchExpressions") or ()]
    expressions += [(each, fields) for each in term.get("matchFields") or ()]
    # An empty term selects nothing.
    return bool(expressions) and all(_matches(expression, values) for expression, values in expressions)


def _matches(expression: JsonObject, actual: Mapping[str, str]) -> bool:
    value, wanted = actual.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                difference = int(value or "") - int(wanted[0])
            except (ValueError, IndexError):
                return False
            return difference > 0 if operator == "Gt" else difference < 0
        case _:
            return False


def _tolerates(tolerations: Iterable[JsonObject], taints: Iterable[JsonObject]) -> bool:
    known = list(tolerations)
    return all(
        taint["effect"] == "PreferNoSchedule" or any(tolerates(toleration, taint) for toleration in known)
        for taint in taints
    )


def queue_sort_key(pod: JsonObject) -> tuple[int, str, str]:
    """Return by what waiting pods are ordered: priority, then age, then name."""
    metadata = pod["metadata"]
    return (-pod["spec"].get("priority", 0), metadata["creationTimestamp"], metadata["name"])


def claims_problem(api: Api, pod: JsonObject) -> str:
    """Return why the claims of a pod keep it from any node, in the words of kube-scheduler; empty if they do not."""
    if pod["spec"].get("resourceClaims"):
        return _NO_DEVICES
    unbound = False
    for name in _claim_names(pod):
        record = api.store.get(ObjectKey(PERSISTENT_VOLUME_CLAIMS, pod["metadata"]["namespace"], name))
        if record is None:
            return f'persistentvolumeclaim "{name}" not found'
        if is_terminating(record.object):
            return f'persistentvolumeclaim "{name}" is being deleted'
        unbound |= (record.object.get("status") or {}).get("phase") != "Bound"
    return _UNBOUND if unbound else ""


def _claim_names(pod: JsonObject) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim["claimName"]
