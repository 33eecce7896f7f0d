"""The payload of a report: read as the original reads it, and written as the API server takes it. Pure.

Guarantees:
- Only what the API knows is kept. Types are strict; limits are left to the API server, whose message is the answer.
- What comes after the first JSON value is ignored, and so are fields that nobody knows.
- Times are written in UTC with whole seconds, as Kubernetes does. Text is always text that can be written as UTF-8.
"""

from __future__ import annotations

import re
from datetime import UTC
from json import JSONDecoder
from typing import Annotated, Any, Final, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trainmaster.controller.kube.clock import parse_time, time_text
from trainmaster.runtime.jsontext import is_too_deep, too_deep
from trainmaster.runtime.jsontree import JsonObject

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_SPACE: Final = " \t\r\n"
_EXTENSIONS: Final = ("lastCheckpointTime", "worldSize")


class InvalidPayload(ValueError):
    """A body is no report."""


def _readable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can spell and nobody can write."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("must be a time as in RFC 3339, for instance 2026-01-31T12:00:00Z")
    try:
        return time_text(parse_time(text).astimezone(UTC))
    except OverflowError as error:
        raise ValueError("is too far away") from error


Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Text = Annotated[str, AfterValidator(_readable)]
Time = Annotated[str, AfterValidator(_time)]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, strict=True)


class Metric(_Part):
    """One number, as text."""

    name: Text = ""
    value: Text = ""


class TrainerStatus(_Part):
    """How far the training is."""

    progress_percentage: Int32 | None = None
    estimated_remaining_seconds: Int32 | None = None
    metrics: list[Metric] | None = None
    last_updated_time: Time | None = None
    last_checkpoint_time: Time | None = None
    world_size: Int32 | None = None


class Report(_Part):
    """The body of a request."""

    trainer_status: TrainerStatus | None = None

    def to_json(self, *, is_original: bool = False) -> JsonObject:
        """Return the JSON object: the fields that were given, or those of them that the original's definition has."""
        report = self.model_dump(by_alias=True, exclude_none=True)
        status = report.get("trainerStatus", {})
        if not status.get("metrics"):
            status.pop("metrics", None)
        for extension in _EXTENSIONS if is_original else ():
            status.pop(extension, None)
        return report


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = JSONDecoder(parse_constant=_no_json)


def read_report(body: bytes) -> Report:
    """Read the body of a request.

    Raises:
        InvalidPayload: It is no report.
    """
    text = body.decode("utf-8", "replace").lstrip(_SPACE)
    try:
        value: Any = _DECODER.raw_decode(text)[0]
        report = Report() if value is None else Report.model_validate(value)
    except (ValidationError, ValueError, RecursionError) as error:
        raise InvalidPayload("Invalid payload") from error
    if is_too_deep(value):
        raise InvalidPayload(f"Invalid payload: {too_deep()}")
    return report
