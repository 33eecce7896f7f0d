"""Events under their two names: core/v1, which is how they are stored, and events.k8s.io/v1."""

from __future__ import annotations

from datetime import datetime

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import EVENTS
from trainmaster.runtime.jsontree import JsonObject

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
_CORE_DEFAULTS = {"reportingComponent": "", "reportingInstance": ""}
_NOTE_LIMIT = 1024
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


class CoreEventStrategy(Strategy):
    """Events of core/v1."""

    collects_dependents = False
    allow_create_on_update = True

    def default(self, obj: JsonObject) -> None:
        """Fill in the members that clients rely on."""
        for field, value in _CORE_DEFAULTS.items():
            obj.setdefault(field, value)
        obj.setdefault("involvedObject", {})
        obj.setdefault("source", {})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check that the event lives where its object lives."""
        about = obj["involvedObject"].get("namespace") or "default"
        if obj["metadata"].get("namespace") == about:
            return []
        return [FieldError("involvedObject.namespace", "Invalid", about, "does not match event.namespace")]


class EventStrategy(Strategy):
    """Events of events.k8s.io/v1: the same objects with newer names and stricter rules."""

    collects_dependents = False
    allow_create_on_update = True

    def to_storage(self, obj: JsonObject) -> JsonObject:
        """Translate to core/v1; the old time stamps are filled in, because some clients skip events without them."""
        stored = {_V1_TO_CORE.get(field, field): value for field, value in obj.items()}
        stored["apiVersion"] = "v1"
        for field, value in _CORE_DEFAULTS.items():
            stored.setdefault(field, value)
        stored.setdefault("involvedObject", {})
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

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Leave the deprecated members to the server."""
        for field in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "deprecatedSource"):
            obj.pop(field, None)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check what the newer API demands of every event."""
        problems = [
            FieldError(field, "Required")
            for field in ("eventTime", "reportingController", "reportingInstance", "action", "reason")
            if not obj.get(field)
        ]
        if obj.get("type") not in ("Normal", "Warning"):
            problems.append(FieldError("type", "Invalid", obj.get("type", ""), "must be Normal or Warning"))
        if len((obj.get("note") or "").encode()) > _NOTE_LIMIT:
            problems.append(FieldError("message", "Invalid", "", f"can have at most {_NOTE_LIMIT} characters"))
        about = (obj.get("regarding") or {}).get("namespace") or ""
        if not about and obj["metadata"].get("namespace") not in ("default", "kube-system"):
            problems.append(FieldError("involvedObject.namespace", "Invalid", about, "does not match event.namespace"))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another story: only the series may change."""
        return [
            immutable(_V1_TO_CORE.get(field, field) if field in ("regarding", "note") else field, obj.get(field))
            for field in _STORY
            if obj.get(field) != old.get(field)
        ]


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
