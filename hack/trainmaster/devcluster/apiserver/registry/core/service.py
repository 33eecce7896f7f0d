"""Services."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label_1035

_SERVICE_NETWORK = "10.96."


class ServiceStrategy(Strategy):
    """Services: the defaults of a cluster with one address family; addresses are given out and never reached."""

    return_deleted_object = True

    def validate_name(self, name: str) -> list[str]:
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

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Give out an address that follows from the UID."""
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP"):
            number = int(obj["metadata"]["uid"].replace("-", "")[:4], 16) % 65000
            spec["clusterIP"] = f"{_SERVICE_NETWORK}{number // 250 % 250}.{number % 250 + 1}"
        spec["clusterIPs"] = [spec["clusterIP"]]

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
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


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Service",
        "services",
        strategy=ServiceStrategy(),
        short_names=("svc",),
        categories=("all",),
        columns=printers.SERVICES,
        field_labels=field_labels("spec.clusterIP", "spec.type"),
    )
