"""A manager that has the rights of `deploy/rbac` and no other: its account, its roles, a server that enforces them."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import yaml
from support.installations import RBAC
from support.processes import account_token
from support.stack import Stack, api_server

from trainmaster.controller.configuration import Configuration, load_configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.manager.parts import USER_AGENT
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import NAME, roles
from trainmaster.devcluster.apiserver.auth.authorizer import Attributes, User
from trainmaster.devcluster.apiserver.auth.rbac import RbacAuthorizer
from trainmaster.devcluster.apiserver.errors import StatusError, forbidden
from trainmaster.devcluster.apiserver.filters.authorization import record
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.generic.admission_request import (
    AdmissionOperation,
    AdmissionRequest,
    Reshape,
)
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

ROOT = Path(__file__).parents[2]
NAMESPACE = "kubeflow"

KINDS = {**RBAC, "ServiceAccount": Resource("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)}


@dataclass(frozen=True)
class Enforced:
    """A cluster that enforces RBAC, and what a manager with its own rights needs to reach it."""

    stack: Stack
    access: RestConfig
    """As the manager's account."""

    @property
    def client(self) -> KubeClient:
        """A client of the administrator."""
        return self.stack.client

    async def apply(self, objects: Iterable[JsonObject]) -> None:
        """Apply objects as `kubectl apply --server-side` does, with strict validation."""
        for obj in objects:
            metadata = obj["metadata"]
            path = KINDS[obj["kind"]].path(metadata.get("namespace"), metadata["name"])
            code, _, body = await self.client.raw(
                "PATCH",
                path,
                params={"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"},
                body=orjson.dumps(obj),
                content_type="application/apply-patch+yaml",
            )
            assert code in {200, 201}, body


def shipped_objects() -> list[JsonObject]:
    """Return what `deploy/rbac` has."""
    directory = ROOT / "deploy/rbac"
    names = load_yaml((directory / "kustomization.yaml").read_text())["resources"]
    return [load_yaml((directory / name).read_text()) for name in names]


def shipped_configuration(**more: Any) -> Configuration:
    """Return the configuration that is shipped, without servers but those that are asked for."""
    shipped = load_configuration(ROOT / "deploy/base/controller_manager_config.yaml")
    election = shipped.leader_election.model_copy(update={"resource_namespace": NAMESPACE})
    quiet = {
        "leader_election": election,
        "webhook": shipped.webhook.model_copy(update={"enabled": False}),
        "metrics": shipped.metrics.model_copy(update={"bind_address": "0"}),
        "health": shipped.health.model_copy(update={"health_probe_bind_address": "0"}),
    }
    return shipped.model_copy(update=quiet | more)


def roles_for(configuration: Configuration, *, disabled: Iterable[str] = ()) -> list[JsonObject]:
    """Return the roles of a manager with that configuration and the built-in plugins."""
    watches = Framework(load_plugins(disabled=frozenset(disabled))).watches()
    rules = policy_rules(
        configuration, features=(), watches=watches, job_kinds=job_kinds(configuration), namespace=NAMESPACE
    )
    return roles(rules, namespace=NAMESPACE)


@asynccontextmanager
async def enforced(directory: Path) -> AsyncIterator[Enforced]:
    """A cluster with the definitions and the manager's account, which has no rights yet."""
    async with api_server(directory, rbac=True) as stack:
        assert stack.cluster is not None
        api = stack.cluster.api
        api.admit_by(AdmissionChain(OwnerReferencesPermissionEnforcement(api), RoleEscalationCheck(api)))
        kubeconfig = directory / "manager.kubeconfig"
        document: dict[str, Any] = load_yaml((directory / "cluster" / "kubeconfig").read_bytes())
        document["users"][0]["user"] = {"token": await account_token(stack.client, NAME, namespace=NAMESPACE)}
        kubeconfig.write_text(yaml.safe_dump(document))
        kubeconfig.chmod(0o600)
        yield Enforced(stack, await load_config(kubeconfig=str(kubeconfig)))


class AdmissionChain:
    """Several admission plugins that only validate, one after the other."""

    def __init__(self, *plugins: "OwnerReferencesPermissionEnforcement | RoleEscalationCheck") -> None:
        self._plugins = plugins

    def handles(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Look at what any of them looks at."""
        return any(each.handles(kind, operation, subresource) for each in self._plugins)

    async def mutate(self, request: AdmissionRequest, obj: JsonObject, *, reshape: Reshape) -> JsonObject:
        """Change nothing."""
        return obj

    async def validate(self, request: AdmissionRequest, obj: JsonObject | None) -> None:
        """Refuse what any of them refuses."""
        for each in self._plugins:
            if each.handles(request.kind, request.operation, request.subresource):
                await each.validate(request, obj)


class OwnerReferencesPermissionEnforcement:
    """The admission plugin of that name, as far as it is about owners that are not to go before what they own.

    kube-apiserver has it switched off by default; OpenShift has it on.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._authorizer = RbacAuthorizer(api)

    def handles(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Look at whatever is created or changed."""
        return operation != "DELETE" and not subresource

    async def mutate(self, request: AdmissionRequest, obj: JsonObject, *, reshape: Reshape) -> JsonObject:
        """Change nothing."""
        return obj

    async def validate(self, request: AdmissionRequest, obj: JsonObject | None) -> None:
        """Refuse references that block the deletion of an owner on whom the user may set no finalizers."""
        user = User(request.user["username"], tuple(request.user["groups"]))
        before = _blocking(request.old)
        for uid, reference in _blocking(obj).items():
            group, _, version = reference["apiVersion"].rpartition("/")
            kind = next(
                (each for each in self._api.registry.kinds() if (each.group, each.kind) == (group, reference["kind"])),
                None,
            )
            if uid in before or kind is None or kind.version != version:
                continue
            wanted = Attributes(
                verb="update",
                group=group,
                version=version,
                resource=kind.plural,
                subresource="finalizers",
                namespace=request.namespace,
                name=reference["name"],
            )
            if user.name.endswith(f":{NAME}"):
                record(USER_AGENT, wanted)
            if not self._authorizer.authorize(user, wanted).allowed:
                raise _refusal(request)


class RoleEscalationCheck:
    """Who writes a Role holds what it gives away, as kube-apiserver has it; what is held for that is a right in use."""

    def __init__(self, api: Api) -> None:
        self._authorizer = RbacAuthorizer(api)

    def handles(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Look at Roles that are created or changed."""
        return kind.kind == "Role" and operation != "DELETE" and not subresource

    async def mutate(self, request: AdmissionRequest, obj: JsonObject, *, reshape: Reshape) -> JsonObject:
        """Change nothing."""
        return obj

    async def validate(self, request: AdmissionRequest, obj: JsonObject | None) -> None:
        """Refuse a Role that gives away what its author does not have."""
        user = User(request.user["username"], tuple(request.user["groups"]))
        if not user.name.endswith(f":{NAME}"):
            return
        for rule in (obj or {}).get("rules") or ():
            for group, full, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                resource, _, subresource = full.partition("/")
                for name in rule.get("resourceNames") or [""]:
                    wanted = Attributes(
                        verb=verb,
                        group=group,
                        version="v1",
                        resource=resource,
                        subresource=subresource,
                        namespace=request.namespace,
                        name=name,
                    )
                    record(USER_AGENT, wanted)
                    if not self._authorizer.authorize(user, wanted).allowed:
                        raise forbidden(
                            f"user {user.name} is attempting to grant RBAC permissions not currently held: {rule}",
                            resource=request.kind.resource,
                            name=request.name,
                        )


def _blocking(obj: Mapping[str, Any] | None) -> dict[str, JsonObject]:
    references = (obj or {}).get("metadata", {}).get("ownerReferences") or ()
    return {each["uid"]: each for each in references if each.get("blockOwnerDeletion")}


def _refusal(request: AdmissionRequest) -> StatusError:
    return forbidden(
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
        resource=request.kind.resource,
        name=request.name,
    )
