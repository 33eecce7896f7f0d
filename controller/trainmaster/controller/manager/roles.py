"""Roles: policy rules as objects of `rbac.authorization.k8s.io`, with the bindings that give them to a service account.

Guarantees:
- Least privilege: what concerns one namespace stands in a Role there, what concerns named objects names them, and only
  the rest stands in the ClusterRole. With `watch_namespaces` what concerns TrainJobs stands in Roles of those.
- What only jobs of `kubeflow.org/v1` need stands in roles of a name of their own, which can be left out.
- The same rules give the same objects, whatever order they come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.controller.policyrule import VERBS, PolicyRule
from trainmaster.runtime.jsontree import JsonObject

NAME: Final = "kubeflow-trainer-controller-manager"
"""The name of the service account and of its roles, which is that of the original."""

LABELS: Final = {"app.kubernetes.io/name": "trainer", "app.kubernetes.io/part-of": "kubeflow"}
"""Those of all that our manifests hold: by these an installation is removed."""

_GROUP: Final = "rbac.authorization.k8s.io"

CLUSTER: Final = ""
"""The scope of what the ClusterRole grants; every other scope is a namespace."""


def scopes_of(rule: PolicyRule, watch_namespaces: Sequence[str]) -> Sequence[str]:
    """Return where a right is needed: `CLUSTER`, or some namespaces."""
    if rule.namespace:
        return (rule.namespace,)
    return tuple(watch_namespaces) if rule.resource.namespaced and watch_namespaces else (CLUSTER,)


def roles(
    rules: Iterable[PolicyRule],
    *,
    namespace: str,
    service_account: str = NAME,
    watch_namespaces: Sequence[str] = (),
) -> list[JsonObject]:
    """Return the roles that grant some rights, each with its binding.

    They are called like the service account, followed by `PolicyRule.role` where the rules have one.

    Args:
        watch_namespaces: The namespaces in which TrainJobs are served; none for all.
    """
    granted: dict[tuple[str, str], list[PolicyRule]] = {}
    for rule in rules:
        name = f"{service_account}-{rule.role}" if rule.role else service_account
        for scope in scopes_of(rule, watch_namespaces):
            granted.setdefault((scope, name), []).append(rule)
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    objects: list[JsonObject] = []
    for scope, name in sorted(granted):
        kind = "Role" if scope else "ClusterRole"
        place = {"namespace": scope} if scope else {}
        metadata = {"name": name, **place, "labels": dict(LABELS)}
        head = {"apiVersion": f"{_GROUP}/v1"}
        objects.append({**head, "kind": kind, "metadata": metadata, "rules": merged(granted[scope, name])})
        reference = {"apiGroup": _GROUP, "kind": kind, "name": name}
        binding = {**head, "kind": f"{kind}Binding", "metadata": dict(metadata)}
        objects.append({**binding, "roleRef": reference, "subjects": [dict(subject)]})
    return objects


def merged(rules: Iterable[PolicyRule]) -> list[JsonObject]:
    """Return rules as a role of one scope has them: each right once, and resources with the same verbs together."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for rule in rules:
        verbs.setdefault((rule.resource.group, rule.full_resource, rule.names), set()).update(rule.verbs)
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), wanted in verbs.items():
        # What everybody of the kind may be done to needs no names.
        left = wanted - verbs.get((group, resource, ()), set()) if names else wanted
        if left:
            ordered = tuple(verb for verb in VERBS if verb in left)
            resources.setdefault((group, names, ordered), []).append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": sorted(together),
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(ordered),
        }
        for (group, names, ordered), together in sorted(
            resources.items(), key=lambda item: (item[0][0], sorted(item[1]), item[0][1])
        )
    ]
