"""What strategic merge and server-side apply have to know about a type: how its objects, maps and lists merge.

The knowledge of Kubernetes' own types is generated from the OpenAPI definitions (`hack/generate_schemas.py`) into
`table.json`, which is read on first use. An entry of the table is an object with these keys, each of them optional:

    ref         the definition that describes the value
    fields      an object with known fields: field name -> entry
    values      a map with free keys: the entry of its values
    items       a list: the entry of its elements
    mergeKey    strategic merge: the field that identifies an element     (x-kubernetes-patch-merge-key)
    strategies  strategic merge: "merge", "retainKeys", "replace"         (x-kubernetes-patch-strategy)
    listType    server-side apply: "atomic", "set" or "map"               (x-kubernetes-list-type)
    mapKeys     server-side apply: the fields that identify an element    (x-kubernetes-list-map-keys)
    mapType     server-side apply: "granular" or "atomic"                 (x-kubernetes-map-type)

Scalars have no entry. Schemas never change once they are made and may be shared freely.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

from trainmaster.runtime.jsontree import JsonObject

ListType: TypeAlias = Literal["atomic", "set", "map"]
MapType: TypeAlias = Literal["granular", "atomic"]


class MergeSchema:
    """How one value of a Kubernetes object merges, and the way to the schemas of what it holds."""

    __slots__ = (
        "_children",
        "_entry",
        "_type",
        "is_list",
        "is_map",
        "list_type",
        "map_keys",
        "map_type",
        "patch_merge_key",
        "patch_strategies",
    )

    def __init__(self, entry: JsonObject) -> None:
        target: JsonObject = _table()[entry["ref"]] if "ref" in entry else entry
        self._type = target
        self._children: dict[str, MergeSchema] = {}
        self.is_list: bool = "items" in target
        self.is_map: bool = "fields" in target or "values" in target
        self.patch_merge_key: str | None = entry.get("mergeKey")
        self.patch_strategies: frozenset[str] = frozenset(entry.get("strategies", ()))
        self.list_type: ListType | None = entry.get("listType")
        self.map_keys: tuple[str, ...] = tuple(entry.get("mapKeys", ()))
        # A field may overrule the definition it refers to: a persistent volume's claimRef does.
        self.map_type: MapType = entry.get("mapType") or target.get("mapType") or "granular"

    def field(self, name: str) -> MergeSchema:
        """Give the schema of a field of an object or of a key of a map; scalars and unknown fields give `UNTYPED`."""
        fields = self._type.get("fields")
        if fields is None:
            return self._child("values") if "values" in self._type else UNTYPED
        if name not in fields:
            return UNTYPED
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = MergeSchema(fields[name])
        return child

    def item(self) -> MergeSchema:
        """Give the schema of a list's elements or of a map's values; `UNTYPED` for anything else."""
        if self.is_list:
            return self._child("items")
        return self._child("values") if "values" in self._type else UNTYPED

    def _child(self, key: str) -> MergeSchema:
        child = self._children.get(key)
        if child is None:
            entry = self._type[key]
            child = self._children[key] = MergeSchema(entry) if entry else UNTYPED
        return child


UNTYPED = MergeSchema({})
"""Of a value about which nothing is known: maps merge key by key, lists are replaced."""


@cache
def definition(name: str) -> MergeSchema:
    """Give the schema of a Kubernetes type by the name of its OpenAPI definition, as "io.k8s.api.core.v1.PodSpec".

    Raises LookupError for a type that is neither a built-in kind of the embedded cluster nor part of one.
    """
    if name not in _table():
        raise LookupError(f"no merge rules for {name}: add a kind that holds it to KINDS in hack/kubernetes_schemas.py")
    return MergeSchema({"ref": name})


@cache
def jobset_spec() -> MergeSchema:
    """Give the schema of a JobSet's spec (JobSet API v1alpha2), which Kubernetes' own definitions do not cover."""
    depends_on = {"items": {"fields": {}}, "listType": "map", "mapKeys": ["name"]}
    replicated_job = {
        "fields": {"dependsOn": depends_on, "template": {"ref": "io.k8s.api.batch.v1.JobTemplateSpec"}},
    }
    replicated_jobs = {
        "items": replicated_job,
        "listType": "map",
        "mapKeys": ["name"],
        "mergeKey": "name",
        "strategies": ["merge"],
    }
    return MergeSchema({"fields": {"replicatedJobs": replicated_jobs}})


@cache
def _table() -> dict[str, JsonObject]:
    text = files(__package__).joinpath("table.json").read_text(encoding="utf-8")
    table: dict[str, JsonObject] = json.loads(text)
    return table
