"""Custom resource definitions: from a CRD object to the kind that it defines, and the life of the CRD itself.

- A definition is accepted and established in the write that creates it, unless its names clash with served ones.
- Its schema is completed by the ObjectMeta of the Kubernetes API, so that metadata is typed in custom resources too.
- Its rules in CEL (`x-kubernetes-validations`) are compiled; one that does not compile is the definition's error.

Answered with 501: several served versions in one definition, and conversion webhooks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path
from trainmaster.devcluster.apiserver.registry.kind import Kind, ScalePaths
from trainmaster.devcluster.apiserver.registry.printers import custom_columns
from trainmaster.devcluster.apiserver.registry.registry import Registry
from trainmaster.devcluster.apiserver.registry.strategies.custom import CustomStrategy
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema
from trainmaster.devcluster.apiserver.schema.cel import Rules
from trainmaster.runtime.jsontree import JsonObject

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def resource_of(crd: JsonObject) -> GroupResource:
    """Return the resource that a definition defines."""
    return GroupResource(crd["spec"]["group"], crd["spec"]["names"]["plural"])


def is_established(crd: JsonObject) -> bool:
    """Return whether the resource is to be served."""
    conditions = crd.get("status", {}).get("conditions", ())
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def kind_of(crd: JsonObject, *, deferred: bool = False) -> Kind:
    """Return the kind that a valid definition defines; raises ValueError for schemas and paths that do not compile.

    With `deferred`, for definitions of our own, rules are compiled when they are needed first.
    """
    spec = crd["spec"]
    names = spec["names"]
    version = next(each for each in spec["versions"] if each.get("served"))
    raw = version.get("schema", {}).get("openAPIV3Schema", {})
    subresources = version.get("subresources") or {}
    has_status = "status" in subresources
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        list_kind=names["listKind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        subresources=frozenset(subresources),
        scale=_scale(subresources.get("scale")),
        custom=True,
        schema=_schema(raw),
        rules=rules_of(raw, deferred=deferred),
        strategy=CustomStrategy(has_status=has_status),
        columns=custom_columns(version.get("additionalPrinterColumns", ())),
        field_labels={
            each["jsonPath"].removeprefix("."): _label(each["jsonPath"]) for each in version.get("selectableFields", ())
        },
    )


def rules_of(schema: JsonObject, *, deferred: bool = False) -> Rules:
    """Return the compiled rules of a schema, with what is wrong with them."""
    return _compiled_rules(orjson.dumps(schema), deferred)


@functools.lru_cache(maxsize=8)
def _compiled_rules(schema: bytes, deferred: bool) -> Rules:
    # A definition is looked at several times while it is created; its rules are the expensive part.
    return Rules(orjson.loads(schema), deferred=deferred)


def _scale(paths: JsonObject | None) -> ScalePaths | None:
    if paths is None:
        return None
    for field, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        if not str(paths.get(field, "")).startswith(root):
            raise ValueError(f"subresources.scale.{field}: should be a json path under {root[:-1]}")
    return ScalePaths(paths["specReplicasPath"], paths["statusReplicasPath"], paths.get("labelSelectorPath", ""))


def _schema(raw: JsonObject) -> Schema:
    properties = {
        **raw.get("properties", {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": _OBJECT_META},
    }
    return Schema.compile({**raw, "properties": properties}, _metadata_definitions())


@functools.cache
def _metadata_definitions() -> dict[str, JsonObject]:
    """Return ObjectMeta and the definitions that it refers to."""
    found: dict[str, JsonObject] = {}
    wanted = [_OBJECT_META]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = builtin_schema(name).raw
            wanted.extend(_references(found[name]))
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _references(each)


def _label(path: str) -> Any:
    find = compile_path(path)

    def value(obj: JsonObject) -> str:
        found = find(obj)
        if not found:
            return ""
        return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])

    return value


def accept_names(crd: JsonObject, registry: Registry, *, now: str) -> JsonObject:
    """Return a definition whose status says whether its names are free and so whether it is served."""
    spec, status = crd["spec"], crd.get("status", {})
    clash = _clash(spec, registry)
    established = not clash or is_established(crd)
    wanted = [
        condition(
            "NamesAccepted",
            not clash,
            clash[0] if clash else "NoConflicts",
            clash[1] if clash else "no conflicts found",
            now,
        ),
        condition(
            "Established",
            established,
            "InitialNamesAccepted" if established else "NotAccepted",
            "the initial names have been accepted" if established else "not all names are accepted",
            now,
        ),
    ]
    present = {each["type"]: each for each in status.get("conditions", ())}
    for each in wanted:
        before = present.get(each["type"])
        if before is None or before["status"] != each["status"]:
            present[each["type"]] = each
    stored = [each["name"] for each in spec["versions"] if each.get("storage")]
    known = status.get("storedVersions", [])
    return {
        **crd,
        "status": {
            **status,
            "conditions": list(present.values()),
            "acceptedNames": spec["names"] if not clash else status.get("acceptedNames", {"plural": "", "kind": ""}),
            "storedVersions": [*known, *(each for each in stored if each not in known)],
        },
    }


def _clash(spec: JsonObject, registry: Registry) -> tuple[str, str] | None:
    """Return reason and message of the first name that another resource of the group has taken."""
    names = spec["names"]
    resources: set[str] = set()
    kinds: set[str] = set()
    for kind in registry.kinds():
        if kind.group == spec["group"] and kind.plural != names["plural"]:
            resources |= {kind.plural, kind.singular, *kind.short_names}
            kinds |= {kind.kind, kind.list_kind}
    for reason, taken, wanted in (
        ("PluralConflict", resources, [names["plural"]]),
        ("SingularConflict", resources, [names["singular"]]),
        ("ShortNamesConflict", resources, names.get("shortNames", [])),
        ("KindConflict", kinds, [names["kind"]]),
        ("ListKindConflict", kinds, [names["listKind"]]),
    ):
        for name in wanted:
            if name in taken:
                return reason, f'"{name}" is already in use'
    return None


def condition(name: str, holds: bool, reason: str, message: str, now: str) -> JsonObject:
    """Return a condition for the status of a definition."""
    return {
        "type": name,
        "status": "True" if holds else "False",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
