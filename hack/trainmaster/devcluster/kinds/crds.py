"""Custom resource definitions: from a CRD object to the kind that it defines, and the life of the CRD itself.

- A definition is accepted and established in the write that creates it, unless its names clash with served ones.
- Its schema is completed by the ObjectMeta of the Kubernetes API, so that metadata is typed in custom resources too.

Known gap: of the rules in `x-kubernetes-validations` only immutability (`self == oldSelf`) is evaluated, see
`transitions`; every other CEL rule is stored and published, and not enforced yet.
Answered with 501: several served versions in one definition, and conversion webhooks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from trainmaster.devcluster import errors
from trainmaster.devcluster.errors import FieldError
from trainmaster.devcluster.jsonpath import compile_path
from trainmaster.devcluster.kinds.columns import custom_columns
from trainmaster.devcluster.kinds.kind import Kind
from trainmaster.devcluster.kinds.names import dns_label_1035, dns_subdomain
from trainmaster.devcluster.kinds.registry import Registry
from trainmaster.devcluster.kinds.strategies.base import Strategy, immutable, restore, unsupported
from trainmaster.devcluster.kinds.strategies.custom import CustomStrategy
from trainmaster.devcluster.kinds.transitions import Transitions
from trainmaster.devcluster.resources import GroupResource
from trainmaster.devcluster.schema import Schema, builtin_schema
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


def kind_of(crd: JsonObject) -> Kind:
    """Return the kind that a valid definition defines; raises ValueError for schemas and paths that do not compile."""
    spec = crd["spec"]
    names = spec["names"]
    version = next(each for each in spec["versions"] if each.get("served"))
    raw = version.get("schema", {}).get("openAPIV3Schema", {})
    has_status = "status" in (version.get("subresources") or {})
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
        subresources=frozenset({"status"} if has_status else ()),
        custom=True,
        schema=_schema(raw),
        transitions=Transitions(raw),
        strategy=CustomStrategy(has_status=has_status),
        columns=custom_columns(version.get("additionalPrinterColumns", ())),
        field_labels={
            each["jsonPath"].removeprefix("."): _label(each["jsonPath"]) for each in version.get("selectableFields", ())
        },
    )


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
        _condition(
            "NamesAccepted",
            not clash,
            clash[0] if clash else "NoConflicts",
            clash[1] if clash else "no conflicts found",
            now,
        ),
        _condition(
            "Established",
            established,
            "InitialNamesAccepted" if established else "NotAccepted",
            "the initial names have been accepted" if established else "not all names are accepted",
            now,
        ),
    ]
    present = {each["type"]: each for each in status.get("conditions", ())}
    for condition in wanted:
        before = present.get(condition["type"])
        if before is None or before["status"] != condition["status"]:
            present[condition["type"]] = condition
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


def _condition(name: str, holds: bool, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


class DefinitionStrategy(Strategy):
    """The life of CustomResourceDefinitions."""

    has_generation = True
    unconditional_update = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def default(self, obj: JsonObject) -> None:
        """Fill in names, the conversion strategy and the flags that go with it."""
        spec = obj.get("spec", {})
        names = spec.get("names", {})
        kind = names.get("kind")
        if kind:
            names.setdefault("singular", kind.lower())
            names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {}).setdefault("strategy", "None")
        # `preserveUnknownFields: false` is what v1 means anyway; the real server does not store it.
        if spec.get("preserveUnknownFields") is False:
            del spec["preserveUnknownFields"]

    def check_create(self, obj: JsonObject) -> None:
        """Refuse what the embedded cluster cannot serve."""
        spec = obj.get("spec", {})
        if sum(bool(each.get("served")) for each in spec.get("versions", ())) > 1:
            raise errors.not_implemented("custom resources with several served versions")
        if spec.get("conversion", {}).get("strategy") == "Webhook":
            raise errors.not_implemented("conversion webhooks")

    def prepare_create(self, obj: JsonObject) -> None:
        """Establish the definition at once."""
        obj.pop("status", None)
        if not self.validate(obj):
            obj.update(accept_names(obj, self._registry, now=obj["metadata"]["creationTimestamp"]))

    def prepare_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the status, and refuse what cannot be served."""
        restore(obj, old, "status")
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check names, scope, versions, and that schemas and paths compile."""
        problems = list(_problems(obj))
        if not problems:
            try:
                kind_of(obj)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(FieldError("spec.versions", "Invalid", errors.OMITTED, str(error)))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to turn an established definition into another one."""
        new, before = obj["spec"], old["spec"]
        pairs = [("spec.group", new.get("group"), before["group"]), ("spec.scope", new.get("scope"), before["scope"])]
        pairs += [
            (f"spec.names.{field}", new["names"].get(field), before["names"].get(field)) for field in ("kind", "plural")
        ]
        return [immutable(path, value) for path, value, was in pairs if value != was]

    def mark_deleted(self, obj: JsonObject) -> None:
        """Stay until the objects of the kind are gone."""
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
        message = "CustomResource deletion is in progress"
        condition = _condition(
            "Terminating", True, "InstanceDeletionInProgress", message, obj["metadata"]["deletionTimestamp"]
        )
        obj.setdefault("status", {}).setdefault("conditions", []).append(condition)


def _problems(obj: JsonObject) -> Iterator[FieldError]:
    spec = obj.get("spec", {})
    names = spec.get("names", {})
    group, plural = spec.get("group"), names.get("plural")
    if not group:
        yield FieldError("spec.group", "Required")
    else:
        yield from (FieldError("spec.group", "Invalid", group, problem) for problem in dns_subdomain(group))
        if "." not in group:
            yield FieldError("spec.group", "Invalid", group, "should be a domain with at least one dot")
    for field in ("plural", "singular", "kind", "listKind"):
        name = names.get(field)
        if not name:
            yield FieldError(f"spec.names.{field}", "Required")
        else:
            yield from (
                FieldError(f"spec.names.{field}", "Invalid", name, problem) for problem in dns_label_1035(name.lower())
            )
    if group and plural and obj["metadata"].get("name") != f"{plural}.{group}":
        name = obj["metadata"].get("name", "")
        yield FieldError("metadata.name", "Invalid", name, 'must be spec.names.plural+"."+spec.group')
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"])
    yield from _version_problems(spec.get("versions") or [])


def _version_problems(versions: list[JsonObject]) -> Iterator[FieldError]:
    if sum(bool(each.get("storage")) for each in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield FieldError("spec.versions", "Invalid", errors.OMITTED, detail)
    if not any(each.get("served") for each in versions):
        yield FieldError("spec.versions", "Invalid", errors.OMITTED, "must have at least one served version")
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        yield from (FieldError(f"{path}.name", "Invalid", name, problem) for problem in dns_label_1035(name))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            yield FieldError(f"{path}.schema.openAPIV3Schema", "Required", detail="schemas are required")
        elif schema.get("type") != "object":
            yield FieldError(
                f"{path}.schema.openAPIV3Schema.type", "Invalid", schema.get("type", ""), "must be object at the root"
            )
