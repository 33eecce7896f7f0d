"""Namespaces."""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import ALL_VERBS, Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label

NAME_LABEL = "kubernetes.io/metadata.name"
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
"""Which pods may be made in a namespace: the plugin `podsecurity` asks for it."""
_LEVELS = ("privileged", "baseline", "restricted")
_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")


class NamespaceStrategy(Strategy):
    """Namespaces are held by `spec.finalizers` until their content is gone."""

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return dns_label(name)

    def default(self, obj: JsonObject) -> None:
        """Give the namespace the label by which webhooks and policies select it."""
        name = obj["metadata"].get("name")
        if name:
            labels = obj["metadata"].setdefault("labels", {})
            labels[NAME_LABEL] = name

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start as active, held by the controller that empties namespaces."""
        self.default(obj)
        spec = obj.setdefault("spec", {})
        spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), "kubernetes"]))
        obj["status"] = {"phase": "Active"}

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the finalizers of the spec: only /finalize writes them."""
        restore(obj, old, "spec")

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the level of pod security."""
        level = (obj["metadata"].get("labels") or {}).get(ENFORCE_LABEL, _LEVELS[0])
        text = f"must be one of {', '.join(_LEVELS)}"
        return [] if level in _LEVELS else [FieldError(f"metadata.labels[{ENFORCE_LABEL}]", "Invalid", level, text)]

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


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Namespace",
        "namespaces",
        strategy=NamespaceStrategy(),
        namespaced=False,
        # A namespace is deleted by itself: a collection would be the cluster.
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        short_names=("ns",),
        subresources=("status", "finalize"),
        columns=printers.NAMESPACES,
        field_labels=field_labels("status.phase"),
    )
