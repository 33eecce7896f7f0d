"""Roles and ClusterRoles."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.names import path_segment


class RoleStrategy(Strategy):
    """Roles of both scopes."""

    allow_create_on_update = True

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return path_segment(name)


def kind() -> Kind:
    """Return the kind of Roles as the API serves it."""
    return builtin_kind("rbac.authorization.k8s.io", "Role", "roles", strategy=RoleStrategy())


def cluster_kind() -> Kind:
    """Return the kind of ClusterRoles as the API serves it."""
    return builtin_kind(
        "rbac.authorization.k8s.io", "ClusterRole", "clusterroles", strategy=RoleStrategy(), namespaced=False
    )
