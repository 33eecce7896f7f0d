"""Events under their two names: core/v1, which is how they are stored, and events.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import EVENTS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import path_segment, qualified_name

_V1_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_V1 = {core: v1 for v1, core in _V1_TO_CORE.items()}
_CORE_DEFAULTS: JsonObject = {"reportingComponent": "", "reportingInstance": ""}
_TIMES = ("firstTimestamp", "lastTimestamp", "eventTime")
_STORY = (
    "regarding",
    "reason",
    "reason",  # which the server checks twice
    "note",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
)
_LONGEST_WORD = 128
_LONGEST_MESSAGE = 1024
_FEWEST_OF_SERIES = 2


class CoreEventStrategy(Strategy):
    """Events of core/v1."""

    collects_dependents = False
    allow_create_on_update = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the members that clients rely on."""
        for field, value in _CORE_DEFAULTS.items():
            obj.setdefault(field, value)
        obj.setdefault("involvedObject", {})
        obj.setdefault("source", {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Show the times that are not given."""
        for field in _TIMES:
            obj.setdefault(field, None)

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:  # noqa: ARG002 - of every strategy
        """Show the times that are not given."""
        self.prepare_for_create(obj)

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return path_segment(name)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check that the event lives where its object lives, and what an event with an exact time must tell."""
        return list(_validate_event(obj, "reportingComponent"))


class EventStrategy(Strategy):
    """Events of events.k8s.io/v1: the same objects with newer names and stricter rules."""

    collects_dependents = False
    allow_create_on_update = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the members that rules rely on."""
        obj.setdefault("regarding", {})

    def to_storage(self, obj: JsonObject) -> JsonObject:
        """Translate to core/v1; the old time stamps are filled in, because some clients skip events without them."""
        stored = {_V1_TO_CORE.get(field, field): value for field, value in obj.items()}
        stored["apiVersion"] = "v1"
        for field, value in _CORE_DEFAULTS.items():
            stored.setdefault(field, value)
        if not stored.get("source"):
            stored["source"] = {"component": stored["reportingComponent"]}
        moment = _whole_seconds(obj.get("eventTime"))
        if moment:
            series = obj.get("series") or {}
            stored.setdefault("firstTimestamp", moment)
            stored["lastTimestamp"] = _whole_seconds(series.get("lastObservedTime")) or moment
            stored["count"] = series.get("count", 1)
        return stored

    def from_storage(self, obj: JsonObject) -> JsonObject:
        """Translate from core/v1."""
        translated = {_CORE_TO_V1.get(field, field): value for field, value in obj.items()}
        translated["apiVersion"] = "events.k8s.io/v1"
        translated.setdefault("eventTime", None)
        return translated

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """Check what the newer API demands of a new event: an exact time and a known type, and nothing deprecated."""
        problems = list(_validate_series(obj))
        if not obj.get("eventTime"):
            problems.append(FieldError("eventTime", "Required"))
        if obj.get("type") not in ("Normal", "Warning"):
            problems.append(FieldError("type", "Invalid", "", f"has invalid value: {obj.get('type', '')}"))
        return problems + [
            FieldError(core, "Invalid", "", "needs to be unset")
            for deprecated, core in _V1_TO_CORE.items()
            if deprecated.startswith("deprecated") and _is_set(obj.get(deprecated))
        ]

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check that the event lives where its object lives, and what an event with an exact time must tell."""
        core = {_V1_TO_CORE.get(field, field): value for field, value in obj.items()}
        return list(_validate_event(core, "reportingController"))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another story: only the series may change."""
        problems = list(_validate_series(obj)) if obj.get("series") != old.get("series") else []
        return problems + [
            immutable(_V1_TO_CORE.get(field, field) if field in ("regarding", "note") else field, obj.get(field))
            for field in _STORY
            if obj.get(field) != old.get(field)
        ]


def _is_set(value: JsonObject | str | int | None) -> bool:
    return any(value.values()) if isinstance(value, dict) else bool(value)


def _validate_event(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    """Check an event of the core API; `controller_field` is what the reporting controller is called."""
    about, namespace = event["involvedObject"].get("namespace") or "", event["metadata"].get("namespace")
    if namespace != about and (about or namespace not in ("default", "kube-system")):
        yield FieldError("involvedObject.namespace", "Invalid", about, "does not match event.namespace")
    if not event.get("eventTime"):
        return  # an event of the older form, of which nothing else is asked
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield FieldError(controller_field, "Required")
    yield from (FieldError(controller_field, "Invalid", controller, problem) for problem in qualified_name(controller))
    for field in ("reportingInstance", "action", "reason"):
        text = event.get(field) or ""
        if not text:
            yield FieldError(field, "Required")
        elif len(text.encode()) > _LONGEST_WORD:
            yield FieldError(field, "Invalid", "", f"can have at most {_LONGEST_WORD} characters")
    if len((event.get("message") or "").encode()) > _LONGEST_MESSAGE:
        yield FieldError("message", "Invalid", "", f"can have at most {_LONGEST_MESSAGE} characters")


def _validate_series(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < _FEWEST_OF_SERIES:
        yield FieldError("series.count", "Invalid", "", f"should be at least {_FEWEST_OF_SERIES}")
    if not series.get("lastObservedTime"):
        yield FieldError("series.lastObservedTime", "Required")


def _whole_seconds(text: str | None) -> str | None:
    return timestamp(datetime.fromisoformat(text)) if text else None


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def core_kind() -> Kind:
    """Return the kind as the core API serves it."""
    return builtin_kind(
        "",
        "Event",
        "events",
        strategy=CoreEventStrategy(),
        short_names=("ev",),
        columns=printers.EVENTS,
        field_labels={
            **field_labels(
                *(f"involvedObject.{field}" for field in _REFERENCE), "reason", "type", "reportingComponent"
            ),
            "source": lambda obj: (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "",
        },
    )


def kind() -> Kind:
    """Return the kind as events.k8s.io serves it; its objects are stored as those of the core API."""
    return builtin_kind(
        "events.k8s.io",
        "Event",
        "events",
        strategy=EventStrategy(),
        short_names=("ev",),
        columns=printers.EVENTS,
        field_labels=field_labels(
            *(f"regarding.{field}" for field in _REFERENCE), "reason", "type", "reportingController"
        ),
        storage=EVENTS,
    )
