"""RBAC: what the roles and bindings that are stored in the cluster allow.

Guarantees:
- it follows the objects as they are at the moment of the request: a binding counts with the next request;
- nothing but a rule allows something, except that the group system:masters may do everything;
- a role that aggregates others has their rules without anyone writing them into it.

Not enforced: that whoever writes roles and bindings holds the rights that these give away (`escalate` and `bind`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.devcluster.apiserver.auth.authorizer import (
    EVERYTHING,
    MASTERS,
    Attributes,
    Decision,
    User,
    make_username,
)
from trainmaster.devcluster.apiserver.errors import quote
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    GroupResource,
)
from trainmaster.devcluster.apiserver.selectors import label_selector_from_object
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class _Grant:
    """The rules that a binding gives to a user."""

    rules: Sequence[JsonObject]
    reason: str


class RbacAuthorizer:
    """Decides by the roles and bindings in the store."""

    def __init__(self, api: Api) -> None:
        self._store = api.store

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        """Decide about one request."""
        if MASTERS in user.groups:
            return Decision(True)
        problems: list[str] = []
        for grant in self._grants(user, attributes.namespace, problems):
            if any(_allows(rule, attributes) for rule in grant.rules):
                return Decision(True, f"RBAC: allowed by {grant.reason}")
        if not problems:
            return Decision(False)
        listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        return Decision(False, f"RBAC: {listed}")

    def rules_for(self, user: User, namespace: str) -> Sequence[JsonObject]:
        """Return the rules that hold for a user in a namespace."""
        if MASTERS in user.groups:
            return EVERYTHING
        return [rule for grant in self._grants(user, namespace, []) for rule in grant.rules]

    def _grants(self, user: User, namespace: str, problems: list[str]) -> Iterator[_Grant]:
        yield from self._bindings(CLUSTER_ROLE_BINDINGS, "", user, problems)
        if namespace:
            yield from self._bindings(ROLE_BINDINGS, namespace, user, problems)

    def _bindings(self, resource: GroupResource, namespace: str, user: User, problems: list[str]) -> Iterator[_Grant]:
        for record in self._store.list(resource, namespace or None):
            binding = record.object
            subject = next((each for each in binding.get("subjects") or () if _is(user, each, namespace)), None)
            if subject is None:
                continue
            role, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
            rules = self._rules_of(role, name, namespace)
            if rules is None:
                problems.append(f"{role.lower()}.{ROLES.group} {quote(name)} not found")
                continue
            bound = binding["metadata"]["name"] + (f"/{namespace}" if namespace else "")
            kind = "RoleBinding" if namespace else "ClusterRoleBinding"
            yield _Grant(rules, f"{kind} {quote(bound)} of {role} {quote(name)} to {_described(subject)}")

    def _rules_of(
        self, kind: str, name: str, namespace: str, *, within: frozenset[str] = frozenset()
    ) -> Sequence[JsonObject] | None:
        """Return the rules of a role; `within` are the roles that aggregate it, which may aggregate each other."""
        key = ObjectKey(ROLES, namespace, name) if kind == "Role" else ObjectKey(CLUSTER_ROLES, "", name)
        record = self._store.get(key)
        if record is None:
            return None
        rules: list[JsonObject] = list(record.object.get("rules") or ())
        if selectors := (record.object.get("aggregationRule") or {}).get("clusterRoleSelectors"):
            within |= {name}
            for other in self._store.list(CLUSTER_ROLES):
                member = other.metadata["name"]
                if member not in within and any(_selects(each, other.metadata) for each in selectors):
                    rules += self._rules_of("ClusterRole", member, "", within=within) or ()
        return rules


def _is(user: User, subject: JsonObject, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            return user.name == make_username(subject.get("namespace") or namespace, subject["name"])
    return False


def _described(subject: JsonObject) -> str:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"{name}/{subject.get('namespace', '')}"
    return f"{subject['kind']} {quote(name)}"


def _selects(selector: JsonObject, metadata: JsonObject) -> bool:
    try:
        return label_selector_from_object(selector).matches(metadata.get("labels"))
    except ValueError:
        return False  # a selector that is not valid selects nothing, so it gives no rights away


def _allows(rule: JsonObject, wanted: Attributes) -> bool:
    if not _has(rule, "verbs", wanted.verb):
        return False
    if wanted.path:
        return any(_covers_path(each, wanted.path) for each in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _has(rule, "apiGroups", wanted.group)
        and any(_covers_resource(each, wanted) for each in rule.get("resources") or ())
        and (not names or wanted.name in names)
    )


def _has(rule: JsonObject, field: str, value: str) -> bool:
    values: Any = rule.get(field) or ()
    return "*" in values or value in values


def _covers_resource(pattern: str, wanted: Attributes) -> bool:
    return pattern in ("*", wanted.full_resource) or (bool(wanted.subresource) and pattern == f"*/{wanted.subresource}")


def _covers_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == path
