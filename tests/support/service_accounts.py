"""What service accounts of the namespace default may do."""

from __future__ import annotations

from typing import Final

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"
RBAC: Final = {
    kind: Resource(_GROUP, "v1", kind, f"{kind.lower()}s", namespaced=not kind.startswith("Cluster"))
    for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
}
CLUSTER_ROLES: Final = RBAC["ClusterRole"]
_LIST_TRAINJOBS: Final = {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["list"]}


async def bind(client: KubeClient, account: str, role: str, *, namespace: str = "") -> None:
    """Give an account a ClusterRole that there is, in one namespace or everywhere."""
    resource = RBAC["RoleBinding" if namespace else "ClusterRoleBinding"]
    binding: JsonObject = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": role},
        "roleRef": {"apiGroup": _GROUP, "kind": CLUSTER_ROLES.kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    }
    await client.create(resource, binding, namespace=namespace or None)


async def allow(client: KubeClient, account: str, *rules: JsonObject, role: str = "", namespace: str = "") -> None:
    """Give an account a ClusterRole with these rules, by default of its own name, in one namespace or everywhere."""
    name = role or account
    made = {"apiVersion": CLUSTER_ROLES.api_version, "kind": CLUSTER_ROLES.kind, "metadata": {"name": name}}
    await client.create(CLUSTER_ROLES, {**made, "rules": list(rules)})
    await bind(client, account, name, namespace=namespace)


async def allow_url(client: KubeClient, account: str, path: str) -> None:
    """Let an account read a path of the manager."""
    await allow(client, account, {"nonResourceURLs": [path], "verbs": ["get"]}, role=f"{account}-url")


async def allow_listing(client: KubeClient, account: str, *, namespace: str = "") -> None:
    """Let an account list TrainJobs, in one namespace or everywhere."""
    await allow(client, account, _LIST_TRAINJOBS, role=f"{account}-list", namespace=namespace)
