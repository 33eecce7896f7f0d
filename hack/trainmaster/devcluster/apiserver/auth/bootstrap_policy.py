"""Bootstrap policy: the roles and bindings that every cluster has from the start.

The roles for people (admin, edit, view) cover the kinds that the embedded cluster serves; like the real ones they take
in every ClusterRole that is labelled to be aggregated into them.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.auth.user import AUTHENTICATED, MASTERS
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLES
from trainmaster.runtime.jsontree import JsonObject

_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-{}"


def _rule(verbs: list[str], groups: list[str], *resources: str) -> JsonObject:
    return {"verbs": verbs, "apiGroups": groups, "resources": list(resources)}


def _paths(*paths: str) -> JsonObject:
    return {"verbs": ["get"], "nonResourceURLs": list(paths)}


_VIEWED = [
    _rule(
        _READ,
        [""],
        *("configmaps", "events", "limitranges", "namespaces", "persistentvolumeclaims"),
        *("pods", "pods/log", "pods/status", "serviceaccounts", "services"),
    ),
    _rule(_READ, ["batch"], "jobs", "jobs/status"),
]
_EDITED = [
    _rule([*_READ, *_WRITE], [""], "secrets"),
    _rule(_WRITE, [""], "configmaps", "events", "persistentvolumeclaims", "pods", "serviceaccounts", "services"),
    _rule(["create"], [""], "serviceaccounts/token"),
    _rule(["impersonate"], [""], "serviceaccounts"),
    _rule(_WRITE, ["batch"], "jobs"),
    _rule([*_READ, *_WRITE], ["coordination.k8s.io"], "leases"),
]
_ADMINISTERED = [
    _rule([*_READ, *_WRITE], [ROLES.group], "roles", "rolebindings"),
    _rule(["create"], ["authorization.k8s.io"], "localsubjectaccessreviews"),
]
_DISCOVERY = _paths(
    *("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"),
    *("/healthz", "/livez", "/readyz", "/version", "/version/"),
)

_OWN: dict[str, list[JsonObject]] = {
    "cluster-admin": [_rule(["*"], ["*"], "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "system:basic-user": [
        _rule(["create"], ["authorization.k8s.io"], "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _rule(["create"], ["authentication.k8s.io"], "selfsubjectreviews"),
    ],
    "system:discovery": [_DISCOVERY],
    "system:service-account-issuer-discovery": [_paths("/.well-known/openid-configuration", "/openid/v1/jwks")],
    "system:auth-delegator": [
        _rule(["create"], ["authentication.k8s.io"], "tokenreviews"),
        _rule(["create"], ["authorization.k8s.io"], "subjectaccessreviews"),
    ],
}
_AGGREGATED = {"admin": _ADMINISTERED, "edit": _EDITED, "view": _VIEWED}
_BINDINGS = {
    "cluster-admin": MASTERS,
    "system:basic-user": AUTHENTICATED,
    "system:discovery": AUTHENTICATED,
    "system:service-account-issuer-discovery": "system:serviceaccounts",
}


async def ensure_bootstrap_policy(api: Api) -> None:
    """Create the roles and bindings that are missing; what somebody changed stays as it is."""
    for role in _roles():
        await _create(api, "ClusterRole", role)
    for name, group in _BINDINGS.items():
        subject = {"kind": "Group", "apiGroup": ROLES.group, "name": group}
        reference = {"kind": "ClusterRole", "apiGroup": ROLES.group, "name": name}
        body = {"metadata": {"name": name, "labels": _LABELS}, "subjects": [subject], "roleRef": reference}
        await _create(api, "ClusterRoleBinding", body)


def _roles() -> list[JsonObject]:
    roles: list[JsonObject] = [
        {"metadata": {"name": name, "labels": _LABELS}, "rules": rules} for name, rules in _OWN.items()
    ]
    larger = ""
    for name, rules in _AGGREGATED.items():
        part_of = {_AGGREGATE.format(name): "true"}
        # Each is also taken into the next larger one, with everything that is aggregated into it.
        labels = _LABELS | ({_AGGREGATE.format(larger): "true"} if larger else {})
        whole = {"metadata": {"name": name, "labels": labels}}
        roles.append(whole | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": part_of}]}})
        roles.append({"metadata": {"name": f"system:aggregate-to-{name}", "labels": _LABELS | part_of}, "rules": rules})
        larger = name
    return roles


async def _create(api: Api, kind: str, body: dict[str, Any]) -> None:
    resource = CLUSTER_ROLES if kind == "ClusterRole" else CLUSTER_ROLE_BINDINGS
    try:
        await api.create(resource, {"apiVersion": f"{ROLES.group}/v1", "kind": kind, **body})
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
