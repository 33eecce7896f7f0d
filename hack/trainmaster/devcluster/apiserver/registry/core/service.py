"""Services: the defaults of a cluster with one address family, and what follows from a change of the type."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.core.service_allocation import allocate
from trainmaster.devcluster.apiserver.registry.core.service_validation import (
    CLUSTER_IP,
    EXTERNAL_NAME,
    HEADLESS,
    LOAD_BALANCER,
    NODE_PORT,
    is_externally_accessible,
    is_headless,
    needs_health_check,
    validate_load_balancer_status,
    validate_service,
    validate_service_update,
)
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label

_AFFINITY_SECONDS = 10_800
_FAMILIES = ("IPv4", "IPv6")


class ServiceStrategy(Strategy):
    """Services; addresses and node ports are given out and never reached."""

    return_deleted_object = True
    required_by_schema = False

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return dns_label(name)

    def default(self, obj: JsonObject) -> None:
        """Fill in type, affinity, ports and policies."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", CLUSTER_IP)
        spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        elif spec["sessionAffinity"] == "ClientIP":
            client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            client.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
        for port in spec.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"
            port["targetPort"] = port.get("targetPort") or port.get("port", 0)
        if spec["type"] in (CLUSTER_IP, NODE_PORT, LOAD_BALANCER):
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if is_externally_accessible(spec):
            spec["externalTrafficPolicy"] = spec.get("externalTrafficPolicy") or "Cluster"
        if spec["type"] == LOAD_BALANCER:
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        for point in ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if point.get("ip"):
                point.setdefault("ipMode", "VIP")

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a load balancer."""
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        _choose_families(spec)

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep what was given out when it is left out, and drop what the new type does not have."""
        restore(obj, old, "status")
        spec, before = obj["spec"], old["spec"]
        _follow_address(spec, before)
        if spec["type"] == EXTERNAL_NAME:
            _drop_unchanged(spec, before, _OF_ADDRESSES)
        elif before["type"] != EXTERNAL_NAME:
            _keep_addresses(spec, before)
        if not _has_node_ports(spec):
            _drop_node_ports(spec, before)
        elif _has_node_ports(before):
            _keep_node_ports(spec, before)
        if spec["type"] != LOAD_BALANCER:
            _drop_unchanged(spec, before, ("allocateLoadBalancerNodePorts", "loadBalancerClass"))
        if not is_externally_accessible(spec):
            _drop_unchanged(spec, before, ("externalTrafficPolicy",))
        if not needs_health_check(spec):
            _drop_unchanged(spec, before, ("healthCheckNodePort",))
        elif needs_health_check(before):
            spec.setdefault("healthCheckNodePort", before.get("healthCheckNodePort"))
        _choose_families(spec)

    def allocate(
        self, obj: JsonObject, old: JsonObject | None, others: Callable[[], Iterable[JsonObject]], *, dry_run: bool
    ) -> None:
        """Give out addresses and node ports."""
        if obj["spec"]["type"] != EXTERNAL_NAME:
            allocate(obj, old, others, dry_run=dry_run)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec, and whether this cluster has such addresses."""
        return list(validate_service(obj["spec"]))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to move a service to another address."""
        return list(validate_service_update(obj["spec"], old["spec"]))

    def validate_status_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:  # noqa: ARG002
        """Check the addresses that a load balancer reports."""
        return list(validate_load_balancer_status(obj.get("status") or {}, obj["spec"]))


def _choose_families(spec: JsonObject) -> None:
    """Fill in the families of addresses as a cluster with IPv4 only does, where they follow from the rest."""
    if spec["type"] == EXTERNAL_NAME:
        return
    families = spec.get("ipFamilies") or []
    if is_headless(spec) and not spec.get("selector"):
        # Somebody else lists its endpoints, which may have any family.
        policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        families = families or [_FAMILIES[0]]
        if policy != "SingleStack":
            families = [*families, *(family for family in _FAMILIES if family not in families)]
        spec["ipFamilies"] = families
        return
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if not families and not any(":" in address for address in spec.get("clusterIPs") or ()):
        spec["ipFamilies"] = [_FAMILIES[0]]


def _follow_address(spec: JsonObject, before: JsonObject) -> None:
    """Let the list of addresses follow the single one that the client changed alone."""
    address, known = spec.get("clusterIP"), before.get("clusterIP")
    if address != known and spec.get("clusterIPs") == before.get("clusterIPs"):
        spec["clusterIPs"] = [address] if address else []
    if not spec.get("clusterIPs"):
        spec.pop("clusterIPs", None)
    if not address:
        spec.pop("clusterIP", None)


_OF_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")


def _keep_addresses(spec: JsonObject, before: JsonObject) -> None:
    if not spec.get("clusterIP") and "clusterIP" in before:
        spec["clusterIP"] = before["clusterIP"]
    if not spec.get("clusterIPs") and "clusterIPs" in before and spec.get("clusterIP") == before.get("clusterIP"):
        spec["clusterIPs"] = before["clusterIPs"]
    elif not spec.get("clusterIPs") and spec.get("clusterIP"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if "ipFamilies" not in spec and "ipFamilies" in before and spec.get("clusterIP") != HEADLESS:
        spec["ipFamilies"] = before["ipFamilies"]
    if "ipFamilyPolicy" not in spec and "ipFamilyPolicy" in before:
        spec["ipFamilyPolicy"] = before["ipFamilyPolicy"]


def _drop_unchanged(spec: JsonObject, before: JsonObject, fields: Iterable[str]) -> None:
    """Drop fields that the client left as they were under the old type."""
    for field in fields:
        if field in spec and spec[field] == before.get(field):
            del spec[field]


def _has_node_ports(spec: JsonObject) -> bool:
    return spec["type"] == NODE_PORT or (
        spec["type"] == LOAD_BALANCER and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def _node_ports(spec: JsonObject) -> list[int]:
    return [port.get("nodePort", 0) for port in spec.get("ports") or ()]


def _drop_node_ports(spec: JsonObject, before: JsonObject) -> None:
    if _has_node_ports(before) and _node_ports(spec) == _node_ports(before):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)


def _keep_node_ports(spec: JsonObject, before: JsonObject) -> None:
    known = {(port["protocol"], port.get("port")): port.get("nodePort") for port in before.get("ports") or ()}
    used = set(_node_ports(spec))
    for port in spec.get("ports") or ():
        kept = known.get((port["protocol"], port.get("port")))
        if not port.get("nodePort") and kept and kept not in used:
            port["nodePort"] = kept


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Service",
        "services",
        strategy=ServiceStrategy(),
        short_names=("svc",),
        categories=("all",),
        subresources=("status", "proxy"),
        columns=printers.SERVICES,
        field_labels=field_labels("spec.clusterIP", "spec.type"),
    )
