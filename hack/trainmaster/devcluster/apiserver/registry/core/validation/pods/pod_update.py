"""Rules of changes of pods through their main endpoint: what of a spec may change, and how."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import between, forbidden, required
from trainmaster.runtime.jsontree import JsonObject

_LARGEST = 2**31 - 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_IMMUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_MAY_CHANGE = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
"""Fields with rules of their own."""


def validate_pod_update(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check a changed spec against the old one; the new one by itself is checked elsewhere."""
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(old.get(field) or ()):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    # The real server says this once for the pod and once for the change.
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            if not container.get("image"):
                yield required(f"spec.{field}[{index}].image")
    deadline, before = spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if deadline is not None and not 0 <= deadline <= _LARGEST:
        yield from between("spec.activeDeadlineSeconds", deadline, 0, _LARGEST)
        return
    if deadline is not None and before is not None and before < deadline:
        text = "must be less than or equal to previous value"
        yield FieldError("spec.activeDeadlineSeconds", "Invalid", deadline, text)
        return
    if deadline is None and before is not None:
        text = "must not update from a positive integer to nil value"
        yield FieldError("spec.activeDeadlineSeconds", "Invalid", None, text)
    yield from _tolerations(spec.get("tolerations") or [], old.get("tolerations") or [])
    yield from _gates(spec.get("schedulingGates") or [], old.get("schedulingGates") or [])
    yield from _frozen(spec, old)


def _tolerations(tolerations: list[JsonObject], old: list[JsonObject]) -> Iterator[FieldError]:
    """Check that the old ones are still there, perhaps for another time."""
    given = [_without(each, "tolerationSeconds") for each in tolerations]
    if any(_without(each, "tolerationSeconds") not in given for each in old):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", text)


def _gates(gates: list[JsonObject], old: list[JsonObject]) -> Iterator[FieldError]:
    known = {gate.get("name") for gate in old}
    for index, gate in enumerate(gates):
        if gate.get("name") not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)


def _frozen(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that what has no rules of its own stays."""
    new, before = _comparable(spec), _comparable(old)
    grace = before.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and new.get("terminationGracePeriodSeconds") == 1:
        new["terminationGracePeriodSeconds"] = grace
    if old.get("schedulingGates"):  # a gated pod may still be steered to fewer nodes
        yield from _gated_selector(new.pop("nodeSelector", None) or {}, before.pop("nodeSelector", None) or {})
        affinity, affinity_before = (dict(each.pop("affinity", None) or {}) for each in (new, before))
        node_affinity = (affinity.pop("nodeAffinity", None), affinity_before.pop("nodeAffinity", None))
        if node_affinity[0] != node_affinity[1]:
            yield from _gated_affinity(node_affinity[0] or {}, node_affinity[1] or {})
        new["affinity"], before["affinity"] = affinity, affinity_before
    if new != before:
        yield forbidden("spec", f"{_IMMUTABLE_TEXT}\n{_difference(before, new)}")


def _difference(old: JsonObject, new: JsonObject) -> str:
    """Show what should change, as a unified diff."""
    before, after = (json.dumps(each, indent=2, sort_keys=True).splitlines() for each in (old, new))
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])


def _comparable(spec: JsonObject) -> JsonObject:
    """Return a spec without what may change, and without empty members: those are the same as none."""
    kept = _without(spec, *_MAY_CHANGE)
    for field in ("containers", "initContainers"):
        kept[field] = [_without(container, "image") for container in kept.get(field) or ()]
    trimmed: JsonObject = _trimmed(kept)
    return trimmed


def _trimmed(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _trimmed(value) for key, value in node.items() if value not in ("", [], False, None)}
    if isinstance(node, list):
        return [_trimmed(value) for value in node]
    return node


def _without(obj: JsonObject, *fields: str) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in fields}


def _gated_selector(selector: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    if any(selector.get(key) != value for key, value in old.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield FieldError("spec.nodeSelector", "Invalid", selector, text)


def _gated_affinity(affinity: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that each way to a node became narrower, if there was any; preferences are free."""
    terms = (old.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if not terms:
        return
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    given = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if len(given) != len(terms):
        yield FieldError(
            path, "Invalid", given, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        )
        return
    for index, (term, before) in enumerate(zip(given, terms, strict=True)):
        if not before.get("matchExpressions") and not before.get("matchFields"):
            if term != before:
                yield FieldError(f"{path}[{index}]", "Invalid", term, _NARROWER)
            continue
        for field in ("matchExpressions", "matchFields"):
            wanted, kept = term.get(field) or [], before.get(field) or []
            if wanted[: len(kept)] != kept:
                yield FieldError(f"{path}[{index}]", "Invalid", term, _NARROWER)
                break


_NARROWER = "only additions are allowed (no mutations or deletions)"
