"""Roles: what is granted where, and no more than what was declared."""

from __future__ import annotations

import itertools
from typing import Any

from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, NAMESPACES, SECRETS, Resource
from trainmaster.controller.manager.roles import LABELS, merged, roles


def rule(resource: Resource, *verbs: str, **fields: Any) -> PolicyRule:
    return PolicyRule(resource=resource, verbs=verbs, needed_by="somebody", reason="something", **fields)


def granted(role: dict[str, Any]) -> list[tuple[str, list[str], list[str], list[str]]]:
    return [
        (each["apiGroups"][0], each["resources"], each.get("resourceNames", []), each["verbs"])
        for each in role["rules"]
    ]


def test_what_concerns_one_namespace_is_granted_there_and_bound_to_the_account_whose_name_it_has() -> None:
    """With watched namespaces only what has no namespace is granted everywhere; our own may be one of them."""
    cert = rule(SECRETS, "get", names=("cert",), namespace="ours")
    everywhere, bound, here, binding = roles(
        [cert, rule(CONFIGMAPS, "list", "watch")], namespace="ours", service_account="me"
    )
    assert [each["kind"] for each in (everywhere, bound)] == ["ClusterRole", "ClusterRoleBinding"]
    assert granted(everywhere) == [("", ["configmaps"], [], ["list", "watch"])]
    assert granted(here) == [("", ["secrets"], ["cert"], ["get"])]
    assert here["metadata"] == binding["metadata"] == {"name": "me", "namespace": "ours", "labels": LABELS}
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "me"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "me", "namespace": "ours"}]
    wanted = [rule(NAMESPACES, "get"), rule(CONFIGMAPS, "list", "watch"), rule(LEASES, "create", namespace="ours")]
    made = roles(wanted, namespace="ours", watch_namespaces=("team", "ours"))
    by_place = {each["metadata"].get("namespace"): granted(each) for each in made if "rules" in each}
    assert by_place == {
        None: [("", ["namespaces"], [], ["get"])],
        "ours": [("", ["configmaps"], [], ["list", "watch"]), ("coordination.k8s.io", ["leases"], [], ["create"])],
        "team": [("", ["configmaps"], [], ["list", "watch"])],
    }


def test_rights_of_another_role_stand_in_one_of_its_own_name_for_the_same_account() -> None:
    """Whoever leaves that role out takes no right from the other, though both need some of the same."""
    wanted = [rule(CONFIGMAPS, "list"), rule(CONFIGMAPS, "list", "watch", role="jobs")]
    made = {each["metadata"]["name"]: each for each in roles(wanted, namespace="ours", service_account="me")[::2]}
    assert {name: granted(each) for name, each in made.items()} == {
        "me": [("", ["configmaps"], [], ["list"])],
        "me-jobs": [("", ["configmaps"], [], ["list", "watch"])],
    }
    bindings = roles(wanted, namespace="ours", service_account="me")[1::2]
    assert [each["roleRef"]["name"] for each in bindings] == ["me", "me-jobs"]
    assert [each["subjects"][0]["name"] for each in bindings] == ["me", "me"]


def test_rights_are_merged_whatever_order_they_come_in() -> None:
    wanted = [
        rule(SECRETS, "list", "watch"),
        rule(SECRETS, "get", "create"),
        rule(CONFIGMAPS, "get", "list", "watch", "create"),
        rule(CONFIGMAPS, "patch", subresource="status"),
        rule(SECRETS, "get", "update", names=("cert",)),
    ]
    expected = [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": [""], "resources": ["configmaps/status"], "verbs": ["patch"]},
        # What may be done to all Secrets need not be said of one.
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["cert"], "verbs": ["update"]},
    ]
    for order in itertools.permutations(wanted):
        assert merged(order) == expected
