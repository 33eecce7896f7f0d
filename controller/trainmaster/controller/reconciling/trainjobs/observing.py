"""Observing: what the caches say about one TrainJob, taken together at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainmaster.controller.kube.resources import Resource
from trainmaster.controller.kube.storing import Store
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    TRAINING_RUNTIME_KIND,
    snapshot_name,
)
from trainmaster.runtime.jsontree import JsonObject

KindKey = tuple[str, str]
"""API version and kind."""

CONFIG_MAP: KindKey = ("v1", "ConfigMap")


class StoreFacts:
    """Facts from the stores of informers; see `trainmaster.runtime.facts`.

    Args:
        stores: The caches by kind, each with its resource.
    """

    def __init__(self, stores: Mapping[KindKey, tuple[Resource, Store]]) -> None:
        self._resources = {kind: resource for kind, (resource, _) in stores.items()}
        self._stores = {kind: store for kind, (_, store) in stores.items()}

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when no cache holds it."""
        store = self._stores.get((api_version, kind))
        return None if store is None else store.get(f"{namespace}/{name}" if namespace else name)

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind."""
        store = self._stores.get((api_version, kind))
        return () if store is None else store.list(namespace)

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that is cached."""
        return self._resources.get((api_version, kind))


@dataclass(frozen=True, slots=True)
class Observed:
    """One TrainJob and what belongs to it. Everything in here is shared with the caches: nobody changes it."""

    job: TrainJob
    raw: JsonObject
    """The TrainJob as the server gave it."""

    snapshot: JsonObject | None
    """The ConfigMap with the name of the runtime snapshot, whoever owns it."""

    runtime: JsonObject | None
    """The live runtime that the TrainJob names."""

    facts: StoreFacts


def observe(job: TrainJob, raw: JsonObject, facts: StoreFacts) -> Observed:
    """Look up everything that the decisions about a TrainJob rest on."""
    namespace, name = job.metadata.namespace, job.metadata.name
    reference = job.spec.runtime_ref
    runtime = None
    if reference.api_group == API_VERSION.partition("/")[0]:
        if reference.kind == TRAINING_RUNTIME_KIND:
            runtime = facts.get(API_VERSION, TRAINING_RUNTIME_KIND, namespace, reference.name)
        elif reference.kind == CLUSTER_TRAINING_RUNTIME_KIND:
            runtime = facts.get(API_VERSION, CLUSTER_TRAINING_RUNTIME_KIND, None, reference.name)
    return Observed(
        job=job,
        raw=raw,
        snapshot=facts.get(*CONFIG_MAP, namespace, snapshot_name(name)),
        runtime=runtime,
        facts=facts,
    )
