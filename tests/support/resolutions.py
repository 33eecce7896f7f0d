"""Resolving with all installed plugins, and reading what comes out."""

from collections.abc import Container, Iterable
from typing import Any

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers, Watch, index_functions, objects_by_index
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.resolver import new_info, resolve

Runtime = TrainingRuntime | ClusterTrainingRuntime


def entropy(count: int) -> bytes:
    """Randomness that is the same each time."""
    return bytes(range(count))


FRAMEWORK = Framework(load_plugins(options={name: {"entropy": entropy} for name in ("mpi", "flux")}))
"""All plugins. What is random in production is fixed here, so that resolving is pure to the byte."""

RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""Source of a variable that holds the rank of a node."""


def jobset(job: TrainJob, on: Runtime) -> JsonObject:
    """The JobSet that a TrainJob becomes."""
    return next(desired.object for desired in resolve(job, on, FRAMEWORK).objects if desired.identity[1] == "JobSet")


def job_spec(obj: JsonObject, job: int = 0) -> JsonObject:
    """The Job spec of a ReplicatedJob."""
    found: JsonObject = obj["spec"]["replicatedJobs"][job]["template"]["spec"]
    return found


def container(obj: JsonObject, job: int = 0, index: int = 0, *, field: str = "containers") -> JsonObject:
    """A container of a ReplicatedJob."""
    found: JsonObject = job_spec(obj, job)["template"]["spec"][field][index]
    return found


def env(holder: JsonObject) -> dict[str, Any]:
    """The variables of a container in their order: the value of each, or its source."""
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in holder.get("env", [])}


def field_errors(job: TrainJob, on: Runtime) -> list[FieldError]:
    """What all plugins find wrong with a new TrainJob."""
    errors, _ = FRAMEWORK.validate(new_info(job, on), job, None, NO_LISTERS)
    return errors


def field_warnings(job: TrainJob, on: Runtime) -> list[FieldWarning]:
    """What all plugins warn of."""
    _, warnings = FRAMEWORK.validate(new_info(job, on), job, None, NO_LISTERS)
    return warnings


def error_details(job: TrainJob, on: Runtime) -> list[tuple[str, str]]:
    """The errors as pairs of path and detail."""
    return [(error.path, error.detail) for error in field_errors(job, on)]


def warning_details(job: TrainJob, on: Runtime) -> list[tuple[str, str]]:
    """The warnings as pairs of path and detail."""
    return [(warning.path, warning.detail) for warning in field_warnings(job, on)]


class FakeListers:
    """Listers of a few objects, in a cluster that serves all kinds but those in `absent`."""

    def __init__(
        self, *objects: JsonObject, watches: Iterable[Watch] = FRAMEWORK.watches(), absent: Container[str] = ()
    ) -> None:
        self._objects = objects
        self._indexes = index_functions(watches)
        self._workloads = {(each.api_version, each.kind) for each in watches if each.workload}
        self._absent = absent

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        known = self.list(api_version, kind, namespace)
        return next((obj for obj in known if obj["metadata"]["name"] == name), None)

    def size(self, *_: object) -> int:
        return 0

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> list[JsonObject]:
        wanted = [obj for obj in self._objects if (obj["apiVersion"], obj["kind"]) == (api_version, kind)]
        return [obj for obj in wanted if namespace in (None, obj["metadata"].get("namespace"))]

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        return objects_by_index(self, self._indexes, (api_version, kind), index, value)

    def is_served(self, api_version: str, kind: str) -> bool:
        return kind not in self._absent

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        known = (obj for obj in self._objects if (obj["apiVersion"], obj["kind"]) in self._workloads)
        return [obj for obj in known if is_controlled_by(obj, job)]


class KnownServer:
    """A server that has a few objects, and notes what it is asked for."""

    def __init__(self, *objects: JsonObject) -> None:
        self._listers = FakeListers(*objects)
        self.failure: Exception | None = None
        self.asked: list[tuple[str, str | None, str]] = []

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        self.asked.append((resource.kind, namespace, name))
        found = self._listers.get(resource.api_version, resource.kind, namespace, name)
        if self.failure is not None or found is None:
            raise self.failure or NotFound(status=404)
        return found


def companion(kind: str, job: TrainJob, on: Runtime, *, listers: Listers = NO_LISTERS) -> Desired:
    """The one object of a kind that a TrainJob becomes."""
    (found,) = (each for each in resolve(job, on, FRAMEWORK, listers=listers).objects if each.identity[1] == kind)
    return found
