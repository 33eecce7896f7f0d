"""Installations of Trainmaster in one cluster, and what service accounts may do."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from support.processes import account_token
from support.stack import QUIET

from trainmaster.controller.configuration import Configuration, LeaderElection
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig, Token
from trainmaster.controller.kube.rest.errors import AlreadyExists
from trainmaster.controller.kube.rest.resources import NAMESPACES, Resource
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import roles
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True)
class Installation:
    """A manager's namespace, account and configuration."""

    home: str
    access: RestConfig
    configuration: Configuration
    objects: Sequence[JsonObject]
    """Its roles and their bindings."""


async def create_namespace(client: KubeClient, name: str) -> None:
    """Create a namespace, unless there is one."""
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def grant(client: KubeClient, objects: Iterable[JsonObject]) -> None:
    """Create roles and their bindings."""
    for obj in objects:
        await client.apply(RBAC[obj["kind"]], obj, field_manager="tests")


async def install(
    client: KubeClient, access: RestConfig, home: str, *, watch_namespaces: Sequence[str] = (), **more: Any
) -> Installation:
    """Create namespace and account of an installation that elects a leader; its roles are yet to be granted."""
    election = LeaderElection(leader_elect=True, resource_namespace=home, retry_period="200ms")
    configuration = QUIET.model_copy(
        update={"watch_namespaces": list(watch_namespaces), "leader_election": election, **more}
    )
    await create_namespace(client, home)
    token = Token(await account_token(client, home, namespace=home))
    rules = policy_rules(
        configuration,
        features=(),
        watches=Framework(load_plugins()).watches(),
        job_kinds=job_kinds(configuration),
        namespace=home,
    )
    objects = roles(rules, namespace=home, service_account=home, watch_namespaces=watch_namespaces)
    return Installation(home, replace(access, credentials=token, namespace=home), configuration, objects)


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
