"""CustomResourceDefinitions: what the server fills in, serves and writes into their status."""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.apiextensions.customresourcedefinition_validation import (
    validate_custom_resource_definition,
)
from trainmaster.devcluster.apiserver.registry.apiextensions.naming import CLEANUP_FINALIZER, accept_names, condition
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.field_errors import immutable
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.devcluster.apiserver.registry.registry import Registry
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject


class CustomResourceDefinitionStrategy(Strategy):
    """CustomResourceDefinitions are established at their creation, and stay until their objects are gone."""

    has_generation = True
    allow_unconditional_update = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def default(self, obj: JsonObject) -> None:
        """Fill in names, the conversion strategy and the flags that go with it."""
        spec = obj.get("spec", {})
        names = spec.get("names", {})
        kind = names.get("kind")
        if kind:
            names.setdefault("singular", kind.lower())
            names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {}).setdefault("strategy", "None")
        # `preserveUnknownFields: false` is what v1 means anyway; the real server does not store it.
        if spec.get("preserveUnknownFields") is False:
            del spec["preserveUnknownFields"]

    def check_create(self, obj: JsonObject) -> None:
        """Refuse what the embedded cluster cannot serve."""
        spec = obj.get("spec", {})
        if sum(bool(each.get("served")) for each in spec.get("versions", ())) > 1:
            raise errors.not_implemented("custom resources with several served versions")
        if spec.get("conversion", {}).get("strategy") == "Webhook":
            raise errors.not_implemented("conversion webhooks")

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Establish the definition at once."""
        obj.pop("status", None)
        if not self.validate(obj):
            obj.update(accept_names(obj, self._registry, now=obj["metadata"]["creationTimestamp"]))

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the status, and refuse what cannot be served."""
        restore(obj, old, "status")
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check names, scope, versions, and that schemas, paths and rules compile."""
        return validate_custom_resource_definition(obj)

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to turn an established definition into another one."""
        new, before = obj["spec"], old["spec"]
        pairs = [("spec.group", new.get("group"), before["group"]), ("spec.scope", new.get("scope"), before["scope"])]
        pairs += [
            (f"spec.names.{field}", new["names"].get(field), before["names"].get(field)) for field in ("kind", "plural")
        ]
        return [immutable(path, value) for path, value, was in pairs if value != was]

    def mark_deleted(self, obj: JsonObject) -> None:
        """Stay until the objects of the kind are gone."""
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
        message = "CustomResource deletion is in progress"
        shown = condition(
            "Terminating", True, "InstanceDeletionInProgress", message, obj["metadata"]["deletionTimestamp"]
        )
        obj.setdefault("status", {}).setdefault("conditions", []).append(shown)


def kind(registry: Registry) -> Kind:
    """Return the kind as the API serves it; the names of a definition are looked up in the registry."""
    return builtin_kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        strategy=CustomResourceDefinitionStrategy(registry),
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=("status",),
        columns=printers.CUSTOM_RESOURCE_DEFINITIONS,
    )
