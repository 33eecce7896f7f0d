"""Attributes and events of spans, by OpenTelemetry's semantic conventions.

What these have no name for is named in their manner: objects of other kinds by `k8s.trainjob.name` and
`k8s.trainjob.uid`, as there are `k8s.job.name` and `k8s.pod.uid`; what only we know begins with `trainmaster.`.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Span, Status, StatusCode

from trainmaster.controller.redaction import redact
from trainmaster.runtime.framework.calls import text_of

ERROR_TYPE: Final = "error.type"
NAMESPACE: Final = "k8s.namespace.name"

_LONGEST: Final = 1024
"""Characters of the text of an error; the log has all of it."""


def object_attributes(kind: str, namespace: str, name: str, uid: str | None = None) -> dict[str, str]:
    """Return which object it is about."""
    prefix = f"k8s.{kind.lower()}"
    attributes = {f"{prefix}.name": name}
    if namespace:
        attributes[NAMESPACE] = namespace
    if uid:
        attributes[f"{prefix}.uid"] = uid
    return attributes


def add_exception(span: Span, error: BaseException | str) -> None:
    """Say in a span what went wrong, and that it did; without a traceback, which is in the log."""
    text = redact(error if isinstance(error, str) else text_of(error))[:_LONGEST]
    attributes = {"exception.message": text}
    if not isinstance(error, str):
        attributes["exception.type"] = type(error).__name__
        span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.add_event("exception", attributes)
    span.set_status(Status(StatusCode.ERROR, text))
