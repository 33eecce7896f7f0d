"""AdmissionReview: the AdmissionRequest that a webhook gets, and the AdmissionResponse that it gives. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook.accessors import Phase
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic.admission_request import AdmissionRequest
from trainmaster.devcluster.apiserver.registry.scale import SCALE
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"


class InvalidResponse(Exception):
    """The response of a webhook breaks the protocol; the message says how, in the words of the API server."""


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """What a webhook decided."""

    allowed: bool
    status: JsonObject
    patch: bytes
    patch_type: str
    warnings: list[str]


def request_object(request: AdmissionRequest, *, kind: Kind) -> JsonObject:
    """Return an AdmissionRequest without its objects, as one for `kind`."""
    return {
        "kind": _kind_of(kind, request.subresource),
        "resource": _resource_of(kind),
        **_part("subResource", request.subresource),
        "requestKind": _kind_of(request.kind, request.subresource),
        "requestResource": _resource_of(request.kind),
        **_part("requestSubResource", request.subresource),
        **_part("name", request.name),
        **_part("namespace", request.namespace),
        "operation": request.operation,
        "userInfo": request.user,
        "dryRun": request.dry_run,
        "options": request.options,
    }


def create_review(
    request: AdmissionRequest, obj: JsonObject | None, old: JsonObject | None, *, kind: Kind, uid: str
) -> bytes:
    """Encode the AdmissionReview of a request whose objects are in the form of `kind`."""
    described = {"uid": uid, **request_object(request, kind=kind), "object": obj, "oldObject": old}
    return orjson.dumps({"kind": _KIND, "apiVersion": _VERSION, "request": described})


def verify_admission_response(body: bytes, *, uid: str, phase: Phase) -> AdmissionResponse:
    """Read the AdmissionReview that a webhook returned for the request `uid`; raises `InvalidResponse`."""
    review = _decoded(body)
    response = review.get("response")
    if not isinstance(response, dict):
        raise InvalidResponse("received invalid webhook response: webhook response was absent")
    if (given := response.get("uid", "")) != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{given}"')
    if (review["apiVersion"], review["kind"]) != (_VERSION, _KIND):
        given = f"{review['apiVersion']}, Kind={review['kind']}"
        raise _invalid(f"expected webhook response of {_VERSION}, Kind={_KIND}, got {given}")
    patch, patch_type = _patch(response, phase)
    warnings = response.get("warnings") or []
    status = response.get("status") or {}
    allowed = response.get("allowed", False)
    if not (isinstance(allowed, bool) and isinstance(warnings, list) and isinstance(status, dict)):
        raise _undecodable("json: cannot unmarshal the response into Go struct field AdmissionReview.response")
    return AdmissionResponse(allowed, status, patch, patch_type, [str(each) for each in warnings])


def rejection(name: str, status: JsonObject, *, warnings: list[str]) -> StatusError:
    """Return the refusal of a request that a webhook did not allow."""
    code = status.get("code")
    if not isinstance(code, int) or code < 400:
        code = 400
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    text = f"admission webhook {errors.quote(name)} denied the request"
    explanation = message or reason
    text = f"{text}: {explanation}" if explanation else f"{text} without explanation"
    details = status.get("details")
    error = StatusError(code, reason, text, details=details if isinstance(details, dict) else None)
    error.warnings = warnings
    return error


def _patch(response: JsonObject, phase: Phase) -> tuple[bytes, str]:
    encoded, patch_type = response.get("patch"), response.get("patchType")
    try:
        patch = base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _undecodable(f"illegal base64 data in response.patch: {error}") from error
    if phase == "validating":
        if patch:
            raise _invalid("validating webhook may not return response.patch")
        if patch_type is not None:
            raise _invalid("validating webhook may not return response.patchType")
        return b"", ""
    if patch and patch_type is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise _invalid('webhook returned invalid response.patchType of ""')
    return patch, patch_type or ""


def _decoded(body: bytes) -> JsonObject:
    try:
        review: Any = load_json(body)
    except JsonError as error:
        raise _undecodable(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(review, dict):
        raise _undecodable("couldn't get version/kind; json parse error: json: cannot unmarshal it into an object")
    for field in ("kind", "apiVersion"):
        if not isinstance(review.get(field), str) or not review[field]:
            shown = body[:200].decode("utf-8", "replace")
            raise _undecodable(f"Object '{field[0].upper()}{field[1:]}' is missing in '{shown}'")
    return review


def _invalid(text: str) -> InvalidResponse:
    return InvalidResponse(f"received invalid webhook response: {text}")


def _undecodable(text: str) -> InvalidResponse:
    return InvalidResponse(f"failed to call webhook: {text}")


def _kind_of(kind: Kind, subresource: str) -> JsonObject:
    if subresource == "scale":
        group, _, version = SCALE["apiVersion"].partition("/")
        return {"group": group, "version": version, "kind": SCALE["kind"]}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource_of(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


def _part(field: str, value: str) -> JsonObject:
    """Return a member that is left out when it is empty."""
    return {field: value} if value else {}
