"""Checking our objects without a cluster: what the API server would say to them, from the same rules.

The command line finds `check` by the entry-point group `trainmaster.schemas`.

- The definition is that of `deploy/crds`: unknown fields, types and limits, and its rules in CEL.
- All faults of an object are found together, except that the rules are evaluated only on what has the right shape.
- Without cel-expr-python everything but the rules is checked, and a warning says so.
- The object that is given is not changed.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final, Literal, NamedTuple

import orjson

from trainmaster.devcluster.apiserver.registry.customresource import kind_of
from trainmaster.devcluster.apiserver.registry.objectmeta import validate_object_meta
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema
from trainmaster.runtime.jsontree import JsonObject, copy_tree

DEFINITIONS: Final = Path(__file__).parent / "definitions"
"""What `deploy/crds` and `crds/` have, as JSON: reading YAML would take most of the time that `trainmaster render`
needs, and a good part of the start of a cluster."""

_GROUPS: Final = {
    **dict.fromkeys(
        ("ClusterTrainingRuntime", "OptimizationJob", "TrainJob", "TrainingRuntime"), "trainer.kubeflow.org"
    ),
    **dict.fromkeys(("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"), "kubeflow.org"),
}
_OF_OTHERS: Final = frozenset({("kubeflow.org", "MPIJob")})
"""Kinds of which there are versions elsewhere: the MPI Operator has v2beta1."""
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_SHAPELESS: Final = frozenset({"NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"})
_STEP: Final = re.compile(r"[^.\[\]]+")


class Fault(NamedTuple):
    """What is wrong with one field."""

    path: str
    message: str
    known: tuple[str, ...] = ()
    """If the field is unknown: which there are in its place."""

    severity: Literal["error", "warning"] = "error"


def check(obj: JsonObject) -> tuple[JsonObject, list[Fault]] | None:
    """Return an object as the API server would store it, and what is wrong with it; None for a kind of others."""
    group, _, version = str(obj.get("apiVersion")).rpartition("/")
    if _GROUPS.get(str(obj.get("kind"))) != group:
        return None
    kind = _kind(obj["kind"])
    if version != kind.version:
        if (group, obj["kind"]) in _OF_OTHERS:
            return None
        return obj, [Fault("apiVersion", f"there is no version {version} of {kind.kind}, but {kind.version}")]
    return _checked(kind, copy_tree(obj))


def _checked(kind: Kind, obj: JsonObject) -> tuple[JsonObject, list[Fault]]:
    schema, metadata_schema = kind.schema, builtin_schema(_OBJECT_META)
    assert schema is not None  # noqa: S101 - our own definitions have one
    faults = []
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        faults += [_unknown(metadata_schema, path, "metadata.") for path in metadata_schema.prune(metadata)]
    faults += [_unknown(schema, path) for path in schema.prune(obj)]
    schema.default(obj)
    problems = schema.validate(obj)
    if not problems:  # the rules of metadata rely on its types
        problems += validate_object_meta(obj["metadata"], kind)
    notes: list[str] = []
    if not any(problem.type in _SHAPELESS for problem in problems):
        result = kind.rules.check(obj)
        problems += result.errors
        notes = result.warnings
    faults += [Fault(problem.field, problem.body) for problem in problems]
    faults += [Fault("", note, severity="warning") for note in notes]
    return obj, faults


@functools.cache
def _kind(name: str) -> Kind:
    return kind_of(orjson.loads((DEFINITIONS / f"{_GROUPS[name]}_{name.lower()}s.json").read_bytes()), deferred=True)


def _unknown(schema: Schema, path: str, prefix: str = "") -> Fault:
    node = schema
    for step in _STEP.findall(path)[:-1]:
        node = node.items() if step.isdecimal() and "array" in node.types else node.child(step)
    return Fault(prefix + path, "unknown field", tuple(node.properties))
