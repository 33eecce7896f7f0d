"""CustomResourceDefinitions: what the server fills in, serves and writes into their status, and their rules.

The rules: names, scope, versions, and that schemas, paths and rules in CEL compile. A definition is accepted and
established in the write that creates it, unless its names clash with served ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.customresource import kind_of, rules_of
from trainmaster.devcluster.apiserver.registry.fields import one_of
from trainmaster.devcluster.apiserver.registry.registry import Kind, Registry
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.schema.structural_validation import validate_structural
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label_1035, dns_subdomain

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def resource_of(crd: JsonObject) -> GroupResource:
    """Return the resource that a definition defines."""
    return GroupResource(crd["spec"]["group"], crd["spec"]["names"]["plural"])


def is_established(crd: JsonObject) -> bool:
    """Return whether the resource is to be served."""
    conditions = crd.get("status", {}).get("conditions", ())
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


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


def validate_custom_resource_definition(obj: JsonObject) -> list[FieldError]:
    """Check a definition that has its defaults; what compiles is looked at only if the rest is right."""
    problems = list(_validate_names_and_versions(obj))
    if not problems:
        try:
            kind_of(obj)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(FieldError("spec.versions", "Invalid", errors.OMITTED, str(error)))
        else:
            problems += _validate_rules(obj["spec"]["versions"])
    return problems


def _validate_names_and_versions(obj: JsonObject) -> Iterator[FieldError]:
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
                FieldError(f"spec.names.{field}", "Invalid", name, problem)
                for problem in dns_label_1035(name.lower() if field in ("kind", "listKind") else name)
            )
    if spec.get("preserveUnknownFields"):
        instead = "set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield FieldError("spec.preserveUnknownFields", "Invalid", True, f"cannot set to true, {instead}")
    # Only a new definition has a choice: later the names themselves are what cannot change.
    is_new = "resourceVersion" not in obj["metadata"]
    if is_new and group and plural and obj["metadata"].get("name") != f"{plural}.{group}":
        name = obj["metadata"].get("name", "")
        yield FieldError("metadata.name", "Invalid", name, 'must be spec.names.plural+"."+spec.group')
    yield from one_of("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    yield from _validate_versions(spec.get("versions") or [])


def _validate_versions(versions: list[JsonObject]) -> Iterator[FieldError]:
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
            continue
        # With one version the real server looks at the schema in its older, unversioned place.
        where = "spec.validation.openAPIV3Schema" if len(versions) == 1 else f"{path}.schema.openAPIV3Schema"
        if schema.get("type") != "object":
            yield FieldError(f"{where}.type", "Invalid", schema.get("type", ""), "must be object at the root")
        else:
            yield from _structural_problems(orjson.dumps(schema), where)


@functools.lru_cache(maxsize=32)
def _structural_problems(schema: bytes, where: str) -> list[FieldError]:
    # As with its rules: a definition is looked at several times, and clusters of one process have the same ones.
    return list(validate_structural(orjson.loads(schema), where))


def _validate_rules(versions: list[JsonObject]) -> Iterator[FieldError]:
    """Check the rules of all versions; where these agree the server names `spec.validation`, which v1 no longer has."""
    schemas = [version["schema"]["openAPIV3Schema"] for version in versions]
    same = all(schema == schemas[0] for schema in schemas)
    for index, schema in enumerate(schemas[:1] if same else schemas):
        path = "spec.validation.openAPIV3Schema" if same else f"spec.versions[{index}].schema.openAPIV3Schema"
        for place, problem in rules_of(schema).problems:
            yield FieldError(path + place, problem.kind, problem.value, problem.text)


class CustomResourceDefinitionStrategy(Strategy):
    """CustomResourceDefinitions are established at their creation, and stay until their objects are gone."""

    has_generation = True
    allow_unconditional_update = False

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

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Establish the definition at once."""
        obj.pop("status", None)
        if not self.validate(obj):
            obj.update(accept_names(obj, self._registry, now=obj["metadata"]["creationTimestamp"]))

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the status, and refuse what cannot be served."""
        restore(obj, old, "status")
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check names, scope, versions, and that schemas, paths and rules compile."""
        return validate_custom_resource_definition(obj)

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
        shown = condition(
            "Terminating", True, "InstanceDeletionInProgress", message, obj["metadata"]["deletionTimestamp"]
        )
        obj.setdefault("status", {}).setdefault("conditions", []).append(shown)


def kind(registry: Registry) -> Kind:
    """Return the kind as the API serves it; the names of a definition are looked up in the registry."""
    return builtin_kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        strategy=CustomResourceDefinitionStrategy(registry),
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=("status",),
        columns=printers.CUSTOM_RESOURCE_DEFINITIONS,
    )
