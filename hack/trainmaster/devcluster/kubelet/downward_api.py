"""The downward API: what a pod may learn about itself by `fieldRef` and `resourceFieldRef`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

HOST_IP = "127.0.0.1"

_SUBSCRIPTED = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """What is known about a pod on its node beside its object."""

    pod: JsonObject
    pod_ip: str
    capacity: Mapping[str, str]
    """Resources of the node: what a container without a limit may use."""


class UnknownFieldError(ValueError):
    """The path or resource does not exist in the downward API."""


def field_value(path: str, pod_info: PodInfo) -> str:
    """Resolve a `fieldRef`. A label or annotation that the pod lacks is empty, as in Kubernetes."""
    metadata, spec = pod_info.pod["metadata"], pod_info.pod["spec"]
    if subscripted := _SUBSCRIPTED.fullmatch(path):
        return str((metadata.get(subscripted[1]) or {}).get(subscripted[2], ""))
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": pod_info.pod_ip,
        "status.podIPs": pod_info.pod_ip,
        "status.hostIP": HOST_IP,
        "status.hostIPs": HOST_IP,
    }
    if path in simple:
        return str(simple[path])
    if path in {"metadata.labels", "metadata.annotations"}:
        entries = metadata.get(path.removeprefix("metadata.")) or {}
        # JSON quoting equals that of Kubernetes for everything that labels and ordinary annotations hold.
        return "\n".join(f"{key}={json.dumps(entries[key], ensure_ascii=False)}" for key in sorted(entries))
    raise UnknownFieldError(f"unsupported fieldPath: {path}")


def resource_value(selector: JsonObject, container: JsonObject, pod_info: PodInfo) -> str:
    """Resolve a `resourceFieldRef` against a container: the amount in units of the divisor, rounded up."""
    kind, _, resource = str(selector.get("resource", "")).partition(".")
    if kind not in {"limits", "requests"} or not resource:
        raise UnknownFieldError(f"unsupported container resource: {selector.get('resource')}")
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or {}).get(resource)
    if amount is None and kind == "limits":
        amount = pod_info.capacity.get(resource)
    try:
        divisor = Quantity.parse(selector.get("divisor") or "1")
        value = Quantity.parse(amount if amount is not None else "0")
    except QuantityError as error:
        raise UnknownFieldError(f"{selector.get('resource')}: {error}") from error
    # Kubernetes writes a divisor that was left out as "0" and means 1.
    return str(-(-value.nano // (divisor.nano or 10**9)))


def container_named(name: str | None, pod: JsonObject) -> JsonObject:
    """Find the container that a resource reference names."""
    spec = pod["spec"]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if container["name"] == name:
            found: JsonObject = container
            return found
    raise UnknownFieldError(f"container {name} not found")
