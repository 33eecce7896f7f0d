"""Observe: what the caches keep of what belongs to jobs, which jobs an event of it concerns, what they say about one.

Guarantees:
- E-3, E-5: an owner is found by group and kind, whatever its version; the reconciler finds what it owns by its UID.
- An object without an owner that has the name of one of ours concerns the job whose labels it has: when it goes, that
  job can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, controllers, owner_value, strip_to_identity
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.runtime.api.constants import ATTEMPTS_BEFORE_LABEL, POD_GROUP_KIND
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL, MANAGED_BY_TRAINING_OPERATOR, OPERATOR_NAME_LABEL
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers

_POD_STATUS: Final = ("phase", "reason", "message", "conditions", "initContainerStatuses", "containerStatuses")
_CONTAINER: Final = ("name", "terminationMessagePolicy")


@dataclass(frozen=True, slots=True)
class OwnedKind:
    """A kind of objects that jobs own beside pods and Services."""

    resource: Resource
    store: Store
    creates_only: bool = False
    """Whether its objects are created and never changed."""


@dataclass(frozen=True, slots=True)
class JobStores:
    """The caches that the reconciler of one kind of jobs reads.

    Attributes:
        others: Everything else that jobs own (PodGroups, what `JobKind.build` makes).
        priority_classes: The PriorityClasses, if anybody wants to know them.
    """

    jobs: Store
    pods: Store
    services: Store
    others: Mapping[GroupVersionKind, OwnedKind] = field(default_factory=dict)
    priority_classes: Store | None = None

    def written(self) -> Mapping[GroupVersionKind, tuple[Resource, StoreReader]]:
        """Return all caches of what is written for jobs, by kind, each with its resource."""
        others = {kind: (other.resource, other.store) for kind, other in self.others.items()}
        ours = ((PODS, self.pods), (SERVICES, self.services))
        return {(each.api_version, each.kind): (each, store) for each, store in ours} | others


@dataclass(frozen=True, slots=True)
class Observed:
    """One job and what belongs to it, decoded from the caches for this reconcile alone."""

    job: Job
    pods: Mapping[str, JsonObject]
    """The pods that it controls, by name."""

    services: Mapping[str, JsonObject]
    """The Services that it controls, by name."""

    others: Mapping[GroupVersionKind, Mapping[str, JsonObject]]
    """What else it controls, by kind and name."""

    stores: JobStores
    size: int = 0
    """How many pods it has or wants, or is worth."""

    def existing(self, store: Store, name: str) -> JsonObject | None:
        """Return an object in the namespace of the job, whoever owns it."""
        return store.get(f"{self.job.namespace}/{name}")

    @property
    def listers(self) -> Listers:
        """What the kind may look at."""
        return StoreListers({kind: (each.resource, each.store) for kind, each in self.stores.others.items()})

    def pod_group(self, gang: GangScheduler) -> JsonObject | None:
        """Return the PodGroup that it controls."""
        return self.others.get((gang.api_version, POD_GROUP_KIND), {}).get(self.job.name)

    def priorities(self) -> dict[str, int]:
        """Return the values of PriorityClasses by name."""
        store = self.stores.priority_classes
        return {} if store is None else {each["metadata"]["name"]: each.get("value") or 0 for each in store.each()}


def observe(job: Job, stores: JobStores, *, size: int = 0) -> Observed:
    """Look up everything that the decisions about a job rest on; `size` is that of the job."""
    return Observed(
        job=job,
        pods=dict(_owned(stores.pods, job)),
        services=dict(_owned(stores.services, job)),
        others={kind: dict(_owned(other.store, job)) for kind, other in stores.others.items()},
        stores=stores,
        size=size,
    )


def _owned(store: Store, job: Job) -> Iterator[tuple[str, JsonObject]]:
    for key in store.index_keys(OWNER_INDEX, owner_value(job.metadata.namespace, job.metadata.uid)):
        obj = store.get(key)
        if obj is not None:
            yield obj["metadata"]["name"], obj


def job_keys(kind: JobKind) -> Callable[[JsonObject], list[str]]:
    """Return the map function from an object to the jobs of one kind that it concerns."""

    def keys(obj: JsonObject) -> list[str]:
        metadata = obj["metadata"]
        if owners := list(controllers(obj)):
            return [f"{metadata['namespace']}/{name}" for *of, name in owners if of == [kind.group, kind.kind]]
        labels = metadata.get("labels") or {}
        if labels.get(OPERATOR_NAME_LABEL) == kind.controller_name and labels.get(JOB_NAME_LABEL):
            return [f"{metadata['namespace']}/{labels[JOB_NAME_LABEL]}"]
        return []

    return keys


def trim_pod(pod: JsonObject) -> JsonObject:
    """Strip a pod of what no decision about its job rests on."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    strip_to_identity(pod, metadata=("labels", "deletionGracePeriodSeconds"))
    if ATTEMPTS_BEFORE_LABEL in (pod["metadata"].get("labels") or ()):
        containers = [{name: each.get(name) for name in _CONTAINER} for each in spec.get("containers") or ()]
        pod["spec"] = {"nodeName": spec.get("nodeName"), "containers": containers}
    pod["status"] = {field: status[field] for field in _POD_STATUS if status.get(field)}
    return pod


def trim_service(service: JsonObject) -> JsonObject:
    """Strip a Service of all but its identity: it is made once, and never changed."""
    return strip_to_identity(service, metadata=("labels",))


def managed_by(raw: JsonObject) -> object:
    """Return who is in charge of a job, before anything else of it is read."""
    spec = raw.get("spec")
    policy = spec.get("runPolicy") if isinstance(spec, dict) else None
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    return MANAGED_BY_TRAINING_OPERATOR if manager is None else manager
