"""Resources, answers and errors as the client reads them."""

from typing import Any

import orjson
import pytest

from trainmaster.controller.kube.rest import errors
from trainmaster.controller.kube.rest.errors import InvalidName, from_response, from_status
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, LEASES, NAMESPACES, PODS, SECRETS, Resource
from trainmaster.controller.policyrule import PolicyRule


def status(code: int, reason: str = "", message: str = "", **details: object) -> bytes:
    body: dict[str, object] = {"kind": "Status", "code": code, "reason": reason, "message": message}
    if details:
        body["details"] = details
    return orjson.dumps(body)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotSupported),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (418, "", errors.ApiError),
    ],
)
def test_each_situation_has_its_class(code: int, reason: str, kind: type[errors.ApiError]) -> None:
    error = from_response(code, {}, status(code, reason, "why"))
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "why")
    assert isinstance(error, errors.KubeError)


def test_http_status_wins_over_the_body() -> None:
    assert type(from_response(503, {}, status(404, "NotFound"))) is errors.ServerError


def test_page_of_a_proxy_is_cut() -> None:
    error = from_response(502, {}, b"<html>" + b"x" * 100_000)
    assert type(error) is errors.ServerError
    assert len(str(error)) < 1200
    assert "more characters" in str(error)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"kind":"Status","details":7,"message":null}', b"\xff\xfe"])
def test_odd_bodies_do_not_matter(body: bytes) -> None:
    error = from_response(500, {}, body)
    assert type(error) is errors.ServerError
    assert error.causes == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Fri, 31 Dec 2027 23:59:59 GMT", None), ("-1", None), ("nan", None), ("inf", None)],
)
def test_retry_after(header: str, seconds: float | None) -> None:
    assert from_response(429, {"Retry-After": header}, b"").retry_after == seconds


def test_retry_after_may_come_in_the_details() -> None:
    assert from_response(429, {}, status(429, retryAfterSeconds=3)).retry_after == 3


def test_version_from_the_future_is_recognised() -> None:
    """R-12: by its cause, or by the text of older servers."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert from_response(504, {}, status(504, "Timeout", causes=causes)).resource_version_too_large
    assert from_response(504, {}, status(504, "Timeout", "Too large resource version: 9")).resource_version_too_large
    assert not from_response(504, {}, status(504, "Timeout", "slow")).resource_version_too_large


def test_causes_are_kept() -> None:
    causes = [{"field": "spec.x", "message": "bad"}, "odd"]
    assert from_response(422, {}, status(422, "Invalid", causes=causes)).causes == [causes[0]]


@pytest.mark.parametrize(
    "resource",
    [PODS, EVENTS, LEASES, Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)],
)
def test_a_kind_of_kubernetes_itself_takes_a_cluster_that_serves_it(resource: Resource) -> None:
    """Nobody can install a definition of it."""
    assert resource.remedy == "use a cluster that does"


@pytest.mark.parametrize("name", ["a/b", "..", ".", "../secrets/b", "a%2Fb", "/"])
@pytest.mark.parametrize("where", ["namespace", "name"])
def test_a_name_that_leads_to_another_path_is_refused(name: str, where: str) -> None:
    segments = {"namespace": "ns", "name": "a"} | {where: name}
    with pytest.raises(InvalidName, match=r'422 Invalid: invalid (namespace|ConfigMap name) ".*": may not'):
        CONFIGMAPS.path(**segments)


@pytest.mark.parametrize(
    ("name", "written"),
    [("a?watch=1", "a%3Fwatch%3D1"), ("a#b", "a%23b"), ("ä b", "%C3%A4%20b"), ("a..b:c", "a..b%3Ac")],
)
def test_what_a_path_cannot_hold_is_escaped(name: str, written: str) -> None:
    assert CONFIGMAPS.path("ns", name) == f"/api/v1/namespaces/ns/configmaps/{written}"
    assert PODS.path("ns", name, "log") == f"/api/v1/namespaces/ns/pods/{written}/log"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verbs": ()}, "the verbs of a rule are some of get, list"),
        ({"verbs": ("list", "get")}, "in this order"),
        ({"verbs": ("read",)}, "the verbs of a rule are some of get, list"),
        ({"verbs": ("get", "create"), "names": ("one",)}, "never allows create"),
        ({"resource": NAMESPACES, "namespace": "one"}, "belong to no namespace"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    given = {"resource": SECRETS, "verbs": ("get",), "needed_by": "me", "reason": "to know", **fields}
    with pytest.raises(ValueError, match=message):
        PolicyRule(**given)


def test_a_subresource_is_a_part_of_what_rules_name() -> None:
    rule = PolicyRule(resource=SECRETS, verbs=("get",), needed_by="me", reason="to know", subresource="status")
    assert rule.full_resource == "secrets/status"


def test_texts_of_a_server_can_be_printed() -> None:
    """A half of a surrogate pair cannot be encoded."""
    assert str(from_status({"reason": "a\ud800", "message": "b\ud800"}, status=409)) == "409 a?: b?"


def test_a_long_reason_is_cut() -> None:
    assert len(str(from_response(409, {}, status(409, "x" * 10_000)))) < 300
