"""The state of the parts of the manager, as what JSON is made of.

Guarantees:
- M-9: of an object is shown that it is there, which version, and its conditions; nothing of its spec, its data, its
  labels or its annotations. Of options of plugins is shown that they are set, and texts in them are not.
- Each answer has bounds, and is read in one go: what it says held at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.job_fields import mapping, mappings
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.redaction import REDACTED, redact_all
from trainmaster.metrics import plugins as series
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject

KEYS_SHOWN: Final = 100
"""Of each queue and state."""

_METADATA: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "finalizers")
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller")
_CONDITION: Final = ("type", "status", "reason", "lastTransitionTime")


def caches(informers: Iterable[Informer]) -> list[JsonObject]:
    """Show what each cache holds, and why it cannot be filled."""
    shown: list[JsonObject] = redact_all([informer.state() for informer in informers])
    return shown


def cached_object(informers: Iterable[Informer], key: str) -> list[JsonObject]:
    """Show what each cache knows of the object of a key; nothing if none has it."""
    found = []
    for informer in informers:
        obj = informer.store.get(key)
        if obj is not None:
            found.append({"informer": informer.name, "bytes": informer.store.size(key), **_summary(obj)})
    return found


def _summary(obj: JsonObject) -> JsonObject:
    metadata = mapping(obj.get("metadata"))
    status = mapping(obj.get("status"))
    owners, conditions = mappings(metadata.get("ownerReferences")), mappings(status.get("conditions"))
    return {
        "metadata": _some(metadata, _METADATA),
        "ownerReferences": [_some(owner, _OWNER) for owner in owners],
        "conditions": [_some(condition, _CONDITION) for condition in conditions],
        "fields": sorted(obj),
    }


def queues(controllers: Iterable[tuple[str, WorkQueue]]) -> JsonObject:
    """Show what waits, and what is worked on, by controller."""
    return {name: queue.state(limit=KEYS_SHOWN) for name, queue in controllers}


def plugins(framework: Framework) -> JsonObject:
    """Show which plugins run in each phase, in order, and how often they were called, and how long that took."""
    calls: dict[tuple[str, str], JsonObject] = {}
    for sample in _samples(series.PLUGIN_CALLS, "_total"):
        call = calls.setdefault((sample.labels["plugin"], sample.labels["phase"]), {})
        call[sample.labels["result"]] = int(sample.value)
    for sample in _samples(series.PLUGIN_DURATION, "_sum"):
        calls.setdefault((sample.labels["plugin"], sample.labels["phase"]), {})["seconds"] = round(sample.value, 6)
    return {
        "order": framework.order(),
        "calls": [{"plugin": plugin, "phase": phase, **call} for (plugin, phase), call in sorted(calls.items())],
    }


def configuration(effective: Configuration) -> JsonObject:
    """Show the configuration that is in effect, without what plugins may have been given as secrets."""
    shown = effective.model_dump(mode="json", by_alias=True)
    shown["plugins"]["options"] = without_texts(shown["plugins"]["options"])
    redacted: JsonObject = redact_all(shown)
    return redacted


def without_texts(value: Any) -> Any:
    """Return a tree without any of its texts: what plugins are given may be anything."""
    if isinstance(value, dict):
        return {key: without_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    return REDACTED if isinstance(value, str) else value


def _samples(family: Any, suffix: str) -> list[Any]:
    return [sample for metric in family.collect() for sample in metric.samples if sample.name.endswith(suffix)]


def _some(obj: Mapping[str, Any], names: Sequence[str]) -> JsonObject:
    return {name: obj[name] for name in names if name in obj}
