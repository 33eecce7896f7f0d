"""Rules of Services, and of how they may change. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.devcluster.apiserver.registry.fields import address as valid_address
from trainmaster.devcluster.apiserver.registry.fields import parse_address, port_number
from trainmaster.devcluster.apiserver.registry.fields import port as valid_port
from trainmaster.devcluster.apiserver.registry.labels import labels
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain, qualified_name

HEADLESS = "None"
EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT, CLUSTER_IP = "ExternalName", "LoadBalancer", "NodePort", "ClusterIP"
_TYPES = [CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT]
_CHOICES = {
    "sessionAffinity": ["ClientIP", "None"],
    "internalTrafficPolicy": ["Cluster", "Local"],
    "ipFamilyPolicy": ["PreferDualStack", "RequireDualStack", "SingleStack"],
    "trafficDistribution": ["PreferClose", "PreferSameNode", "PreferSameZone"],
}
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_FAMILIES = ["IPv4", "IPv6"]
_CONFIGURED = "IPv4"
_KUBELET_PORT = 10250
_LONGEST_AFFINITY = 86_400  # seconds: one day
_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"
_SET_ONCE = "may not change once set"


def is_headless(spec: JsonObject) -> bool:
    """Return whether a service has no address of its own, only those of its pods."""
    return bool(spec.get("clusterIPs")) and spec["clusterIPs"][0] == HEADLESS


def is_externally_accessible(spec: JsonObject) -> bool:
    """Return whether a service can be reached from outside of the cluster."""
    return spec["type"] in (LOAD_BALANCER, NODE_PORT) or (spec["type"] == CLUSTER_IP and bool(spec.get("externalIPs")))


def needs_health_check(spec: JsonObject) -> bool:
    """Return whether a load balancer asks the nodes for pods of the service."""
    return spec["type"] == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local"


def validate_service(spec: JsonObject) -> Iterator[FieldError]:
    """Check the spec of a Service that has its defaults."""
    if spec["type"] not in _TYPES:
        yield unsupported("spec.type", spec["type"], _TYPES)
    if not spec.get("ports") and not is_headless(spec) and spec["type"] != EXTERNAL_NAME:
        yield FieldError("spec.ports", "Required")
    if spec["type"] in (LOAD_BALANCER, NODE_PORT) and is_headless(spec):
        detail = f"may not be set to 'None' for {spec['type']} services"
        yield FieldError("spec.clusterIPs[0]", "Invalid", HEADLESS, detail)
    if spec["type"] == EXTERNAL_NAME:
        yield from _validate_external_name(spec)
    else:
        yield from _validate_addresses(spec)
    yield from _validate_ports(spec)
    yield from labels("spec.selector", spec.get("selector") or {})
    for field, known in _CHOICES.items():
        if field in spec and spec[field] not in known:
            yield unsupported(f"spec.{field}", spec[field], known)
    if spec["sessionAffinity"] == "ClientIP":
        seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= _LONGEST_AFFINITY:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            yield FieldError(path, "Invalid", seconds, f"must be greater than 0 and less than {_LONGEST_AFFINITY}")
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from _validate_external_address(address, f"spec.externalIPs[{index}]")
    yield from _validate_load_balancer(spec)
    yield from _validate_external_traffic(spec)


def _validate_external_name(spec: JsonObject) -> Iterator[FieldError]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield FieldError(f"spec.{field}", "Forbidden", detail="may not be set for ExternalName services")
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        yield FieldError("spec.externalName", "Required")
    else:
        yield from (FieldError("spec.externalName", "Invalid", name, problem) for problem in dns_subdomain(name))


def _validate_addresses(spec: JsonObject) -> Iterator[FieldError]:
    address, addresses, families = spec.get("clusterIP"), spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    path = "spec.clusterIPs"
    if address and addresses and address != addresses[0]:
        yield FieldError(path, "Invalid", addresses, "first value must match `clusterIP`")
    if addresses and not address:
        yield FieldError(path, "Invalid", addresses, "must be empty when `clusterIP` is not specified")
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            yield unsupported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        if family in families[:index]:
            yield FieldError(f"spec.ipFamilies[{index}]", "Duplicate", family)
    problems = []
    for index, each in enumerate(addresses):
        if index == 0 and each == HEADLESS:
            if len(addresses) > 1:
                problems.append(FieldError(path, "Invalid", addresses, "'None' must be the first and only value"))
        else:
            problems += valid_address(f"{path}[{index}]", each)
    if len(addresses) > 2:
        yield FieldError(path, "Invalid", addresses, "may only hold up to 2 values")
    yield from problems
    if not problems:
        yield from _validate_families(addresses, families)
        yield from _validate_configured(spec, addresses, families)


def _validate_configured(spec: JsonObject, addresses: list[str], families: list[str]) -> Iterator[FieldError]:
    """Check that a cluster with IPv4 only can give what is asked for."""
    for index, address in enumerate(addresses[len(families) :], start=len(families)):
        if address != HEADLESS and family_of(address) != _CONFIGURED:
            detail = f"{family_of(address)} is not configured on this cluster"
            yield FieldError(f"spec.clusterIPs[{index}]", "Invalid", addresses, detail)
            return
    if is_headless(spec) and not spec.get("selector"):
        return
    policy, path = spec.get("ipFamilyPolicy"), "spec.ipFamilyPolicy"
    if policy == "RequireDualStack":
        yield FieldError(path, "Invalid", policy, "this cluster is not configured for dual-stack services")
    elif policy == "SingleStack":
        for field, values in (("clusterIPs", addresses), ("ipFamilies", families)):
            if len(values) > 1:
                detail = f"must be RequireDualStack or PreferDualStack when multiple '{field}' are specified"
                yield FieldError(path, "Invalid", policy, detail)
    for index, family in enumerate(families):
        if family in _FAMILIES and family != _CONFIGURED:
            yield FieldError(f"spec.ipFamilies[{index}]", "Invalid", family, "not configured on this cluster")


def _validate_families(addresses: list[str], families: list[str]) -> Iterator[FieldError]:
    given = [family_of(address) for address in addresses if address != HEADLESS]
    if len(given) > 1 and (len(given) > 2 or given[0] == given[1]):
        detail = "may specify no more than one IP for each IP family"
        yield FieldError("spec.clusterIPs", "Invalid", addresses, detail)
    for index, (address, family, wanted) in enumerate(zip(addresses, given, families, strict=False)):
        if family != wanted and wanted in _FAMILIES:
            detail = f"expected an {wanted} value as indicated by `ipFamilies[{index}]`"
            yield FieldError(f"spec.clusterIPs[{index}]", "Invalid", address, detail)


def family_of(address: str) -> str:
    """Return the family of a valid address."""
    return "IPv6" if ":" in address else "IPv4"


_SPECIAL = (
    ("is_unspecified", "may not be unspecified (0.0.0.0 or ::)"),
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)
_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def _validate_external_address(text: str, path: str) -> Iterator[FieldError]:
    address = parse_address(text)
    if address is None:
        yield from valid_address(path, text)
        return
    for attribute, detail in _SPECIAL:
        if getattr(address, attribute):
            yield FieldError(path, "Invalid", text, detail)
    if any(address in network for network in _LINK_LOCAL_MULTICAST if network.version == address.version):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        yield FieldError(path, "Invalid", text, detail)


def _validate_ports(spec: JsonObject) -> Iterator[FieldError]:
    ports = spec.get("ports") or []
    names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    node_ports: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        name, number, node_port, protocol = (
            port.get("name", ""),
            port.get("port", 0),
            port.get("nodePort", 0),
            port["protocol"],
        )
        if name:
            yield from (FieldError(f"{path}.name", "Invalid", name, problem) for problem in dns_label(name))
            if name in names:
                yield FieldError(f"{path}.name", "Duplicate", name)
            names.add(name)
        elif len(ports) > 1:
            yield FieldError(f"{path}.name", "Required")
        yield from port_number(f"{path}.port", number)
        if protocol not in _PROTOCOLS:
            yield unsupported(f"{path}.protocol", protocol, _PROTOCOLS)
        yield from valid_port(f"{path}.targetPort", port["targetPort"])
        if "appProtocol" in port:
            application = port["appProtocol"]
            for problem in qualified_name(application):
                yield FieldError(f"{path}.appProtocol", "Invalid", application, problem)
        if spec["type"] == LOAD_BALANCER and number == _KUBELET_PORT:
            detail = f"may not expose port {number} externally since it is used by kubelet"
            yield FieldError(path, "Invalid", number, detail)
        if node_port and spec["type"] == CLUSTER_IP:
            yield FieldError(f"{path}.nodePort", "Forbidden", detail="may not be used when `type` is 'ClusterIP'")
        if node_port and (protocol, node_port) in node_ports:
            yield FieldError(f"{path}.nodePort", "Duplicate", node_port)
        if (protocol, number) in seen:
            # The server shows its own structure with what makes two ports equal.
            shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number}
            yield FieldError(path, "Duplicate", {**shown, "TargetPort": 0, "NodePort": 0})
        seen.add((protocol, number))
        node_ports.add((protocol, node_port))


def _validate_load_balancer(spec: JsonObject) -> Iterator[FieldError]:
    is_load_balancer = spec["type"] == LOAD_BALANCER
    ranges = spec.get("loadBalancerSourceRanges") or ()
    fields = {
        "LoadBalancerSourceRanges": bool(ranges),
        "allocateLoadBalancerNodePorts": "allocateLoadBalancerNodePorts" in spec,
        "loadBalancerClass": "loadBalancerClass" in spec,
    }
    for field, is_set in fields.items():
        if is_set and not is_load_balancer:
            yield FieldError(f"spec.{field}", "Forbidden", detail=_LOAD_BALANCER_ONLY)
    for index, text in enumerate(ranges):
        try:
            ipaddress.ip_network(text.strip(), strict=False)
            valid = "/" in text
        except ValueError:
            valid = False
        if not valid:
            detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield FieldError(f"spec.LoadBalancerSourceRanges[{index}]", "Invalid", text, detail)
    if is_load_balancer and "loadBalancerClass" in spec:
        name = spec["loadBalancerClass"]
        yield from (FieldError("spec.loadBalancerClass", "Invalid", name, problem) for problem in qualified_name(name))


def _validate_external_traffic(spec: JsonObject) -> Iterator[FieldError]:
    policy, path = spec.get("externalTrafficPolicy"), "spec.externalTrafficPolicy"
    if is_externally_accessible(spec):
        if policy not in ("Cluster", "Local"):
            yield unsupported(path, policy, ["Cluster", "Local"])
    elif policy:
        yield FieldError(path, "Invalid", policy, "may only be set for externally-accessible services")
    port = spec.get("healthCheckNodePort")
    if not port:
        return
    if needs_health_check(spec):
        yield from port_number("spec.healthCheckNodePort", port)
    else:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield FieldError("spec.healthCheckNodePort", "Invalid", port, detail)


def validate_service_update(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that a service keeps its addresses and families, which clients know it by."""
    if EXTERNAL_NAME in (spec["type"], old["type"]):
        return
    if not (is_headless(spec) and is_headless(old)):
        yield from _validate_kept(spec, old, "clusterIPs", "clusterIP")
    if not ((is_headless(spec) and not spec.get("selector")) or (is_headless(old) and not old.get("selector"))):
        yield from _validate_kept(spec, old, "ipFamilies", "ipFamily")
    if spec["type"] == old["type"] == LOAD_BALANCER and spec.get("loadBalancerClass") != old.get("loadBalancerClass"):
        yield FieldError("spec.loadBalancerClass", "Invalid", spec.get("loadBalancerClass"), _SET_ONCE)


def _validate_kept(spec: JsonObject, old: JsonObject, field: str, singular: str) -> Iterator[FieldError]:
    new, before = spec.get(field) or [], old.get(field) or []
    if before and not new:
        yield FieldError(f"spec.{field}[0]", "Invalid", new, f"primary {singular} can not be unset")
    for index, (left, right) in enumerate(zip(new, before, strict=False)):
        if left != right and (index == 0 or len(new) == len(before)):
            yield FieldError(f"spec.{field}[{index}]", "Invalid", new, _SET_ONCE)


def validate_load_balancer_status(status: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    """Check the addresses that a load balancer reports."""
    path = "status.loadBalancer.ingress"
    points = (status.get("loadBalancer") or {}).get("ingress") or ()
    if points and spec["type"] != LOAD_BALANCER:
        yield FieldError(path, "Forbidden", detail="may only be used when `spec.type` is LoadBalancer")
        return
    for index, point in enumerate(points):
        here = f"{path}[{index}]"
        address, name, mode = point.get("ip"), point.get("hostname"), point.get("ipMode")
        if address:
            yield from valid_address(f"{here}.ip", address)
        elif mode is not None:
            yield FieldError(f"{here}.ipMode", "Forbidden", detail="may not be specified when `ip` is not set")
        if mode is not None and mode not in ("Proxy", "VIP"):
            yield unsupported(f"{here}.ipMode", mode, ["Proxy", "VIP"])
        if name:
            yield from (FieldError(f"{here}.hostname", "Invalid", name, problem) for problem in dns_subdomain(name))
            if parse_address(name) is not None:
                yield FieldError(f"{here}.hostname", "Invalid", name, "must be a DNS name, not an IP address")
