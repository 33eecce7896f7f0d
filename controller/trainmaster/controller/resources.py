"""The resources of Trainer and JobSet, and where the definitions of these and of what plugins watch come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP

if TYPE_CHECKING:
    from trainmaster.controller.kube.cache.store import StoreReader
    from trainmaster.runtime.jobs.interface import JobKind
    from trainmaster.runtime.listers import Watch

_TRAINER: Final = "trainer.kubeflow.org"
_JOBSET: Final = "jobset.x-k8s.io"

_ORIGINS: Final[Mapping[str, str]] = {
    _TRAINER: "trainmaster crds | kubectl apply --server-side -f -",
    JOBS_GROUP: "trainmaster crds | kubectl apply --server-side -f -",
    _JOBSET: "it comes with JobSet, https://jobset.sigs.k8s.io",
    "scheduling.x-k8s.io": "it comes with the scheduler plugins, https://scheduler-plugins.sigs.k8s.io",
    "scheduling.volcano.sh": "it comes with Volcano, https://volcano.sh",
}
"""Where the definitions of an API group are found."""


def _trainer(kind: str, plural: str, *, namespaced: bool) -> Resource:
    return Resource(_TRAINER, "v1alpha1", kind, plural, namespaced, _ORIGINS[_TRAINER])


TRAINJOBS = _trainer("TrainJob", "trainjobs", namespaced=True)
TRAINING_RUNTIMES = _trainer("TrainingRuntime", "trainingruntimes", namespaced=True)
CLUSTER_TRAINING_RUNTIMES = _trainer("ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False)
RUNTIMES: Final[Mapping[str, Resource]] = {each.kind: each for each in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)}
"""Both kinds of runtime, by kind."""

JOBSETS = Resource(_JOBSET, "v1alpha2", "JobSet", "jobsets", namespaced=True, origin=_ORIGINS[_JOBSET])


_PLUGIN_INDEX: Final = "plugins/"


def job_resource(kind: JobKind) -> Resource:
    """Return the resource of a kind of jobs."""
    origin = _ORIGINS.get(kind.group, "")
    return Resource(kind.group, kind.version, kind.kind, kind.plural, namespaced=True, origin=origin)


def watched_resource(watch: Watch) -> Resource:
    """Return the resource that a plugin declared to watch."""
    group, _, version = watch.api_version.rpartition("/")
    return Resource(group, version, watch.kind, watch.plural, watch.namespaced, _ORIGINS.get(group, ""))


def plugin_index(name: str) -> str:
    """Return how a store calls an index that a plugin declared, apart from our own."""
    return f"{_PLUGIN_INDEX}{name}"


def plugin_indexes(store: StoreReader) -> list[str]:
    """Return the indexes of a store that plugins declared."""
    return [name.removeprefix(_PLUGIN_INDEX) for name in store.index_names() if name.startswith(_PLUGIN_INDEX)]
