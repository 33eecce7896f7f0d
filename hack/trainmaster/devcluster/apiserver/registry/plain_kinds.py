"""Kinds that are stored and shown: judged by their schema alone, but for a few rules that are told here.

Nothing in the cluster works by Endpoints, HorizontalPodAutoscalers, LimitRanges, NetworkPolicies, PodDisruptionBudgets,
ResourceQuotas and the kinds of dynamic resource allocation: whoever writes them, and whoever reads them, finds what a
real server would show.
"""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import path_segment

_NOTHING: Final = dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0)


class _SpecStrategy(Strategy):
    """Kinds that always have a spec, and a status that begins with some values."""

    status: ClassVar[Mapping[str, Any] | None] = None

    def default(self, obj: JsonObject) -> None:
        """Give every object a spec."""
        obj.setdefault("spec", {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start with the status of a new object."""
        if self.status is not None:
            obj["status"] = dict(self.status)

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what a status update must not change."""
        super().prepare_for_status_update(obj, old)
        if self.status:
            obj["status"] = {**self.status, **(obj.get("status") or {})}


class NodeStrategy(_SpecStrategy):
    """Nodes may bring their status along when they register."""


class ServiceAccountStrategy(Strategy):
    """ServiceAccounts: plain, but for the answer to their deletion."""

    return_deleted_object = True


class ResourceQuotaStrategy(_SpecStrategy):
    """ResourceQuotas: nothing counts, so nothing is refused for them."""

    allow_create_on_update = True
    status: ClassVar[Mapping[str, Any] | None] = {}


class LimitRangeStrategy(Strategy):
    """LimitRanges: nothing is limited."""

    allow_create_on_update = True


class PodDisruptionBudgetStrategy(_SpecStrategy):
    """PodDisruptionBudgets: nothing counts, and evictions do not ask for them."""

    has_generation = True
    status: ClassVar[Mapping[str, Any] | None] = _NOTHING


class LeaseStrategy(Strategy):
    """Leases: positive durations; writers must know the version that they replace."""

    allow_unconditional_update = False
    allow_create_on_update = True
    required_by_schema = False

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Drop what coordinated leader election would read, which is off by default in a real server, too."""
        for field in ("strategy", "preferredHolder"):
            (obj.get("spec") or {}).pop(field, None)

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Drop the same as from a new lease."""
        self.prepare_for_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check durations."""
        spec = obj.get("spec") or {}
        return [
            FieldError(f"spec.{field}", "Invalid", spec[field], f"must be greater than {text}")
            for field, least, text in (("leaseDurationSeconds", 1, "0"), ("leaseTransitions", 0, "or equal to 0"))
            if spec.get(field) is not None and spec[field] < least
        ]


class RoleStrategy(Strategy):
    """Roles and bindings of both scopes: who is bound may change, to which role may not."""

    allow_create_on_update = True

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of these kinds."""
        return path_segment(name)

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to point a binding at another role."""
        reference = obj.get("roleRef")
        if reference == old.get("roleRef"):
            return []
        return [FieldError("roleRef", "Invalid", reference, "cannot change roleRef")]


class HorizontalPodAutoscalerStrategy(_SpecStrategy):
    """HorizontalPodAutoscalers; the server counts no generations of them."""

    status: ClassVar[Mapping[str, Any] | None] = {"currentMetrics": [], "desiredReplicas": 0}

    def default(self, obj: JsonObject) -> None:
        """Fill in the smallest number of pods, and the metric."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _default_protocols(ports: Iterable[JsonObject] | None) -> None:
    for port in ports or ():
        port["protocol"] = port.get("protocol") or "TCP"


class NetworkPolicyStrategy(Strategy):
    """NetworkPolicies; the pods of one host share its network, so nothing enforces them."""

    has_generation = True

    def default(self, obj: JsonObject) -> None:
        """Fill in the types, and the protocols of ports."""
        spec = obj.setdefault("spec", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
            _default_protocols(rule.get("ports"))


class EndpointsStrategy(Strategy):
    """Endpoints."""

    def default(self, obj: JsonObject) -> None:
        """Fill in what ports leave open."""
        for subset in obj.get("subsets") or ():
            _default_protocols(subset.get("ports"))


class EndpointSliceStrategy(Strategy):
    """EndpointSlices; the type of their addresses is fixed."""

    has_generation = True

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether anything but the metadata changed."""
        return any(obj.get(field) != old.get(field) for field in ("endpoints", "ports", "addressType"))

    def default(self, obj: JsonObject) -> None:
        """Fill in what ports leave open."""
        obj["endpoints"] = obj.get("endpoints") or []
        obj["ports"] = obj.get("ports") or []
        _default_protocols(obj["ports"])
        for port in obj["ports"]:
            port.setdefault("name", "")
        for endpoint in obj["endpoints"]:
            endpoint.setdefault("conditions", {})

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another type of addresses."""
        kind = obj.get("addressType")
        return [] if kind == old.get("addressType") else [immutable("addressType", kind)]


class _DeviceStrategy(_SpecStrategy):
    """DeviceClasses and ResourceSlices."""

    has_generation = True


class ResourceClaimStrategy(_SpecStrategy):
    """ResourceClaims: what they ask for is fixed."""

    status: ClassVar[Mapping[str, Any] | None] = {}

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another request."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]


class ResourceClaimTemplateStrategy(ResourceClaimStrategy):
    """ResourceClaimTemplates: claims yet to be made."""

    status = None


def plain_kinds() -> list[Kind]:
    """Return the kinds as the API serves them."""
    devices, roles, role = "resource.k8s.io", "rbac.authorization.k8s.io", RoleStrategy()
    return [
        builtin_kind(
            "",
            "Node",
            "nodes",
            strategy=NodeStrategy(),
            namespaced=False,
            short_names=("no",),
            subresources=("status",),
            columns=printers.NODES,
            field_labels=field_labels("spec.unschedulable"),
        ),
        builtin_kind(
            "",
            "ServiceAccount",
            "serviceaccounts",
            strategy=ServiceAccountStrategy(),
            short_names=("sa",),
            subresources=("token",),
        ),
        builtin_kind(
            "",
            "ResourceQuota",
            "resourcequotas",
            strategy=ResourceQuotaStrategy(),
            short_names=("quota",),
            subresources=("status",),
        ),
        builtin_kind("", "LimitRange", "limitranges", strategy=LimitRangeStrategy(), short_names=("limits",)),
        builtin_kind(
            "",
            "Endpoints",
            "endpoints",
            strategy=EndpointsStrategy(),
            short_names=("ep",),
        ),
        builtin_kind(
            "autoscaling",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            strategy=HorizontalPodAutoscalerStrategy(),
            short_names=("hpa",),
            categories=("all",),
            subresources=("status",),
        ),
        builtin_kind(
            "coordination.k8s.io",
            "Lease",
            "leases",
            strategy=LeaseStrategy(),
            columns=printers.LEASES,
        ),
        builtin_kind(
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            strategy=EndpointSliceStrategy(),
            columns=printers.ENDPOINT_SLICES,
        ),
        builtin_kind(
            "networking.k8s.io",
            "NetworkPolicy",
            "networkpolicies",
            strategy=NetworkPolicyStrategy(),
            short_names=("netpol",),
            columns=printers.NETWORK_POLICIES,
        ),
        builtin_kind(
            "policy",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            strategy=PodDisruptionBudgetStrategy(),
            short_names=("pdb",),
            subresources=("status",),
            columns=printers.POD_DISRUPTION_BUDGETS,
        ),
        builtin_kind(
            devices,
            "ResourceClaim",
            "resourceclaims",
            strategy=ResourceClaimStrategy(),
            subresources=("status",),
            columns=printers.RESOURCE_CLAIMS,
        ),
        builtin_kind(
            devices, "ResourceClaimTemplate", "resourceclaimtemplates", strategy=ResourceClaimTemplateStrategy()
        ),
        builtin_kind(devices, "DeviceClass", "deviceclasses", strategy=_DeviceStrategy(), namespaced=False),
        builtin_kind(
            devices,
            "ResourceSlice",
            "resourceslices",
            strategy=_DeviceStrategy(),
            namespaced=False,
            field_labels=field_labels("spec.driver", "spec.nodeName"),
        ),
        builtin_kind(
            "node.k8s.io",
            "RuntimeClass",
            "runtimeclasses",
            strategy=Strategy(),
            namespaced=False,
            columns=printers.RUNTIME_CLASSES,
        ),
        builtin_kind(roles, "Role", "roles", strategy=role),
        builtin_kind(roles, "RoleBinding", "rolebindings", strategy=role),
        builtin_kind(roles, "ClusterRole", "clusterroles", strategy=role, namespaced=False),
        builtin_kind(roles, "ClusterRoleBinding", "clusterrolebindings", strategy=role, namespaced=False),
    ]
