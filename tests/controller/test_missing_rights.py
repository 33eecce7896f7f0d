"""Missing rights, and what no log line or error may quote."""

from typing import Any

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.web import listening

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import ApiError, Forbidden, MalformedResponse, excerpt
from trainmaster.controller.kube.rest.request import confidential
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, SECRETS
from trainmaster.controller.kube.rest.watch import decode_event
from trainmaster.controller.missing_rights import MissingRights
from trainmaster.controller.policyrule import READ, PolicyRule
from trainmaster.controller.server.authentication import TOKEN_REVIEWS

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


def test_who_reads_a_refusal_is_told_what_the_right_is_for_and_whom_to_ask() -> None:
    """Owners of jobs get to read it in conditions and events: the words of RBAC are for operators, in the log."""
    error = refusal("create", namespace="team")
    with capture_logs():
        MissingRights(RULES).refused(error)
    assert str(error) == error.message
    assert error.message == (
        'Trainmaster may not create secrets in namespace "team", which it needs to make keys; tell your administrator, '
        "for whom the log of the manager says what to grant"
    )
    unknown = refusal("get", "pods")
    with capture_logs():
        MissingRights(RULES).refused(unknown)
    assert str(unknown).startswith("Trainmaster may not get pods in the whole cluster; tell your administrator")
    other = Forbidden(status=403, reason="Forbidden", message='pods "a" is forbidden: exceeded quota: few')
    MissingRights(RULES).refused(other)
    assert (str(other), other.told) == ('403 Forbidden: pods "a" is forbidden: exceeded quota: few', False)


def test_rights_that_it_cannot_give_away_are_told_once_to_operators_and_not_listed_for_owners() -> None:
    rule = '{APIGroups:[""], Resources:["pods/exec"], Verbs:["create"]}'
    message = (
        'roles.rbac.authorization.k8s.io "demo-launcher" is forbidden: user "system:serviceaccount:kubeflow:manager" '
        f'(groups=["system:serviceaccounts"]) is attempting to grant RBAC permissions not currently held:\n{rule}'
    )
    missing = MissingRights(RULES)
    with capture_logs() as logs:
        for _ in range(2):
            error = Forbidden(status=403, reason="Forbidden", message=message)
            missing.refused(error)
            assert error.told
            assert str(error) == (
                "Trainmaster may not give the pods of a job the rights that they need, because it has not got them "
                "itself; tell your administrator, for whom the log of the manager says what to grant"
            )
    (line,) = logs
    assert (line["log_level"], line["event"]) == ("warning", "rights are missing that are to be given to pods")
    assert rule in line["refusal"]
    assert "trainmaster rbac" in line["hint"]


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
        missing.refused(Forbidden(status=403, message=refused.message))
        missing.accepted(method, path, {}, status)
        missing.refused(Forbidden(status=403, message=refused.message))
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


SECRET = "an-opaque-token-0123"


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    ("path", "body", "values"),
    [
        ("/api/v1/namespaces/team/secrets/a", {"data": {"a": SECRET, "b": f"{SECRET}-longer"}}, 2),
        ("/api/v1/namespaces/team/secrets", {"stringData": {"a": SECRET}, "type": "Opaque-and-long"}, 1),
        ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": SECRET, "audiences": ["somebody"]}}, 1),
        ("/api/v1/namespaces/team/configmaps/a", {"data": {"a": SECRET}}, 0),
        ("/api/v1/namespaces/team/secrets/a", {"data": {"a": "short", "b": 1}}, 0),
        ("/api/v1/namespaces/team/secrets/a", [SECRET], 0),
    ],
)
def test_values_of_secrets_and_tokens_are_confidential(path: str, body: Any, values: int) -> None:
    found = confidential(path, orjson.dumps(body))
    assert len(found) == values
    assert found == sorted(found, key=len, reverse=True)
    assert confidential(path, None) == []
    assert confidential(path, b"no JSON") == []


@pytest.mark.guarantee("M-11")
async def test_a_server_that_quotes_what_it_refuses_does_not_make_it_known() -> None:
    async def quote(request: web.Request) -> web.Response:
        message = f"refused: {(await request.read()).decode()}"
        status = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": message}
        return web.json_response(status, status=422)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", quote)
    metadata = {"name": "key", "namespace": "team"}
    async with (
        listening(app) as port,
        KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="tests") as client,
    ):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": SECRET}}
        with pytest.raises(ApiError, match=r"\[redacted\]") as refused:
            await client.apply(SECRETS, secret, field_manager="tests")
        assert SECRET not in f"{refused.value} {refused.value.message} {refused.value.details}"
        with pytest.raises(ApiError, match=r"\[redacted\]") as refused:
            await client.create(TOKEN_REVIEWS, {"kind": "TokenReview", "spec": {"token": SECRET}})
        assert SECRET not in str(refused.value)
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": SECRET}}
        with pytest.raises(ApiError, match=SECRET):
            await client.create(CONFIGMAPS, other)


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    "frame", [b'{"type":"ADDED","object":{"data":{"k":"hunter2"}', b'{"type":"X","object":{"a":"hunter2"}}']
)
def test_a_broken_frame_of_a_watch_is_not_quoted(frame: bytes) -> None:
    with pytest.raises(MalformedResponse) as broken:
        decode_event(frame)
    assert "hunter2" not in str(broken.value)
    assert f"{{...}}, {len(frame)} bytes" in str(broken.value)


@pytest.mark.guarantee("M-11")
def test_what_is_no_object_is_quoted() -> None:
    assert excerpt(b"  Bad\n Gateway ") == "Bad Gateway"
