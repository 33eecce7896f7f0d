"""What can go wrong between us and the API server, each situation under its own name.

Guarantees:
- Every failure of this package's I/O is a `KubeError`: `ApiError` when the server answered, `TransportError` when it
  did not (or not to the end), the rest when its answer is of no use. The one `ApiError` of our own is `InvalidName`.
- Decisions are made on types and fields, never on texts. The exceptions are named: old servers tell a resource version
  from the future by text only (R-12), and all of them which right is missing (`missing_rights`).
- Texts from a server are cut, so that a log line or a condition cannot be flooded; of a page of HTML its title is told.
- M-11: what looks like a credential is taken out of them.
- The text of a refusal is the server's. Where credentials or something that is no API server are the cause, it also
  says which request, whose credentials, and what to do.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final

from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE)
_TEXT_AT_MOST: Final = 1024
_TOO_LARGE_CAUSE: Final = "ResourceVersionTooLarge"
_TOO_LARGE_TEXT: Final = "Too large resource version"


class KubeError(Exception):
    """The base of every error of this package."""


class TransportError(KubeError):
    """No complete answer arrived; whether the server acted is unknown."""


class NotConnected(TransportError):
    """No connection was made, so the server cannot have seen the request."""


class CertificateRejected(NotConnected):
    """The server showed a certificate that we do not accept."""


class RequestTimeout(TransportError):
    """The server did not answer in time."""


class StreamSilent(TransportError):
    """A watch carried nothing for longer than a healthy one does (R-32)."""


class StreamBroken(TransportError):
    """A stream ended in the middle of a frame or by a broken connection."""


class NotLeading(KubeError):
    """A write was held back because this process does not lead, or not for long enough any more."""


class ResponseTooLarge(KubeError):
    """An answer or a watch frame is larger than we are ready to hold in memory."""


class MalformedResponse(KubeError):
    """An answer or a watch frame is not what the API promises."""


class ApiError(KubeError):
    """The API server refused a request."""

    @property
    def advice(self) -> str:
        """What to do about it, where the message of the server does not say."""
        return ""

    def __init__(
        self,
        *,
        status: int,
        reason: str = "",
        message: str = "",
        details: JsonObject | None = None,
        retry_after: float | None = None,
        request: str = "",
        source: str = "",
    ) -> None:
        self.status = status
        self.reason = shorten(reason, limit=200)
        self.message = shorten(message)
        self.details: JsonObject = details or {}
        self.retry_after = retry_after
        self.request = request
        """The method and the URL, without parameters; empty for an error that came within a stream."""
        self.source = source
        """Where the credentials of the request come from; empty if that is not known."""
        title = f"{status} {self.reason}".strip()
        text = f"{title}: {self.message}" if self.message else title
        # An object that is refused is named by the server, in words that may become a condition of that object.
        # Where the fault lies in the way to the server, the way is part of the answer.
        if request and (self.advice or not reason):
            text = f"{text} ({request})"
        super().__init__(f"{text}; {self.advice}" if self.advice else text)

    @property
    def causes(self) -> list[JsonObject]:
        """The `details.causes` of the answer, for instance one for each invalid field."""
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []

    @property
    def resource_version_too_large(self) -> bool:
        """Whether the server has not yet reached the resource version we asked for (R-12)."""
        if any(cause.get("reason") == _TOO_LARGE_CAUSE for cause in self.causes):
            return True
        return self.status in {500, 504} and _TOO_LARGE_TEXT.lower() in self.message.lower()


class BadRequest(ApiError):
    """400: the server does not understand the request."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""

    @property
    def advice(self) -> str:
        """Whose business it is."""
        those = f"those of {self.source}" if self.source else "them in the kubeconfig"
        return f"the credentials are missing, wrong or expired; log in again, or renew {those}"


class Forbidden(ApiError):
    """403: the credentials are good, but not for this."""

    told: bool = False
    """Whether a log says already which right is missing (see `missing_rights`)."""

    def for_owners(self, message: str) -> None:
        """Have it say what owners of jobs get to read; a log has the words of the server."""
        self.told = True
        self.message = message
        self.args = (message,)

    @property
    def advice(self) -> str:
        """Whose business it is; of what admission forbids (quotas, limits, accounts) the message says it."""
        if self.message and " cannot " not in self.message:
            return ""
        return "ask for a role that allows it; `kubectl auth can-i` tells what yours allow"


class NotFound(ApiError):
    """404: no such object, namespace or resource type."""


class MethodNotSupported(ApiError):
    """405: the resource does not have this verb."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or another manager owns a field."""


class AlreadyExists(ApiError):
    """409: an object of this name exists."""


class Gone(ApiError):
    """410: the resource version or the continuation of a list has expired."""


class UnsupportedMediaType(ApiError):
    """415: the server does not know this kind of body."""


class Invalid(ApiError):
    """422: the object breaks the rules of its schema."""


class InvalidName(Invalid):
    """A name that cannot stand in a path, where it would lead to another object: refused before anything is sent."""

    def __init__(self, message: str) -> None:
        super().__init__(status=422, reason="Invalid", message=message)


class TooManyRequests(ApiError):
    """429: the server asks us to slow down."""


class ServerError(ApiError):
    """5xx: the server failed."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotSupported,
    409: Conflict,
    410: Gone,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}


def from_response(
    status: int, headers: Mapping[str, str], body: bytes, *, request: str = "", source: str = ""
) -> ApiError:
    """Make the error that fits an HTTP answer; the body is a `Status` object or, from a proxy, anything at all."""
    retry_after = _seconds(headers.get("Retry-After"))
    try:
        decoded = load_json(body)
    except JsonError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status":
        return from_status(decoded, status=status, retry_after=retry_after, request=request, source=source)
    message = describe_body(body, wanted="a Status")
    if 300 <= status < 400:
        message = f"the server redirects to {shorten(headers.get('Location', 'nowhere'), limit=300)}"
    elif b"HTTP request to an HTTPS server" in body[:200]:
        message += "; change the server address in the kubeconfig to https://"
    return _class_for(status, "")(
        status=status, message=message, retry_after=retry_after, request=request, source=source
    )


NOT_KUBERNETES: Final = "is the server a Kubernetes API server, and is there a proxy or login page in between?"


def describe_body(body: bytes, *, wanted: str = "an object") -> str:
    """Tell what a body is that should have been something else: the title of a page, or its beginning."""
    if not body.strip():
        return "the answer is empty"
    text = " ".join(body[: _TEXT_AT_MOST * 4].decode("utf-8", "replace").split())
    if text.startswith("<"):
        title = _TITLE.search(text)
        what = "an HTML page" if "<html" in text[:200].lower() else "markup"
        return f"the answer is {what}: {shorten(title.group(1).strip() if title else text, limit=200)}"
    return f"the answer is not {wanted}: {excerpt(body)}"


def excerpt(body: bytes) -> str:
    """Return the beginning of a body in one line, unless it is an object: that may be a Secret."""
    text = " ".join(body[: _TEXT_AT_MOST * 4].decode("utf-8", "replace").split())
    return f"{{...}}, {len(body)} bytes" if text.startswith("{") else shorten(text, limit=200)


def from_status(
    status_object: Mapping[str, Any],
    *,
    status: int | None = None,
    retry_after: float | None = None,
    request: str = "",
    source: str = "",
) -> ApiError:
    """Make the error that fits a `Status` object, the body of a refused request or an ERROR frame of a watch."""
    code = status_object.get("code")
    number = status if status is not None else code if isinstance(code, int) else 500
    reason = str(status_object.get("reason") or "")
    details = status_object.get("details")
    details = details if isinstance(details, dict) else {}
    if retry_after is None:
        retry_after = _seconds(details.get("retryAfterSeconds"))
    # A frame without a code still says by its reason that the resource version has expired.
    if code is None and status is None and reason in {"Expired", "Gone"}:
        number = 410
    return _class_for(number, reason)(
        status=number,
        reason=reason,
        message=str(status_object.get("message") or ""),
        details=details,
        retry_after=retry_after,
        request=request,
        source=source,
    )


def shorten(text: str, *, limit: int = _TEXT_AT_MOST) -> str:
    """Cut a text that others wrote, and take out what looks like a credential."""
    shown = redact(text[:limit]).encode("utf-8", "replace").decode()  # half of a pair of surrogates cannot be written
    return shown if len(text) <= limit else f"{shown}... ({len(text) - limit} more characters)"


def reason_of(error: BaseException) -> str:
    """Say it as the operating system does, without what libraries add."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    text = getattr(error, "strerror", None) or str(error)
    return shorten(str(text), limit=300) or "it was closed"


def _class_for(status: int, reason: str) -> type[ApiError]:
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    return _BY_STATUS.get(status) or (ServerError if status >= 500 else ApiError)


def _seconds(value: object) -> float | None:
    """Read a Retry-After in seconds; its other form, a date, is something Kubernetes never sends."""
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
