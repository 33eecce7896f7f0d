"""The conditions of a CustomResourceDefinition: whether its names are free, and so whether it is established.

A definition is accepted and established in the write that creates it, unless its names clash with served ones.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.registry import Registry
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

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
