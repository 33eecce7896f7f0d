"""Answers of servers and proxies become the right errors."""

from __future__ import annotations

import orjson
import pytest

from trainmaster.controller.kube.rest import errors
from trainmaster.controller.kube.rest.errors import from_response


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
