"""What of a TrainJob goes where: settings that a plugin copies, for which the TrainJob is the better answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from trainmaster.runtime.api import InitializerSource, TrainJob
from trainmaster.runtime.api.constants import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE, STORAGE_URI_ENV
from trainmaster.runtime.canonical import spelled_out
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value
from trainmaster.runtime.provenance.steps import Path, value_at

COMMAND: Final = "command"
"""Beside the template: `Info.trainer_command`."""

COUNTS: Final = "counts"
"""Beside the template: how many pods each pod set has."""


class Setting(NamedTuple):
    """A value that somebody has written, and a place to which it goes."""

    path: Path
    """In the traced trees."""

    value: Any
    origin: str
    """Where it stands, as a step."""


def settings(info: Info, job: TrainJob) -> Iterator[Setting]:
    """Iterate over the settings of a TrainJob, and those of its runtime, that go into an Info."""
    for place, pods in _placed(info):
        if info.is_node(pods):
            of_runtime = info.ml_policy.num_nodes if info.ml_policy else None
            of_job = job.spec.trainer.num_nodes if job.spec.trainer else None
            if of_job is not None:
                yield Setting((COUNTS, pods.name), of_job, "TrainJob spec.trainer.numNodes")
            elif of_runtime is not None:
                yield Setting((COUNTS, pods.name), of_runtime, "runtime spec.mlPolicy.numNodes")
        for path, container in _containers(info, place):
            yield from _of_container(container, path, pods, job)


def copies(info: Info) -> Iterator[tuple[Path, Path]]:
    """Iterate over places that get what stands in another one: which, and what."""
    for place, pods in _placed(info):
        for field in ("parallelism", "completions"):
            yield (*_job(place), field), (COUNTS, pods.name)
        if pods is info.trainer:
            for path, container in _containers(info, place):
                if container.get("name") == NODE:
                    yield (*path, "command"), (COMMAND,)


def _placed(info: Info) -> Iterator[tuple[int, PodSet]]:
    """Iterate over the pod sets, each with the place of its ReplicatedJob."""
    for place, replicated_job in enumerate(info.template.get("replicatedJobs") or []):
        pods = info.pod_set(replicated_job.get("name"))
        if pods is not None:
            yield place, pods


def _job(place: int) -> Path:
    return ("template", "replicatedJobs", place, "template", "spec")


def _containers(info: Info, place: int) -> Iterator[tuple[Path, JsonObject]]:
    path: Path = (*_job(place), "template", "spec", "containers")
    for index, container in enumerate(value_at(info.template, path[1:]) or []):
        yield (*path, index), container


def _of_container(container: JsonObject, path: Path, pods: PodSet, job: TrainJob) -> Iterator[Setting]:
    trainer, initializer = job.spec.trainer, job.spec.initializer
    if trainer is not None and container.get("name") == NODE:
        for field in ("image", "command", "args"):
            if getattr(trainer, field):  # an empty list means the same as none
                yield Setting((*path, field), getattr(trainer, field), f"TrainJob spec.trainer.{field}")
        yield from _env(container, path, spelled_out(trainer.env), "TrainJob spec.trainer.env")
    if initializer is not None and container.get("name") == pods.ancestor:
        if pods.ancestor == DATASET_INITIALIZER and initializer.dataset is not None:
            yield from _of_initializer(container, path, initializer.dataset, "TrainJob spec.initializer.dataset")
        elif pods.ancestor == MODEL_INITIALIZER and initializer.model is not None:
            yield from _of_initializer(container, path, initializer.model, "TrainJob spec.initializer.model")


def _of_initializer(container: JsonObject, path: Path, source: InitializerSource, origin: str) -> Iterator[Setting]:
    yield from _env(container, path, spelled_out(source.env), f"{origin}.env")
    if source.storage_uri is not None:
        yield from _env(container, path, [env_value(STORAGE_URI_ENV, source.storage_uri)], f"{origin}.storageUri")
    if source.secret_ref is not None:
        for index, each in enumerate(container.get("envFrom") or []):
            if each == {"secretRef": source.secret_ref}:
                yield Setting((*path, "envFrom", index), each, f"{origin}.secretRef")


def _env(container: JsonObject, path: Path, variables: list[JsonObject], origin: str) -> Iterator[Setting]:
    by_name = {variable.get("name"): variable for variable in variables}
    for index, each in enumerate(container.get("env") or []):
        if each.get("name") in by_name:
            yield Setting((*path, "env", index), by_name[each["name"]], origin)
