"""Errors of the API: every refusal is a `StatusError`, which knows the Status object that a client receives.

Messages, reasons and details follow the Kubernetes API conventions to the letter, because clients match on them:
`details.kind` holds the plural resource for NotFound, AlreadyExists and Conflict, and the kind for Invalid.
What is wrong with one field is a `FieldError`; those that the rules of several kinds give have functions here.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.field_errors import ERROR_TEXTS, TYPES_WITHOUT_VALUE, ErrorType
from trainmaster.runtime.jsontree import JsonObject


class _Omitted:
    """The type of `OMITTED`."""

    def __repr__(self) -> str:
        return "OMITTED"


OMITTED: Final = _Omitted()
"""Stands for a value that is not worth printing: rules on whole objects and lists leave it out."""


def quote(text: str) -> str:
    """Quote a text the way that Go's %q does for ordinary characters."""
    return orjson.dumps(text).decode()


def _printed(value: Any) -> str:
    """Print a value as it appears in the message of a field error: strings quoted, trees as JSON."""
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field of an object, as apimachinery's `field.Error`."""

    field: str
    type: ErrorType
    value: Any = None
    detail: str = ""

    @property
    def body(self) -> str:
        """The error without the field's path, as it stands in a cause."""
        text = ERROR_TEXTS[self.type]
        if self.type not in TYPES_WITHOUT_VALUE and self.value is not OMITTED:
            text = f"{text}: {_printed(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def cause(self) -> JsonObject:
        """Return the entry for `details.causes` of a Status."""
        reason = self.type if self.type == "InternalError" else f"FieldValue{self.type}"
        return {"reason": reason, "message": self.body, "field": self.field or "<nil>"}

    def __str__(self) -> str:
        return f"{self.field or '<nil>'}: {self.body}"


class StatusError(Exception):
    """A request that the API refused, with everything that goes into the Status object of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.warnings: Sequence[str] = ()
        """What the client should be told besides."""

    def status(self) -> JsonObject:
        """Return the Status object for the client."""
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if details:
            status["details"] = details
        status["code"] = self.code
        return status


def _details(resource: GroupResource, name: str, causes: Sequence[JsonObject] = ()) -> JsonObject:
    """Build `details`; empty members are left out, as the real server does."""
    details: JsonObject = {"name": name, "group": resource.group, "kind": resource.resource, "causes": list(causes)}
    return {key: value for key, value in details.items() if value}


def not_found(resource: GroupResource, name: str) -> StatusError:
    """404: there is no such object."""
    return StatusError(404, "NotFound", f"{resource} {quote(name)} not found", details=_details(resource, name))


def route_not_found() -> StatusError:
    """404: the server serves nothing under this resource or subresource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: GroupResource, name: str) -> StatusError:
    """409: an object of this name exists."""
    return StatusError(
        409, "AlreadyExists", f"{resource} {quote(name)} already exists", details=_details(resource, name)
    )


def conflict(resource: GroupResource, name: str, text: str, *, causes: Sequence[JsonObject] = ()) -> StatusError:
    """409: the write contradicts the state of the object."""
    message = f"Operation cannot be fulfilled on {resource} {quote(name)}: {text}"
    return StatusError(409, "Conflict", message, details=_details(resource, name, causes))


def modified(resource: GroupResource, name: str) -> StatusError:
    """409: the writer has not seen the newest version of the object."""
    text = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, text)


def apply_conflict(message: str, causes: Sequence[JsonObject]) -> StatusError:
    """409: a server-side apply meets fields that other managers own."""
    return StatusError(409, "Conflict", message, details={"causes": list(causes)})


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """422: the object breaks rules. The message says everything once, `details` as often as a validator says it."""
    listed = list(errors)
    texts = list(dict.fromkeys(map(str, listed)))
    aggregate = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: JsonObject = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [error.cause() for error in listed],
    }
    qualified = f"{kind}.{group}" if group else kind
    return StatusError(
        422,
        "Invalid",
        f"{qualified} {quote(name)} is invalid: {aggregate}",
        details={key: value for key, value in details.items() if value},
    )


def unprocessable(text: str) -> StatusError:
    """422: a patch cannot be carried out on the object."""
    return StatusError(422, "Invalid", f"the server rejected our request due to an error in our request: {text}")


def bad_request(message: str) -> StatusError:
    """400: the request makes no sense, whatever the state of the cluster."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: no valid credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    message: str, *, resource: GroupResource | None = None, name: str = "", causes: Sequence[JsonObject] = ()
) -> StatusError:
    """403: understood and refused; with a resource the message is prefixed as the real server does."""
    if resource is None:
        return StatusError(403, "Forbidden", message, details={"causes": list(causes)} if causes else None)
    subject = f"{resource} {quote(name)}" if name else str(resource)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {message}", details=_details(resource, name, causes))


def method_not_allowed(message: str = "the server does not allow this method on the requested resource") -> StatusError:
    """405: the resource exists but not this verb."""
    return StatusError(405, "MethodNotAllowed", message)


def not_acceptable(message: str) -> StatusError:
    """406: none of the accepted media types can be produced."""
    return StatusError(406, "NotAcceptable", message)


def expired(message: str) -> StatusError:
    """410: the resource version is older than the watch history of the server; list again."""
    return StatusError(410, "Expired", message)


def too_large(message: str) -> StatusError:
    """413: the request is bigger than the server is willing to read."""
    return StatusError(413, "RequestEntityTooLarge", message)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """415: the body is in a format that this endpoint does not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)


def internal(message: str) -> StatusError:
    """500: the server failed."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def not_implemented(what: str) -> StatusError:
    """501: a real cluster can do this, the embedded one cannot; `what` names it."""
    return StatusError(
        501, "NotImplemented", f"the embedded cluster does not implement {what}; use a real cluster for it"
    )


def service_unavailable(message: str) -> StatusError:
    """503: what the request is for cannot be reached."""
    return StatusError(503, "ServiceUnavailable", message)


def timeout(message: str, *, causes: Sequence[JsonObject] = (), retry_after: int | None = None) -> StatusError:
    """504: the server could not answer in time."""
    details: JsonObject | None = {"causes": list(causes)} if causes else None
    return StatusError(504, "Timeout", f"Timeout: {message}", details=details, retry_after=retry_after)


def resource_version_too_large(requested: int, current: int) -> StatusError:
    """504: the client knows a later state than this server, for instance after a restart without a journal."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Too large resource version: {requested}, current: {current}"
    return timeout(message, causes=[cause], retry_after=1)


NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The numbers of the errors of a disk that is full, of a quota that is used up, and of a limit for one file."""


def cannot_write(path: str, error: OSError) -> StatusError:
    """507: there is no space left to store a change; 500 if the reason is another one."""
    problem = f"the cluster cannot write {path}: {error.strerror or error}"
    if error.errno in NO_SPACE:
        remedy = "free some space there, and it takes changes again by itself; nothing that it acknowledged is lost"
        return StatusError(507, "InsufficientStorage", f"{problem}; {remedy}")
    return internal(f"{problem}; nothing was changed")


def immutable(path: str, value: Any) -> FieldError:
    """Return the error of a field that may not change."""
    return FieldError(path, "Invalid", value, "field is immutable")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error of a value that is not one of a few."""
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError(path, "NotSupported", value, f"supported values: {listed}")


def too_many(path: str, value: Any, limit: int) -> FieldError:
    """Return the error of a list with more than `limit` items; `value` is what the server shows of it."""
    return FieldError(path, "TooMany", value, f"must have at most {limit} {'item' if limit == 1 else 'items'}")
