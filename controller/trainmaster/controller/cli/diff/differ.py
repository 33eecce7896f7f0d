"""What is there against what would be there, in the form of `diff -u`."""

from __future__ import annotations

import difflib

from trainmaster.controller.cli.printers import to_yaml
from trainmaster.runtime.jsontree import JsonObject

_NOISE = frozenset({"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"})
_SECRET = ("data", "stringData")


def unified_diff(live: JsonObject | None, merged: JsonObject) -> str:
    """Write how an object would change; empty if it would not."""
    before, after = _masked(_plain(live), _plain(merged))
    metadata = merged["metadata"]
    group = merged["apiVersion"].rpartition("/")[0]
    kind = ".".join(part for part in (merged["kind"], group) if part)
    name = "/".join(part for part in (kind, metadata.get("namespace"), metadata["name"]) if part)
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live/{name}", f"merged/{name}")
    return "".join(lines)


def _plain(obj: JsonObject | None) -> JsonObject:
    """Return an object without what the server keeps to itself."""
    if obj is None:
        return {}
    metadata = {field: value for field, value in obj["metadata"].items() if field not in _NOISE}
    if metadata.get("ownerReferences"):
        # That of a TrainJob which does not exist yet is another one each time.
        metadata["ownerReferences"] = [
            {field: value for field, value in owner.items() if field != "uid"} for owner in metadata["ownerReferences"]
        ]
    return {field: value for field, value in obj.items() if field != "status"} | {"metadata": metadata}


def _masked(before: JsonObject, after: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Hide what Secrets hold, but show which of it changes."""
    if (after["apiVersion"], after["kind"]) != ("v1", "Secret"):
        return before, after
    before, after = dict(before), dict(after)
    for field in _SECRET:
        old, new = before.get(field) or {}, after.get(field) or {}
        same = {key for key in old.keys() & new.keys() if old[key] == new[key]}
        for obj, values, word in ((before, old, "before"), (after, new, "after")):
            if values:
                obj[field] = {key: "***" if key in same else f"*** ({word})" for key in values}
    return before, after


def _lines(obj: JsonObject) -> list[str]:
    return to_yaml(obj, sort_keys=True).splitlines(keepends=True) if obj else []
