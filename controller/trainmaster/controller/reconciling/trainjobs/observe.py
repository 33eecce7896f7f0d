"""Observing: what the caches say about one TrainJob, taken together at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, snapshot_name
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.validation.runtime_lookup import live_runtime, unsupported_runtime

KindKey = tuple[str, str]
"""API version and kind."""

CONFIG_MAP: KindKey = ("v1", "ConfigMap")


class StoreListers:
    """Listers from the stores of informers; see `trainmaster.runtime.listers`.

    One for each reconcile: an object is decoded when it is asked for first, and whoever asks again gets the same one.

    Args:
        stores: The caches by kind, each with its resource.
    """

    def __init__(self, stores: Mapping[KindKey, tuple[Resource, Store]]) -> None:
        self._stores = stores
        self._seen: dict[tuple[str, str, str], JsonObject | None] = {}

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when no cache holds it."""
        key = f"{namespace}/{name}" if namespace else name
        what = (api_version, kind, key)
        if what not in self._seen:
            _, store = self._stores.get((api_version, kind), (None, None))
            self._seen[what] = None if store is None else store.get(key)
        return self._seen[what]

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind; each is decoded when its turn comes."""
        _, store = self._stores.get((api_version, kind), (None, None))
        return () if store is None else store.each(namespace)

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that is cached."""
        resource, _ = self._stores.get((api_version, kind), (None, None))
        return resource

    def including(self, obj: JsonObject) -> StoreListers:
        """Return the same facts with one more object, which no cache holds (any more, or yet)."""
        listers = StoreListers(self._stores)
        listers._seen = {**self._seen, (obj["apiVersion"], obj["kind"], object_key(obj)): obj}
        return listers


@dataclass(frozen=True, slots=True)
class Observed:
    """One TrainJob and what belongs to it, decoded from the caches for this reconcile alone."""

    job: TrainJob
    raw: JsonObject
    """The TrainJob as the server gave it."""

    snapshot: JsonObject | None
    """The ConfigMap with the name of the runtime snapshot, whoever owns it."""

    runtime: JsonObject | None
    """The live runtime that the TrainJob names; it is of no interest any more when there is a snapshot."""

    listers: StoreListers

    last_workload: JsonObject | None = None
    """The last state of its JobSet, if that is gone and its last state is known (see `departing`)."""


def observe(job: TrainJob, raw: JsonObject, listers: StoreListers, *, departed: JsonObject | None = None) -> Observed:
    """Look up everything that the decisions about a TrainJob rest on.

    Args:
        job: The TrainJob.
        raw: The same, as the server gave it.
        facts: The caches.
        departed: What is remembered of a JobSet that it had.
    """
    namespace, name = job.metadata.namespace, job.metadata.name
    snapshot = listers.get(*CONFIG_MAP, namespace, snapshot_name(name))
    wants_runtime = snapshot is None and unsupported_runtime(job.spec.runtime_ref) is None
    workload = listers.get(JOBSET_API_VERSION, JOBSET_KIND, namespace, name)
    is_gone = workload is None or not is_controlled_by(workload, job)
    return Observed(
        job=job,
        raw=raw,
        snapshot=snapshot,
        runtime=live_runtime(job, listers) if wants_runtime else None,
        listers=listers,
        last_workload=departed if is_gone and departed is not None and is_controlled_by(departed, job) else None,
    )
