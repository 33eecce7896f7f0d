"""Kinds of early versions of Trainer.

| version | group | what changed since |
|---|---|---|
| v1.9 (alpha) | `kubeflow.org/v2alpha1` | group, names of Jobs and containers, initializers, numProcPerNode |
| 2.0 | `trainer.kubeflow.org/v1alpha1` | podSpecOverrides, labels and annotations of the spec |
| 2.1 | the same | podTemplateOverrides, metrics of elasticPolicy |
"""

from __future__ import annotations

from typing import Any, Final

from trainmaster.runtime.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
)
from trainmaster.runtime.conversion.early import EARLY_GROUP, OLD_FIELDS, convert_runtime, convert_trainjob
from trainmaster.runtime.conversion.notes import Conversion, Notes
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jsontree import JsonObject

EARLY_API_VERSION: Final = "kubeflow.org/v2alpha1"
_RUNTIMES: Final = (TRAINING_RUNTIME_KIND, CLUSTER_TRAINING_RUNTIME_KIND)


def is_early(obj: JsonObject) -> bool:
    """Tell whether an object is of an early version, or has fields that there are no more."""
    if obj.get("kind") not in (TRAINJOB_KIND, *_RUNTIMES):
        return False
    if obj.get("apiVersion") == EARLY_API_VERSION:
        return True
    return obj.get("apiVersion") == API_VERSION and _has_old_fields(obj)


def convert_early(obj: JsonObject) -> Conversion:
    """Rewrite an object for which `is_early`.

    Args:
        obj: The object; it is not changed.

    Raises:
        ConversionError: It is none that an early Trainer would have accepted.
    """
    notes = Notes()
    source = Source(obj)
    early_names = source.take("apiVersion", str) == EARLY_API_VERSION
    kind = source.take("kind", str) or ""
    if kind == TRAINJOB_KIND:
        new = convert_trainjob(source, notes, early_names=early_names)
    else:
        new = convert_runtime(source, notes, kind=kind, early_names=early_names)
    for path in source.left():
        notes.tell(path, f"left out: {kind} has no such field")
    return Conversion([new], notes.notes)


def _has_old_fields(obj: JsonObject) -> bool:
    if obj["kind"] == TRAINJOB_KIND:
        spec = _at(obj, "spec")
        return (
            any(field in spec for field in OLD_FIELDS)
            or isinstance(_at(spec, "trainer").get("numProcPerNode"), str)
            or _at(spec, "runtimeRef").get("apiGroup") == EARLY_GROUP
        )
    policy = _at(_at(obj, "spec"), "mlPolicy")
    return (
        "metrics" in _at(_at(policy, "torch"), "elasticPolicy")
        or _at(policy, "mpi").get("mpiImplementation") == "Intel"
    )


def _at(node: JsonObject, field: str) -> JsonObject:
    found: Any = node.get(field)
    return found if isinstance(found, dict) else {}
