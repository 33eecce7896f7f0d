"""Metadata (kube-apiserver's rest.FillObjectMetaSystemFields): what the server sets and clients may not change."""

from __future__ import annotations

import random
from datetime import datetime

from trainmaster.devcluster.apiserver.registry import Kind
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


def fill_system_fields(metadata: JsonObject, kind: Kind, *, uid: str, now: datetime) -> None:
    """Set what belongs to the server in the metadata of a new object."""
    for field in (*_GIVEN_BY_SERVER, "resourceVersion"):
        metadata.pop(field, None)
    _drop_empty(metadata)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = timestamp(now)
    if kind.strategy.has_generation:
        metadata["generation"] = 1


def restore_system_fields(metadata: JsonObject, old: JsonObject) -> None:
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
