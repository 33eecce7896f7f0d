"""Strategies of the small built-in kinds."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.names import dns_label, dns_label_1035, path_segment
from trainmaster.devcluster.apiserver.registry.strategies.base import Strategy, immutable, restore, unsupported
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.runtime.jsontree import JsonObject

NAME_LABEL = "kubernetes.io/metadata.name"
_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
_SERVICE_NETWORK = "10.96."


class NamespaceStrategy(Strategy):
    """Namespaces are held by `spec.finalizers` until their content is gone."""

    def check_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return dns_label(name)

    def default(self, obj: JsonObject) -> None:
        """Give the namespace the label by which webhooks and policies select it."""
        name = obj["metadata"].get("name")
        if name:
            labels = obj["metadata"].setdefault("labels", {})
            labels[NAME_LABEL] = name

    def prepare_create(self, obj: JsonObject) -> None:
        """Start as active, held by the controller that empties namespaces."""
        self.default(obj)
        spec = obj.setdefault("spec", {})
        spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), "kubernetes"]))
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the finalizers of the spec: only /finalize writes them."""
        restore(obj, old, "spec")

    def check_delete(self, obj: JsonObject) -> None:
        """Protect the namespaces that every cluster needs."""
        name = obj["metadata"]["name"]
        if name in _PROTECTED_NAMESPACES:
            raise errors.forbidden("this namespace may not be deleted", resource=NAMESPACES, name=name)

    def mark_deleted(self, obj: JsonObject) -> None:
        """Show the phase that clients wait for."""
        obj.setdefault("status", {})["phase"] = "Terminating"

    def is_held(self, obj: JsonObject) -> bool:
        """Return whether content may be left."""
        return bool((obj.get("spec") or {}).get("finalizers"))


class ServiceAccountStrategy(Strategy):
    """ServiceAccounts: plain, but for the answer to their deletion."""

    returns_deleted = True


class ServiceStrategy(Strategy):
    """Services: the defaults of a cluster with one address family; addresses are given out and never reached."""

    returns_deleted = True

    def check_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return dns_label_1035(name)

    def default(self, obj: JsonObject) -> None:
        """Fill in type, affinity and ports."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if "port" in port:
                port.setdefault("targetPort", port["port"])
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_create(self, obj: JsonObject) -> None:
        """Give out an address that follows from the UID."""
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP"):
            number = int(obj["metadata"]["uid"].replace("-", "")[:4], 16) % 65000
            spec["clusterIP"] = f"{_SERVICE_NETWORK}{number // 250 % 250}.{number % 250 + 1}"
        spec["clusterIPs"] = [spec["clusterIP"]]

    def prepare_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the address when it is left out."""
        restore(obj, old, "status")
        for field in ("clusterIP", "clusterIPs"):
            if field in old["spec"]:
                obj["spec"].setdefault(field, old["spec"][field])

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check type and ports."""
        spec = obj["spec"]
        known = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
        problems = [] if spec["type"] in known else [unsupported("spec.type", spec["type"], known)]
        ports = spec.get("ports") or []
        if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
            problems.append(FieldError("spec.ports", "Required"))
        for index, port in enumerate(ports):
            number = port.get("port", 0)
            if not 1 <= number <= 65535:
                detail = "must be between 1 and 65535, inclusive"
                problems.append(FieldError(f"spec.ports[{index}].port", "Invalid", number, detail))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to move a service to another address."""
        address = obj["spec"].get("clusterIP")
        return [] if address == old["spec"].get("clusterIP") else [immutable("spec.clusterIP", address)]


class NodeStrategy(Strategy):
    """Nodes may bring their status along when they register."""

    def default(self, obj: JsonObject) -> None:
        """Give every node a spec."""
        obj.setdefault("spec", {})


class ClaimStrategy(Strategy):
    """PersistentVolumeClaims start as pending; the kubelet binds them to a directory."""

    returns_deleted = True

    def default(self, obj: JsonObject) -> None:
        """Fill in the volume mode."""
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_create(self, obj: JsonObject) -> None:
        """Start as pending."""
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check access modes and size."""
        spec = obj["spec"]
        problems = []
        if not spec.get("accessModes"):
            problems.append(FieldError("spec.accessModes", "Required", detail="at least 1 access mode is required"))
        known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
        problems += [
            unsupported("spec.accessModes", mode, known) for mode in spec.get("accessModes") or () if mode not in known
        ]
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            problems.append(FieldError("spec.resources[storage]", "Required"))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Allow a larger request and nothing else, once the claim is bound to a volume."""
        mutable = ("resources", "volumeName", "volumeAttributesClassName")
        new = {field: value for field, value in obj["spec"].items() if field not in mutable}
        before = {field: value for field, value in old["spec"].items() if field not in mutable}
        moved = old["spec"].get("volumeName") and obj["spec"].get("volumeName") != old["spec"]["volumeName"]
        if new == before and not moved:
            return []
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [FieldError("spec", "Forbidden", detail=detail)]


class LeaseStrategy(Strategy):
    """Leases: one holder, positive durations; writers must know the version that they replace."""

    unconditional_update = False
    creates_on_update = True

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check durations."""
        spec = obj.get("spec") or {}
        problems = []
        if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
            detail = "must be greater than 0"
            problems.append(FieldError("spec.leaseDurationSeconds", "Invalid", spec["leaseDurationSeconds"], detail))
        if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
            detail = "must be greater than or equal to 0"
            problems.append(FieldError("spec.leaseTransitions", "Invalid", spec["leaseTransitions"], detail))
        return problems


class RoleStrategy(Strategy):
    """Roles and bindings; whether they are enforced is up to the server."""

    creates_on_update = True

    def check_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return path_segment(name)

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to point a binding at another role."""
        reference: Any = obj.get("roleRef")
        return (
            []
            if reference == old.get("roleRef")
            else [FieldError("roleRef", "Invalid", reference, "cannot change roleRef")]
        )
