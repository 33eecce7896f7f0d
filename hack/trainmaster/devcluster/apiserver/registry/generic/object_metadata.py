"""Metadata: what the server stamps into objects, and what clients may not change."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategies.base import immutable
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.runtime.jsontree import JsonObject

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_PREFIX_LIMIT = 63 - _SUFFIX_LENGTH

_GIVEN_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def generated_name(prefix: str, chooser: random.Random) -> str:
    """Complete a `generateName` with a random suffix."""
    return prefix[:_PREFIX_LIMIT] + "".join(chooser.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))


def stamp_created(metadata: JsonObject, kind: Kind, *, uid: str, now: datetime) -> None:
    """Set what belongs to the server in the metadata of a new object."""
    for field in (*_GIVEN_BY_SERVER, "resourceVersion"):
        metadata.pop(field, None)
    _drop_empty(metadata)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = timestamp(now)
    if kind.strategy.has_generation:
        metadata["generation"] = 1


def carry_over(metadata: JsonObject, old: JsonObject) -> None:
    """Fill in from the old object what the client left out and may not remove."""
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if field in old and not metadata.get(field):
            metadata[field] = old[field]
    # The generation is counted by the server alone; a client's value is ignored rather than refused.
    metadata.pop("generation", None)
    if "generation" in old:
        metadata["generation"] = old["generation"]
    metadata.pop("selfLink", None)
    _drop_empty(metadata)


def _drop_empty(metadata: JsonObject) -> None:
    """Drop empty lists and maps, as the server does for custom resources, too: it holds metadata in typed form."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]


def validate_metadata_update(metadata: JsonObject, old: JsonObject) -> list[FieldError]:
    """Check that a change leaves the server's fields alone and adds no finalizer to an object that is being deleted."""
    errors = [
        immutable(f"metadata.{field}", metadata.get(field))
        for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
        if metadata.get(field) != old.get(field)
    ]
    if "deletionTimestamp" in old:
        known = set(old.get("finalizers") or ())
        added = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer not in known]
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            text = "no new finalizers can be added if the object is being deleted"
            detail = f"{text}, found new finalizers []string{{{listed}}}"
            errors.append(FieldError("metadata.finalizers", "Forbidden", detail=detail))
    return errors


Clock = Callable[[], datetime]
"""Tells the present time, with a time zone."""


def drop_nulls(node: Any) -> Any:
    """Return a copy of a tree without null members: to a built-in kind, null is the same as absent."""
    if isinstance(node, dict):
        return {key: drop_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [drop_nulls(value) for value in node]
    return node
