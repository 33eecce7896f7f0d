"""Missing rights: told once, with who needs them; and that they were granted."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.kube.rest.missing_rights import MissingRights
from trainmaster.controller.kube.rest.policyrule import READ, PolicyRule
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, SECRETS

RULES = [
    PolicyRule(resource=SECRETS, verbs=("create",), needed_by="mpi", reason="make keys"),
    PolicyRule(resource=SECRETS, verbs=("list", "watch"), needed_by="mpi", reason="keep a cache of them"),
    PolicyRule(resource=SECRETS, verbs=("list", "watch"), needed_by="flux", reason="keep a cache of them"),
]
SECRETS_IN_TEAM = "/api/v1/namespaces/team/secrets"


def refusal(verb: str, resource: str = "secrets", *, group: str = "", namespace: str = "") -> Forbidden:
    """What kube-apiserver says."""
    place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    user = "system:serviceaccount:kubeflow:manager"
    message = (
        f'{resource} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {place}'
    )
    return Forbidden(status=403, reason="Forbidden", message=message)


def told(logs: list[Any]) -> list[tuple[str, ...]]:
    fields = ("event", "verb", "resource", "namespace", "needed_by")
    return [tuple(str(line[field]) for field in fields if field in line) for line in logs]


def test_a_right_is_told_once_with_who_needs_it() -> None:
    missing = MissingRights(RULES)
    with capture_logs() as logs:
        for _ in range(3):
            error = refusal("create", namespace="team")
            missing.refused(error)
            assert error.told
    assert told(logs) == [("a right is missing", "create", "secrets", "team", "mpi")]
    assert logs[0]["log_level"] == "warning"
    assert logs[0]["reason"] == "make keys"
    assert "trainmaster rbac" in logs[0]["hint"]


def test_what_is_missing_everywhere_is_not_told_for_each_namespace() -> None:
    missing = MissingRights(RULES)
    with capture_logs() as logs:
        for number in range(2000):
            missing.refused(refusal("create", namespace=f"team-{number}"))
        missing.refused(refusal("get", namespace="team-0"))
        for number in range(1000):
            missing.accepted("POST", f"/api/v1/namespaces/team-{number}/secrets", {}, 201)
    assert told(logs) == [
        ("a right is missing", "create", "secrets", "team-0", "mpi"),
        ("a right is missing", "get", "secrets", "team-0"),
        ("a right was granted", "create", "secrets"),
    ]


def test_what_a_cache_needs_is_told_as_one() -> None:
    """A cache watches first, lists then, and watches again."""
    missing = MissingRights(RULES)
    with capture_logs() as logs:
        for verb in ("watch", "list", "watch"):
            missing.refused(refusal(verb))
        missing.accepted("GET", "/api/v1/secrets", {"watch": "true"}, 200)
        missing.accepted("GET", "/api/v1/secrets", {}, 200)
    assert told(logs) == [
        ("a right is missing", "watch", "secrets", "flux, mpi"),
        ("a right was granted", "watch", "secrets"),
    ]
    assert missing.of(SECRETS, READ) == []


@pytest.mark.parametrize(
    ("refused", "method", "path", "status", "granted"),
    [
        (refusal("create", namespace="team"), "POST", SECRETS_IN_TEAM, 201, True),
        (refusal("create", namespace="team"), "POST", "/api/v1/namespaces/other/secrets", 201, False),
        (refusal("create", namespace="team"), "PATCH", f"{SECRETS_IN_TEAM}/a", 201, True),
        (refusal("create", namespace="team"), "PATCH", f"{SECRETS_IN_TEAM}/a", 200, False),
        (refusal("get", namespace="team"), "GET", f"{SECRETS_IN_TEAM}/a", 200, True),
        (refusal("get", namespace="team"), "GET", SECRETS_IN_TEAM, 200, False),
        (refusal("update", namespace="team"), "PUT", f"{SECRETS_IN_TEAM}/a", 200, True),
        (refusal("patch", "secrets/status", namespace="team"), "PATCH", f"{SECRETS_IN_TEAM}/a", 200, False),
        (refusal("patch", "secrets/status", namespace="team"), "PATCH", f"{SECRETS_IN_TEAM}/a/status", 200, True),
        (refusal("list", group="acme.io"), "GET", "/apis/acme.io/v1/secrets", 200, True),
        (refusal("list", group="acme.io"), "GET", "/api/v1/secrets", 200, False),
        (refusal("list", group="acme.io"), "GET", "/apis/acme.io", 200, False),
    ],
)
def test_a_request_that_is_allowed_shows_what_was_granted(
    refused: Forbidden, method: str, path: str, status: int, granted: bool
) -> None:
    missing = MissingRights(RULES)
    with capture_logs() as logs:
        missing.refused(refused)
        missing.accepted(method, path, {}, status)
        missing.refused(refused)
    events = [line["event"] for line in logs]
    once = ["a right is missing"]
    assert events == ([*once, "a right was granted", *once] if granted else once)


@pytest.mark.parametrize(
    "message",
    [
        "",
        'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
        'secrets "a" is forbidden: unable to create new content in namespace team because it is being terminated',
        'admission webhook "policy" denied the request: no',
    ],
)
def test_what_else_is_forbidden_is_no_missing_right(message: str) -> None:
    missing = MissingRights(RULES)
    error = Forbidden(status=403, reason="Forbidden", message=message)
    with capture_logs() as logs:
        missing.refused(error)
    assert logs == []
    assert not error.told


def test_the_missing_rights_on_a_resource_in_words() -> None:
    missing = MissingRights([])
    group = LEASES.group
    with capture_logs() as logs:
        missing.refused(refusal("create", "leases", group=group, namespace="ours"))
        missing.refused(refusal("list", "configmaps"))
    assert missing.of(LEASES, ["create", "get"]) == ['create leases.coordination.k8s.io in namespace "ours"']
    assert missing.of(LEASES, ["list"]) == []
    assert missing.of(CONFIGMAPS, READ) == ["list configmaps in the whole cluster"]
    assert "needed_by" not in logs[0], "nobody declared it"
