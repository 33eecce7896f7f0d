"""Bootstrap: what every API server has from the start: admission plugins, namespaces, priority classes, roles.

- The admission plugins are registered in the order in which a real API server runs them.
- The namespaces are those that every cluster has, and those in which Kubeflow expects to live.
- The roles for people (admin, edit, view) cover the kinds that the embedded cluster serves; like the real ones they
  take in every ClusterRole that is labelled to be aggregated into them.
- A restarted cluster keeps what it has; what somebody changed stays as it is.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.plugins import (
    podsecurity,
    priority,
    runtimeclass,
    storageobjectinuseprotection,
    workload,
)
from trainmaster.devcluster.apiserver.auth.authorizer import AUTHENTICATED, MASTERS
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.priorityclass import SYSTEM_PRIORITIES
from trainmaster.devcluster.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    ROLES,
    WORKLOAD_POD_GROUPS,
    GroupResource,
)
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
        *("configmaps", "endpoints", "events", "limitranges", "namespaces", "persistentvolumeclaims"),
        *("pods", "pods/log", "pods/status", "resourcequotas", "resourcequotas/status", "serviceaccounts", "services"),
    ),
    _rule(_READ, ["batch"], "jobs", "jobs/status"),
    _rule(_READ, ["autoscaling"], "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    _rule(
        _READ,
        ["apps"],
        *("deployments", "deployments/scale", "deployments/status"),
        *("replicasets", "replicasets/scale", "replicasets/status"),
    ),
    _rule(_READ, ["discovery.k8s.io"], "endpointslices"),
    _rule(_READ, ["networking.k8s.io"], "networkpolicies"),
    _rule(_READ, ["policy"], "poddisruptionbudgets", "poddisruptionbudgets/status"),
]
_EDITED = [
    _rule([*_READ, *_WRITE], [""], "secrets"),
    _rule(_WRITE, [""], "configmaps", "events", "persistentvolumeclaims", "pods", "serviceaccounts", "services"),
    _rule(["create"], [""], "serviceaccounts/token", "pods/eviction"),
    _rule([*_READ, *_WRITE], [""], "pods/exec", "pods/proxy", "services/proxy"),
    _rule(["impersonate"], [""], "serviceaccounts"),
    _rule(_WRITE, ["batch"], "jobs"),
    _rule(_WRITE, ["autoscaling"], "horizontalpodautoscalers"),
    _rule(_WRITE, ["apps"], "deployments", "deployments/scale", "replicasets", "replicasets/scale"),
    _rule(_WRITE, ["networking.k8s.io"], "networkpolicies"),
    _rule(_WRITE, ["policy"], "poddisruptionbudgets"),
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
        await _create_missing(api, CLUSTER_ROLES, {**_type_meta("ClusterRole"), **role})
    for name, group in _BINDINGS.items():
        subject = {"kind": "Group", "apiGroup": ROLES.group, "name": group}
        reference = {"kind": "ClusterRole", "apiGroup": ROLES.group, "name": name}
        body = {"metadata": {"name": name, "labels": _LABELS}, "subjects": [subject], "roleRef": reference}
        await _create_missing(api, CLUSTER_ROLE_BINDINGS, {**_type_meta("ClusterRoleBinding"), **body})


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


SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "kubeflow-system", "kubeflow")


async def create_system_namespaces(api: Api) -> None:
    """Create the namespaces that are missing; a restarted cluster keeps what it has."""
    for name in SYSTEM_NAMESPACES:
        await _create_missing(api, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def add_system_priority_classes(api: Api) -> None:
    """Create the two classes that every cluster has, where they are missing."""
    texts = {
        "system-cluster-critical": "Used for system critical pods that must run in the cluster, "
        "but can be moved to another node if necessary.",
        "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
    }
    for name, value in SYSTEM_PRIORITIES.items():
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": texts[name],
        }
        await _create_missing(api, PRIORITY_CLASSES, body)


def register_plugins(api: Api) -> None:
    """Register the admission plugins, in the order in which a real API server runs them."""
    if api.registry.serves(WORKLOAD_POD_GROUPS):
        api.add_admission(JOBS, workload.job_admission(api))
        api.add_admission(WORKLOAD_POD_GROUPS, workload.pod_group_admission(api))
        api.add_admission(WORKLOAD_POD_GROUPS, priority.pod_group_admission(api))
    else:
        for resource in (DEPLOYMENTS, JOBS, PODS, REPLICA_SETS):
            api.add_admission(resource, workload.drop_scheduling_groups)
    api.add_admission(PODS, priority.pod_admission(api))
    api.add_admission(PODS, runtimeclass.pod_admission(api))
    api.add_admission(PODS, podsecurity.pod_admission(api))
    api.add_admission(PERSISTENT_VOLUME_CLAIMS, storageobjectinuseprotection.claim_admission())
    api.add_admission(PRIORITY_CLASSES, priority.class_admission(api))


def _type_meta(kind: str) -> JsonObject:
    return {"apiVersion": f"{ROLES.group}/v1", "kind": kind}


async def _create_missing(api: Api, resource: GroupResource, body: JsonObject) -> None:
    try:
        api.get(resource, None, body["metadata"]["name"])
    except StatusError as error:
        if error.reason != "NotFound":
            raise
        await api.create(resource, body)
