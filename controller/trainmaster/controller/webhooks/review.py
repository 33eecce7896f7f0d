"""The codec of AdmissionReviews: requests are decoded, responses encoded. Pure.

Guarantees:
- H-2: the response has the request's uid, API version and kind; a denial is a response like any other.
- H-3: a mutation is a JSON Patch; there is none when nothing changed.
- H-8: warnings are short, and not too many.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
_VERSIONS: Final = (API_VERSION, "admission.k8s.io/v1beta1")

LONGEST_WARNING: Final = 256
LONGEST_WARNINGS: Final = 4096


class InvalidReview(Exception):
    """A body is no AdmissionReview.

    Attributes:
        uid: That of the request as far as it could be read.
        code: The status of the response.
    """

    def __init__(self, message: str, *, uid: str = "", code: int = 400) -> None:
        super().__init__(message)
        self.uid = uid
        self.code = code


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What an API server wants to know."""

    uid: str
    operation: str
    object: JsonObject | None
    old_object: JsonObject | None
    """The stored object, when it is an update or a deletion."""

    api_version: str = API_VERSION
    size: int = 0
    """Bytes of the whole review."""

    namespace: str = ""
    """That of the object; empty if it has none."""


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """What it is told; `code`, `reason` and `message` count for denials."""

    allowed: bool
    message: str = ""
    code: int = 403
    reason: str = "Forbidden"
    warnings: Sequence[str] = ()
    patch: Sequence[JsonObject] = ()
    retry_after: int = 0
    """Seconds after which a denied request may be tried again; 0: it would be denied again."""


ALLOWED: Final = AdmissionResponse(allowed=True)


def errored(code: int, message: str) -> AdmissionResponse:
    """A response to a request that could not be judged."""
    return AdmissionResponse(allowed=False, message=message, code=code, reason="")


def overloaded(retry_after: int) -> AdmissionResponse:
    """A response to a request that there was no time to judge; clients of the API server try again by themselves."""
    message = f"the webhook has too much to do; try again in {retry_after} s"
    return AdmissionResponse(
        allowed=False, message=message, code=429, reason="TooManyRequests", retry_after=retry_after
    )


def decode_request(body: bytes) -> AdmissionRequest:
    """Read the request of an AdmissionReview.

    Raises:
        InvalidReview: The body is none.
    """
    try:
        review = load_json(body)
    except JsonError as error:
        raise InvalidReview(f"the request body is no JSON that can be read: {error}") from error
    review = review if isinstance(review, dict) else {}
    request = review.get("request")
    uid = request.get("uid") if isinstance(request, dict) else None
    uid = uid if isinstance(uid, str) else ""
    version, kind = review.get("apiVersion"), review.get("kind")
    if version not in _VERSIONS or kind != KIND:
        raise InvalidReview(f"the request body is no {KIND} of {' or '.join(_VERSIONS)}", uid=uid)
    if not isinstance(request, dict):
        raise InvalidReview("the AdmissionReview has no request", uid=uid)
    if not uid:
        raise InvalidReview("the request of the AdmissionReview has no uid")
    operation = request.get("operation")
    if not isinstance(operation, str):
        raise InvalidReview("the request of the AdmissionReview has no operation", uid=uid)
    objects = {}
    for field in ("object", "oldObject"):
        objects[field] = request.get(field)
        if objects[field] is not None and not isinstance(objects[field], dict):
            raise InvalidReview(f"the {field} of the AdmissionReview is no object", uid=uid)
    namespace = request.get("namespace")
    return AdmissionRequest(
        uid,
        operation,
        objects["object"],
        objects["oldObject"],
        version,
        len(body),
        namespace if isinstance(namespace, str) else "",
    )


def encode_response(admission: AdmissionResponse, *, uid: str = "", api_version: str = API_VERSION) -> bytes:
    """Write the AdmissionReview that answers a request."""
    response: JsonObject = {"uid": uid, "allowed": admission.allowed}
    if admission.allowed:
        response["status"] = {"code": 200}
    else:
        status = {"code": admission.code, "reason": admission.reason, "message": admission.message}
        response["status"] = {key: value for key, value in status.items() if value}
        if admission.retry_after:
            response["status"]["details"] = {"retryAfterSeconds": admission.retry_after}
    if admission.patch:
        response["patch"] = base64.b64encode(orjson.dumps(list(admission.patch))).decode()
        response["patchType"] = "JSONPatch"
    warnings = limit_warnings(admission.warnings)
    if warnings:
        response["warnings"] = warnings
    return orjson.dumps({"apiVersion": api_version, "kind": KIND, "response": response})


def limit_warnings(warnings: Sequence[str]) -> list[str]:
    """Shorten warnings, and leave out those that are too many; the API server would cut them anywhere."""
    kept: list[str] = []
    left = LONGEST_WARNINGS
    for warning in dict.fromkeys(" ".join(warning.split()) for warning in warnings):
        text = warning if len(warning) <= LONGEST_WARNING else f"{warning[: LONGEST_WARNING - 3]}..."
        left -= len(text.encode())
        if left < 0:
            break
        kept.append(text)
    return kept


def create_patch(old: Any, new: Any, path: str = "") -> Iterator[JsonObject]:
    """Write the JSON Patch that turns one JSON tree into another; lists that differ in length are replaced."""
    if old == new and type(old) is type(new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() - new.keys():
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in new.items():
            below = f"{path}/{_escaped(key)}"
            if key in old:
                yield from create_patch(old[key], value, below)
            else:
                yield {"op": "add", "path": below, "value": value}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from create_patch(before, after, f"{path}/{position}")
    else:
        yield {"op": "replace", "path": path, "value": new}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
