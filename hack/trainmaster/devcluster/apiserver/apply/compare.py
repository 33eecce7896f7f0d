"""The fields of a value, and the fields in which two values differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from trainmaster.devcluster.apiserver.apply.fieldset import SELF, FieldSet, Tree
from trainmaster.devcluster.apiserver.apply.typed import ApplyInvalid, index, index_stored, shape
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import JsonObject


class Comparison(NamedTuple):
    """The fields in which a new object differs from an old one."""

    written: FieldSet
    """Fields that are new or have a new value."""
    removed: FieldSet


class _Trees(NamedTuple):
    """The differences below one path element, while they are collected."""

    written: Tree
    removed: Tree


# Types that Go holds by value: with what holds them, fields of these types are always there, if only empty, so nobody
# comes to own the field itself by filling it.
_HELD_BY_VALUE = frozenset(
    {
        *(
            f"io.k8s.api.{name}"
            for name in (
                "batch.v1.JobSpec",
                "batch.v1.JobStatus",
                "coordination.v1.LeaseSpec",
                "core.v1.EventSource",
                "core.v1.LimitRangeSpec",
                "core.v1.LoadBalancerStatus",
                "core.v1.NamespaceSpec",
                "core.v1.NamespaceStatus",
                "core.v1.NodeDaemonEndpoints",
                "core.v1.NodeSpec",
                "core.v1.NodeStatus",
                "core.v1.NodeSystemInfo",
                "core.v1.PersistentVolumeClaimSpec",
                "core.v1.PersistentVolumeClaimStatus",
                "core.v1.PodSpec",
                "core.v1.PodStatus",
                "core.v1.PodTemplateSpec",
                "core.v1.ServiceSpec",
                "core.v1.ServiceStatus",
                "core.v1.VolumeResourceRequirements",
                "resource.v1.DeviceClaim",
                "resource.v1.DeviceClassSpec",
                "resource.v1.ResourceClaimSpec",
                "resource.v1.ResourceClaimStatus",
                "resource.v1.ResourceClaimTemplateSpec",
                "resource.v1.ResourceSliceSpec",
            )
        ),
        *(
            f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition{name}"
            for name in ("Names", "Spec", "Status")
        ),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    }
)

METADATA_ITSELF = FieldSet({"f:metadata": {}})
"""That an object has metadata is owned by nobody; what is in them has managers."""


def to_fieldset(obj: JsonObject, schema: Schema) -> FieldSet:
    """Return the fields that an applied object states; raises `ApplyInvalid` where list elements cannot be told apart.

    A field that the schema names is a member only as a leaf. An element of a list and a key of a map are statements of
    their own ("there is this container") and members as well as what is in them.
    """
    return FieldSet(_stated(obj, schema))


def compare(old: JsonObject, new: JsonObject, schema: Schema) -> Comparison:
    """Compare two objects; an empty one stands for none."""
    trees = _Trees({}, {})
    _compare_maps(old, new, schema, trees)
    return Comparison(FieldSet(trees.written) - METADATA_ITSELF, FieldSet(trees.removed) - METADATA_ITSELF)


def _stated(value: Any, schema: Schema) -> Tree:
    tree: Tree = {}
    match shape(value, schema):
        case "map":
            for name, field in value.items():
                below = tree[f"f:{name}"] = _stated_below(f"f:{name}", field, schema.child(name))
                if below and not schema.declares(name):
                    below[SELF] = {}
        case "list":
            items = schema.items()
            for element, item in index(value, schema).items():
                below = tree[element] = _stated_below(element, item, items)
                if below:
                    below[SELF] = {}
    return tree


def _stated_below(element: str, value: Any, schema: Schema) -> Tree:
    try:
        return _stated(value, schema)
    except ApplyInvalid as error:
        raise error.under(element) from None


def _everything(value: Any, schema: Schema) -> Tree:
    """Return every path of a value, itself included."""
    tree: Tree = {}
    match shape(value, schema):
        case "map":
            tree = {f"f:{name}": _everything(field, schema.child(name)) for name, field in value.items()}
        case "list":
            items = schema.items()
            elements = index_stored(value, schema) or {}
            tree = {element: _everything(item, items) for element, item in elements.items()}
    if tree:
        tree[SELF] = {}
    return tree


def _compare(element: str, old: Any, new: Any, schema: Schema, parent: _Trees) -> None:
    """Compare two unequal values of one path element and note the differences in the trees of its parent."""
    below = _Trees({}, {})
    if not _compare_parts(old, new, schema, below):
        # A value without parts, or of another kind: whatever was below the old value went with it.
        parent.written[element] = _everything(new, schema)
        below.removed.update((part, node) for part, node in _everything(old, schema).items() if part != SELF)
    if below.written:
        parent.written[element] = below.written
    if below.removed:
        parent.removed[element] = below.removed


def _compare_parts(old: Any, new: Any, schema: Schema, trees: _Trees) -> bool:
    """Compare two values part by part; False if they have no parts to compare."""
    divided = shape(new, schema) if new else shape(old, schema)
    if divided == "map" and isinstance(old, dict) and isinstance(new, dict):
        _compare_maps(old, new, schema, trees)
        return True
    if divided == "list" and isinstance(old, list) and isinstance(new, list):
        before = index_stored(old, schema)
        after = index_stored(new, schema)
        if before is not None and after is not None:
            _compare_lists(before, after, schema.items(), trees)
            return True
    return False


def _compare_maps(old: JsonObject, new: JsonObject, schema: Schema, trees: _Trees) -> None:
    for name, value in new.items():
        if name not in old:
            child = schema.child(name)
            if (empty := _empty(name, child, schema)) is None:
                trees.written[f"f:{name}"] = _everything(value, child)
            elif value != empty:
                _compare(f"f:{name}", empty, value, child, trees)
        elif (before := old[name]) is not value and before != value:
            _compare(f"f:{name}", before, value, schema.child(name), trees)
    for name, value in old.items():
        if name not in new:
            trees.removed[f"f:{name}"] = _everything(value, schema.child(name))


def _empty(name: str, child: Schema, parent: Schema) -> JsonObject | list[Any] | None:
    """Return what an absent field of a built-in kind holds on a real server, where the field is never absent."""
    if child.definition in _HELD_BY_VALUE:
        return {}
    # A list that Go never leaves out: of the granular ones these are the containers of a pod.
    if child.list_type != "atomic" and name in (parent.raw.get("required") or ()) and parent.definition:
        return []
    return None


def _compare_lists(old: dict[str, Any], new: dict[str, Any], items: Schema, trees: _Trees) -> None:
    for element, item in new.items():
        if element not in old:
            trees.written[element] = _everything(item, items)
        elif old[element] != item:
            _compare(element, old[element], item, items, trees)
    for element, item in old.items():
        if element not in new:
            trees.removed[element] = _everything(item, items)
