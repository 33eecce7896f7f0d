"""Builders: small TrainJobs, runtimes and Infos for tests, and listers of a few objects.

All objects are JSON, with the field names of their API, and belong to the caller. What a builder is given as a keyword
is a field of the spec, as the API spells it: `trainjob(trainer={"numNodes": 2}, suspend=True)`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    NODE,
    TRAINER_ANCESTOR,
    TRAINJOB_KIND,
)
from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import NO_LISTERS, Listers, NoSuchIndex, Watch, index_functions, objects_by_index
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.resolver import new_info

RUNTIME_NAME: Final = "conformance"
"""What the runtimes of builders are called, and TrainJobs ask for."""

NAMESPACE: Final = "team"


def replicated_job(
    name: str = NODE,
    *,
    ancestor: str | None = TRAINER_ANCESTOR,
    containers: Iterable[JsonObject] | None = None,
    **fields: Any,
) -> JsonObject:
    """Return a ReplicatedJob of a runtime.

    Args:
        name: Its name.
        ancestor: The step that it plays: `trainer`, `dataset-initializer`, `model-initializer`, or None.
        containers: Its containers; default is one, called as it is.
        fields: More fields of the ReplicatedJob, for instance `replicas=2` or `dependsOn=[...]`.
    """
    pod = {"containers": list(containers or [{"name": name, "image": "registry.example/train:1"}])}
    template: JsonObject = {"spec": {"template": {"spec": pod}}}
    if ancestor is not None:
        template["metadata"] = {"labels": {ANCESTOR_LABEL: ancestor}}
    return {"name": name, "template": template, **fields}


def runtime(name: str = RUNTIME_NAME, **spec: Any) -> JsonObject:
    """Return a ClusterTrainingRuntime with one ReplicatedJob, the trainer, unless `template` says otherwise.

    Args:
        name: Its name.
        spec: Fields of its spec: `mlPolicy`, `podGroupPolicy`, `template`.
    """
    spec.setdefault("template", {"spec": {"replicatedJobs": [replicated_job()]}})
    metadata = {"name": name}
    return {
        "apiVersion": API_VERSION,
        "kind": CLUSTER_TRAINING_RUNTIME_KIND,
        "metadata": metadata,
        "spec": copy_tree(spec),
    }


def trainjob(
    name: str = "demo",
    *,
    namespace: str = NAMESPACE,
    uid: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    """Return a TrainJob on the runtime that `runtime` returns, unless `runtimeRef` says otherwise.

    Args:
        name: Its name.
        namespace: Its namespace.
        uid: Its UID; default is one that follows from its name.
        labels: Its labels.
        annotations: Its annotations.
        spec: Fields of its spec, for instance `trainer={"numNodes": 2}`.
    """
    metadata: JsonObject = {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}"}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec.setdefault("runtimeRef", {"name": RUNTIME_NAME})
    return {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "metadata": metadata, "spec": copy_tree(spec)}


def info(job: JsonObject | None = None, on: JsonObject | None = None, *, listers: Listers = NO_LISTERS) -> Info:
    """Return the Info of a TrainJob before any plugin ran, to call a single hook with.

    Args:
        job: The TrainJob; default is that of `trainjob`.
        on: Its runtime; default is that of `runtime`.
        listers: What is in the cluster.

    Raises:
        ApiTypeError: One of them does not have the types of its API.
        TemplateInvalid: The runtime holds what no JobSet can hold.
    """
    return new_info(parse_trainjob(job or trainjob()), parse_runtime(on or runtime()), listers=listers)


class KnownObjects:
    """Listers of a few objects: what comes back is a copy, as from the listers of the manager.

    Args:
        objects: Complete ones, with apiVersion, kind and metadata.name.
        watches: What plugins declare: which indexes there are, and which kinds are workloads.
        absent: The kinds that the cluster does not serve, as pairs of API version and kind.
    """

    def __init__(
        self, *objects: JsonObject, watches: Iterable[Watch] = (), absent: Container[tuple[str, str]] = ()
    ) -> None:
        given: tuple[Any, ...] = objects
        odd = next((obj for obj in given if not isinstance(obj, dict)), None)
        if odd is not None:
            raise TypeError(f"KnownObjects takes objects one by one, KnownObjects(a, b), not a {type(odd).__name__}")
        self._objects = [copy_tree(obj) for obj in objects]
        watches = list(watches)
        self._indexes = index_functions(watches)
        self._workloads = {(watch.api_version, watch.kind) for watch in watches if watch.workload}
        self._absent = absent

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object; None if there is none of that name."""
        return next((obj for obj in self.list(api_version, kind, namespace) if obj["metadata"]["name"] == name), None)

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> list[JsonObject]:
        """Return the objects of a kind, of one namespace if given."""
        return [
            copy_tree(obj)
            for obj in self._objects
            if (obj["apiVersion"], obj["kind"]) == (api_version, kind)
            and (not namespace or namespace == obj["metadata"].get("namespace"))
        ]

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the objects that an index has under a value.

        Raises:
            NoSuchIndex: No watch declares it.
        """
        try:
            return objects_by_index(self, self._indexes, (api_version, kind), index, value)
        except NoSuchIndex as missing:
            missing.add_note("In a test: KnownObjects(..., watches=plugin.watch_extension()) has those of a plugin.")
            raise

    def is_served(self, api_version: str, kind: str) -> bool:
        """Tell whether a kind is served, which are all but those that were called absent."""
        return (api_version, kind) not in self._absent

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        """Return the objects that a TrainJob controls of the kinds that watches call workloads."""
        kinds, namespace = self._workloads, job.metadata.namespace
        known = (obj for kind in kinds for obj in self.list(*kind, namespace))
        return [obj for obj in known if is_controlled_by(obj, job)]
