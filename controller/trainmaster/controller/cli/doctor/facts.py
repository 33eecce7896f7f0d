"""Facts: what a cluster says about itself and about what is installed in it, fetched once and with few requests; and
what checks find in them.

Guarantees:
- Nothing is written. Reviews of access are requests that create nothing.
- What may not be read, or is not served, is an unknown of its own; the rest is fetched all the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from trainmaster.controller.certificates.webhook_names import MUTATING, VALIDATING
from trainmaster.controller.cli.crds import definition_files
from trainmaster.controller.cli.probes import (
    DEFINITIONS,
    DEPLOYMENTS,
    JOBSET_DEPLOYMENTS,
    MANAGER_LABELS,
    SERVICE_ACCOUNTS,
    TRAINING_OPERATOR_LABELS,
    each_once,
)
from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    NOT_KUBERNETES,
    Forbidden,
    KubeError,
    MalformedResponse,
    NotFound,
    Unauthorized,
    describe_body,
    from_response,
)
from trainmaster.controller.kube.rest.resources import (
    ACCESS_REVIEWS,
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    SECRETS,
    SERVICES,
    Resource,
)
from trainmaster.controller.manager.roles import NAME, scopes_of
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

T = TypeVar("T")

Status = Literal["ok", "warn", "fail", "unknown"]
"""`fail`: an installation does not work, would not, or would harm; `warn`: somebody should look."""

_RBAC: Final = "rbac.authorization.k8s.io"
_BINDINGS: Final = (
    Resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Resource(_RBAC, "v1", "RoleBinding", "rolebindings", namespaced=True),
)
_SELF_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

JOBSETS: Final = "jobsets.jobset.x-k8s.io"
COSCHEDULING: Final = "podgroups.scheduling.x-k8s.io"
VOLCANO: Final = "podgroups.scheduling.volcano.sh"
KUEUE: Final = "workloads.kueue.x-k8s.io"
OTHERS: Final = (JOBSETS, COSCHEDULING, VOLCANO, KUEUE)
"""Definitions of others that matter."""

CONFIG_MAP: Final = "kubeflow-trainer-config"
"""As the original's manifests call it, and our Deployments the volume of it."""

GO_IMAGE: Final = re.compile(r"(?:^|[/ ])kubeflow/trainer/trainer-controller-manager(?::v?(\d+)\.(\d+))?")
"""The image of the Go manager."""

_TRAINING_OPERATOR_DEPLOYMENTS: Final = ("training-operator",)
"""As the manifests of the Training Operator V1 call it."""

_SHOWN: Final = 5
AGAIN: Final = "apply our manifests again, or upgrade the release of our chart"
_ASK: Final = "ask somebody who may, or for that right"

Review = tuple[str, str, str, str, str, str]
"""Verb, group, resource, subresource, namespace (empty: all, or none) and name (empty: any)."""


class Finding(NamedTuple):
    """One line of the report."""

    status: Status
    message: str
    what_next: str = ""
    """What to do about it."""


class Unknown(Exception):
    """A fact that could not be fetched; the text says why and what to do."""

    def __init__(self, message: str, what_next: str) -> None:
        super().__init__(message)
        self.what_next = what_next


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """Something that the cluster said, or why it did not."""

    known: T | Unknown

    @property
    def value(self) -> T:
        """What it said.

        Raises:
            Unknown: It did not.
        """
        if isinstance(self.known, Unknown):
            raise self.known
        return self.known


def ok(message: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", message)


def warn(message: str, what_next: str = "") -> Finding:
    """Somebody should look."""
    return Finding("warn", message, what_next)


def unknown(message: str, what_next: str) -> Finding:
    """It is not known whether all is well."""
    return Finding("unknown", message, what_next)


def fail(message: str, what_next: str) -> Finding:
    """An installation does not work, would not, or would harm."""
    return Finding("fail", message, what_next)


def some(texts: Sequence[str], *, separator: str = ", ") -> str:
    """Return the first of some texts, and how many more there are."""
    more = f"{separator.rstrip(', ')} and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return separator.join(texts[:_SHOWN]) + more


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be installed, and where."""

    namespace: str
    configuration: Configuration
    rules: Sequence[PolicyRule]
    """The rights that the manager needs."""

    now: datetime


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cluster said."""

    target: Target
    version: Fact[str]
    definitions: Mapping[str, Fact[JsonObject | None]]
    """CustomResourceDefinitions by name, ours and `OTHERS`."""

    namespace: Fact[JsonObject | None]
    managers: Fact[list[JsonObject]]
    """Deployments of Trainer's managers, Go's and ours, in all namespaces."""

    installed: Fact[JsonObject | None]
    """The Deployment of our manager in the namespace, if it is there."""

    training_operators: Fact[list[JsonObject]]
    """Deployments of the Training Operator V1, in all namespaces."""

    jobset_controllers: Fact[list[JsonObject]]
    leases: Fact[list[JsonObject]]
    webhooks: Fact[list[JsonObject]]
    """All webhook configurations of the cluster."""

    service: Fact[JsonObject | None]
    """By which the webhooks are called."""

    secret: Fact[JsonObject | None]
    config_map: Fact[JsonObject | None]
    """That which holds the configuration of the manager that is installed."""

    may_install: Mapping[Review, Fact[bool]]
    service_account: Fact[JsonObject | None]
    manager_may: Mapping[Review, Fact[bool]]
    """What its service account may do, if there is one."""

    bindings: Mapping[str, Fact[JsonObject | None]]
    """The bindings of its roles by kind, if they have the name of our manifests or of our chart."""

    @property
    def deployment(self) -> JsonObject | None:
        """The Deployment of our manager in the namespace, as far as is known."""
        return self.installed.known if isinstance(self.installed.known, dict) else None


async def fetch_version(client: KubeClient) -> Fact[str]:
    """Ask for the version of Kubernetes, as the first question of all.

    Raises:
        KubeError: The cluster does not answer, or not to us, or it is none.
    """
    request = f"GET {client.config.server}/version"
    status, headers, body = await client.raw("GET", "/version")
    if status == 403:
        return Fact(Unknown("may not get /version", _ASK))
    if status >= 300:
        raise from_response(status, headers, body, request=request, source=client.config.source)
    try:
        return Fact(str(load_json(body)["gitVersion"]))
    except (JsonError, KeyError, TypeError) as error:
        raise MalformedResponse(f"{request}: {describe_body(body, wanted='a version')}; {NOT_KUBERNETES}") from error


async def fetch_installed(
    client: KubeClient, namespace: str
) -> tuple[Fact[list[JsonObject]], Fact[JsonObject | None], Fact[JsonObject | None]]:
    """Find all managers, our Deployment in a namespace, and the ConfigMap of its configuration."""
    managers = await find_managers(client)
    installed: Fact[JsonObject | None]
    name = CONFIG_MAP
    if isinstance(managers.known, Unknown):
        installed = Fact(managers.known)
    else:
        ours = [
            each
            for each in managers.known
            if each["metadata"]["namespace"] == namespace and not GO_IMAGE.search(images_of(each))
        ]
        ours.sort(key=lambda each: each["metadata"]["name"] != NAME)
        installed = Fact(ours[0] if ours else None)
        for volume in pod_spec(ours[0]).get("volumes") or [] if ours else ():
            if volume["name"] == CONFIG_MAP:
                name = (volume.get("configMap") or {}).get("name") or name
    return managers, installed, await _get(client, CONFIGMAPS, namespace, name)


def pod_spec(deployment: JsonObject) -> JsonObject:
    """Return what a Deployment says of its pods."""
    spec: JsonObject = deployment["spec"]["template"]["spec"]
    return spec


def images_of(deployment: JsonObject) -> str:
    """Return the images of a Deployment."""
    return ", ".join(str(each.get("image", "")) for each in pod_spec(deployment).get("containers") or [])


async def collect(
    client: KubeClient,
    version: Fact[str],
    target: Target,
    *,
    managers: Fact[list[JsonObject]],
    installed: Fact[JsonObject | None],
    config_map: Fact[JsonObject | None],
) -> Facts:
    """Fetch everything else."""
    namespace, configuration = target.namespace, target.configuration
    deployment = installed.known if isinstance(installed.known, dict) else None
    account_name = str(pod_spec(deployment).get("serviceAccountName") or NAME) if deployment else NAME
    names = [*definition_files(), *OTHERS]
    election = configuration.leader_election
    definitions, reviews, found_namespace, service, secret, account = await asyncio.gather(
        asyncio.gather(*(_get(client, DEFINITIONS, None, name) for name in names)),
        _reviews(client, _SELF_REVIEWS, installing(namespace)),
        _get(client, NAMESPACES, None, namespace),
        _get(client, SERVICES, namespace, configuration.cert_management.webhook_service_name),
        _get(client, SECRETS, namespace, configuration.cert_management.webhook_secret_name),
        _get(client, SERVICE_ACCOUNTS, namespace, account_name),
    )
    bindings = await asyncio.gather(
        *(_get(client, each, namespace if each.namespaced else None, account_name) for each in _BINDINGS)
    )
    training_operators, jobset, leases, webhooks = await asyncio.gather(
        _deployments(client, TRAINING_OPERATOR_LABELS, _TRAINING_OPERATOR_DEPLOYMENTS),
        _deployments(client, "", JOBSET_DEPLOYMENTS),
        _list(client, LEASES, field_selector=f"metadata.name={election.resource_name}"),
        _webhooks(client),
    )
    user = f"system:serviceaccount:{namespace}:{account_name}" if isinstance(account.known, dict) else ""
    manager_may = (
        await _reviews(client, ACCESS_REVIEWS, needed(target.rules, configuration.watch_namespaces), user=user)
        if user
        else {}
    )
    return Facts(
        target=target,
        version=version,
        definitions=dict(zip(names, definitions, strict=True)),
        namespace=found_namespace,
        managers=managers,
        installed=installed,
        training_operators=training_operators,
        jobset_controllers=jobset,
        leases=leases,
        webhooks=webhooks,
        service=service,
        secret=secret,
        config_map=config_map,
        may_install=reviews,
        service_account=account,
        manager_may=manager_may,
        bindings={kind.kind: found for kind, found in zip(_BINDINGS, bindings, strict=True)},
    )


async def find_managers(client: KubeClient) -> Fact[list[JsonObject]]:
    """Find the Deployments of Trainer's managers, Go's and ours, in all namespaces."""
    return await _deployments(client, MANAGER_LABELS, (NAME,))


def installing(namespace: str) -> list[Review]:
    """Return the rights that `kubectl apply` of the manifests needs."""
    wide = [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        (_RBAC, "clusterroles"),
        (_RBAC, "clusterrolebindings"),
        (MUTATING.group, MUTATING.plural),
        (VALIDATING.group, VALIDATING.plural),
    ]
    within = [
        ("apps", "deployments"),
        ("", "services"),
        ("", "serviceaccounts"),
        ("", "configmaps"),
        ("", "secrets"),
        ("policy", "poddisruptionbudgets"),
        (_RBAC, "roles"),
        (_RBAC, "rolebindings"),
    ]
    escalating = [
        ("escalate", _RBAC, kind, "", where, "") for kind, where in (("clusterroles", ""), ("roles", namespace))
    ]
    scoped = [(*each, "") for each in wide] + [(*each, namespace) for each in within]
    return escalating + [
        (verb, group, resource, "", where, "")
        for group, resource, where in scoped
        for verb in ("get", "create", "patch")
    ]


def needed(rules: Iterable[PolicyRule], watch_namespaces: Sequence[str]) -> list[Review]:
    """Return what policy rules ask for, one verb on one object in one scope at a time."""
    return list(
        dict.fromkeys(
            (verb, rule.resource.group, rule.resource.plural, rule.subresource, scope, name)
            for rule in rules
            for scope in scopes_of(rule, watch_namespaces)
            for verb in rule.verbs
            for name in rule.names or ("",)
        )
    )


async def attempt(request: Awaitable[T], what: str) -> Fact[T]:
    """Await an answer; `what` is what was asked for, as the end of "may not"."""
    try:
        return Fact(await request)
    except Forbidden:
        return Fact(Unknown(f"may not {what}", _ASK))
    except Unauthorized:
        raise  # it holds for every request
    except KubeError as error:
        return Fact(Unknown(f"{what}: {error}", "try again"))


async def _get(client: KubeClient, resource: Resource, namespace: str | None, name: str) -> Fact[JsonObject | None]:
    async def get() -> JsonObject | None:
        try:
            return await client.get(resource, namespace, name)
        except NotFound:
            return None

    where = f" in namespace {namespace}" if namespace else ""
    return await attempt(get(), f"get {resource.name} {name}{where}")


async def _list(client: KubeClient, resource: Resource, **selectors: Any) -> Fact[list[JsonObject]]:
    async def fetch() -> list[JsonObject]:
        try:
            return list((await client.list(resource, **selectors))["items"])
        except NotFound:  # the cluster does not serve it, so there is none
            return []

    return await attempt(fetch(), f"list {resource.name}" + (" in all namespaces" if resource.namespaced else ""))


async def _deployments(client: KubeClient, labels: str, names: Iterable[str]) -> Fact[list[JsonObject]]:
    """Find Deployments by labels or by name; whoever installed them may have changed either."""
    lists = await asyncio.gather(
        *(_list(client, DEPLOYMENTS, field_selector=f"metadata.name={name}") for name in names),
        *([_list(client, DEPLOYMENTS, label_selector=labels)] if labels else []),
    )
    return _joined(lists)


async def _webhooks(client: KubeClient) -> Fact[list[JsonObject]]:
    mutating, validating = await asyncio.gather(_list(client, MUTATING), _list(client, VALIDATING))
    return _joined([mutating, validating])


def _joined(lists: Iterable[Fact[list[JsonObject]]]) -> Fact[list[JsonObject]]:
    """Put lists together, each object once."""
    known = []
    for each in lists:
        if isinstance(each.known, Unknown):
            return each
        known.append(each.known)
    return Fact(each_once(known))


async def _reviews(
    client: KubeClient, resource: Resource, reviews: Iterable[Review], *, user: str = ""
) -> dict[Review, Fact[bool]]:
    """Ask the API server for each right whether we, or another user, have it."""

    async def review(wanted: Review) -> bool:
        verb, group, plural, subresource, namespace, name = wanted
        attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace, "name": name}
        spec: JsonObject = {"resourceAttributes": {**attributes, "subresource": subresource}}
        if user:
            *_, in_namespace, _ = user.split(":")
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{in_namespace}", "system:authenticated"]
            spec |= {"user": user, "groups": groups}
        answer = await client.create(
            resource, {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        )
        return bool(answer["status"]["allowed"])

    wanted = list(reviews)
    if not wanted:
        return {}
    what = f"create {resource.name}"
    first = await attempt(review(wanted[0]), what)
    if isinstance(first.known, Unknown):  # nor any other
        return dict.fromkeys(wanted, first)
    rest = await asyncio.gather(*(attempt(review(each), what) for each in wanted[1:]))
    return dict(zip(wanted, [first, *rest], strict=True))
