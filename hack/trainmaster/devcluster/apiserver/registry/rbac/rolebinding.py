"""RoleBindings and ClusterRoleBindings."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import path_segment


class RoleBindingStrategy(Strategy):
    """Bindings of both scopes: who is bound may change, to which role may not."""

    allow_create_on_update = True

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return path_segment(name)

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to point a binding at another role."""
        reference: Any = obj.get("roleRef")
        if reference == old.get("roleRef"):
            return []
        return [FieldError("roleRef", "Invalid", reference, "cannot change roleRef")]


def kind() -> Kind:
    """Return the kind of RoleBindings as the API serves it."""
    return builtin_kind("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", strategy=RoleBindingStrategy())


def cluster_kind() -> Kind:
    """Return the kind of ClusterRoleBindings as the API serves it."""
    return builtin_kind(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "clusterrolebindings",
        strategy=RoleBindingStrategy(),
        namespaced=False,
    )
