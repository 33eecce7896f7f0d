"""Provenance: which step of a resolution set which field, for people who wonder where a value comes from.

Guarantee: each leaf of each object, that is each value that is no object or list, or an empty one, has one step: the
last one that changed it. Nothing here takes part in a resolution that is not traced.

The tracer of a resolution compares the working state before and after each step.

What a plugin builds has the steps of those trees of the Info that are in it as they are, and of which it has made a
copy of one level (`{**info.template, "suspend": True}`, `{**info.labels, "mine": "too"}`); all else in it is the
plugin's. Of what a plugin has copied from the TrainJob the step is the TrainJob, with the path in it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple, TypeAlias

from trainmaster.runtime.api.constants import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE, STORAGE_URI_ENV
from trainmaster.runtime.api.trainjob import InitializerSource, TrainJob
from trainmaster.runtime.canonical import spelled_out
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value

COMMAND: Final = "command"
"""Beside the template: `Info.trainer_command`."""

COUNTS: Final = "counts"
"""Beside the template: how many pods each pod set has."""

Steps: TypeAlias = "str | dict[str, Steps] | list[Steps]"

Path: TypeAlias = tuple[str | int, ...]

_KEYS: Final = ("name", "mountPath", "containerPort")
"""By what the elements of lists are told apart, where all of them have it and no two the same: of Kubernetes' merge
keys those that are in the templates of pods.
"""

_MOST_COMPARED: Final = 1_000_000
"""Pairs of elements of two lists; to find what they have in common takes a second or so for as many."""

RUNTIME: Final = "runtime"
SNAPSHOT: Final = "snapshot of the runtime"
METADATA: Final = "TrainJob metadata"
"""Of namespace and owner, which the framework adds."""


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


def set_by(step: str, tree: Any) -> Steps:
    """Return the steps of a tree that one step has set."""
    if isinstance(tree, dict) and tree:
        return {key: set_by(step, value) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and tree:
        return [set_by(step, value) for value in tree]
    return step


def carried(before: Any, steps: Steps, now: Any, step: str) -> Steps:
    """Return the steps of a tree after a step: of what it has changed or added that step, of the rest the old ones."""
    if now and isinstance(now, dict) and isinstance(before, dict) and isinstance(steps, dict):
        return {
            key: carried(before[key], steps[key], value, step) if key in before else set_by(step, value)
            for key, value in now.items()
        }
    if now and isinstance(now, list | tuple) and isinstance(before, list | tuple) and isinstance(steps, list):
        return [
            set_by(step, value) if place is None else carried(before[place], steps[place], value, step)
            for value, place in zip(now, _places(before, now), strict=True)
        ]
    if isinstance(steps, str) and type(before) is type(now) and before == now:
        return steps
    return set_by(step, now)


def settled(steps: Steps, tree: Any, other: str) -> Steps:
    """Return the steps of a tree of which some are known: a step in the place of a tree is that of all of it."""
    if isinstance(steps, str):
        return set_by(steps, tree)
    if tree and isinstance(tree, dict) and isinstance(steps, dict):
        return {
            key: settled(steps[key], value, other) if key in steps else set_by(other, value)
            for key, value in tree.items()
        }
    if tree and isinstance(tree, list) and isinstance(steps, list) and len(tree) == len(steps):
        return [settled(known, value, other) for known, value in zip(steps, tree, strict=True)]
    return set_by(other, tree)


def put(steps: Steps, path: Path, old: str, new: Steps) -> None:
    """Put other steps in the place of one of them, below a path.

    Args:
        steps: What is changed.
        path: It leads somewhere.
        old: The step that others take the place of; the rest below the path stays.
        new: A step, or a tree of steps of the shape that there is.
    """
    *above, last = path
    holder: Any = steps
    for part in above:
        holder = holder[part]
    holder[last] = _put(holder[last], old, new)


def _put(steps: Steps, old: str, new: Steps) -> Steps:
    if isinstance(steps, dict):
        return {key: _put(value, old, new[key] if isinstance(new, dict) else new) for key, value in steps.items()}
    if isinstance(steps, list):
        return [_put(value, old, new[index] if isinstance(new, list) else new) for index, value in enumerate(steps)]
    return new if steps == old else steps


def value_at(tree: Any, path: Path) -> Any:
    """Follow a path; None where it leads nowhere."""
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def leaves(tree: Any, steps: Steps, path: Path = ()) -> Iterator[tuple[Path, Any, str]]:
    """Iterate over the leaves of a tree with their paths and their steps."""
    if isinstance(steps, dict):
        for key, value in steps.items():
            yield from leaves(tree[key], value, (*path, key))
    elif isinstance(steps, list):
        for index, value in enumerate(steps):
            yield from leaves(tree[index], value, (*path, index))
    else:
        yield path, tree, steps


def _places(before: Sequence[Any], now: Sequence[Any]) -> list[int | None]:
    """Return for each element of a list where it was before, if it was."""
    if before == now:  # as most lists are after most steps
        return list(range(len(now)))
    for key in _KEYS:
        old, new = _names(before, key), _names(now, key)
        if old is not None and new is not None:
            places = {name: place for place, name in enumerate(old)}
            return [places.get(name) for name in new]
    found: list[int | None] = [None] * len(now)
    if len(before) * len(now) > _MOST_COMPARED:
        found[: len(before)] = range(min(len(before), len(now)))
        return found
    matcher = SequenceMatcher(None, list(map(repr, before)), list(map(repr, now)), autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag in ("equal", "replace"):  # what has been replaced may be so in part
            for offset in range(min(end - start, new_end - new_start)):
                found[new_start + offset] = start + offset
    return found


def _names(elements: Sequence[Any], key: str) -> list[Any] | None:
    names = [element.get(key) if isinstance(element, dict) else None for element in elements]
    if any(not isinstance(name, str | int) for name in names) or len(set(names)) < len(names):
        return None
    return names


class Provenance:
    """Traces one resolution."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self._trees: JsonObject = {}
        self._steps: Steps = {}
        self._built: dict[tuple[str, str, str], Steps] = {}

    def merged(self, step: str, info: Info) -> None:
        """Look at an Info in which there is one thing more."""
        self._advance(info, step)

    def enforced(self, plugin: str, phase: str, info: Info) -> None:
        """Look at an Info after a plugin had it."""
        self._advance(info, f"plugin {plugin} in {phase}")
        self._tell_settings(info, f"plugin {plugin} in {phase}")

    def built(self, plugin: str, info: Info, objects: Sequence[Desired]) -> None:
        """Look at what a plugin has built, and at what it has done to the Info meanwhile."""
        self.enforced(plugin, "build", info)
        step = f"plugin {plugin} in build"
        known = _Known()
        known.add(_trees(info), self._steps)
        known.add(info.runtime_template, set_by(RUNTIME, info.runtime_template))
        for desired in objects:
            steps = known.steps_of(desired.object, step)
            for path, value in (
                (("metadata", "name"), self._job.metadata.name),
                (("spec", "suspend"), self._job.spec.suspend),
            ):
                if value_at(desired.object, path) == value:
                    put(steps, path, step, f"TrainJob {'.'.join(path)}")
            # A copy of these has no trees in it by which it would be known: `{**info.labels, "mine": "too"}`.
            for field, tree in (("labels", info.labels), ("annotations", info.annotations)):
                for key, value in tree.items():
                    if value_at(desired.object, ("metadata", field, key)) == value:
                        put(steps, ("metadata", field, key), step, value_at(self._steps, (field, key)))
            self._built[desired.identity] = steps

    def steps(self, obj: JsonObject) -> Steps:
        """Return the steps of an object that came out."""
        return settled(self._built[Desired(obj).identity], obj, METADATA)

    def _advance(self, info: Info, step: str) -> None:
        trees = _trees(info)
        self._steps = carried(self._trees, self._steps, trees, step)
        self._trees = copy.deepcopy(trees)

    def _tell_settings(self, info: Info, step: str) -> None:
        """Tell what a plugin has copied from what it has made."""
        for path, value, origin in settings(info, self._job):
            if value_at(self._trees, path) == value:
                put(self._steps, path, step, origin)
        # What one plugin decides on, another one may put in place.
        for path, source in copies(info):
            value = value_at(self._trees, source)
            if value and value_at(self._trees, path) == value:
                put(self._steps, path, step, value_at(self._steps, source))


class _Known:
    """The trees whose steps are known, found again by their identity in what a plugin has built."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Any, Steps]] = {}
        self._holders: dict[int, tuple[JsonObject, dict[str, Steps]]] = {}

    def add(self, tree: Any, steps: Steps) -> None:
        """Add a tree that is not changed as long as this is used."""
        self._by_id.setdefault(id(tree), (tree, steps))
        if isinstance(tree, dict) and isinstance(steps, dict):
            for key, value in tree.items():
                if isinstance(value, dict | list):
                    self._holders.setdefault(id(value), (tree, steps))
                    self.add(value, steps[key])
        elif isinstance(tree, list) and isinstance(steps, list):
            for value, below in zip(tree, steps, strict=True):
                if isinstance(value, dict | list):
                    self.add(value, below)

    def steps_of(self, tree: Any, step: str) -> Steps:
        """Return the steps of a tree; what is not known is of `step`."""
        known = self._by_id.get(id(tree))
        if known is not None:
            return known[1]
        if tree and isinstance(tree, dict):
            original, steps = self._copied_from(tree)
            return {
                key: steps[key] if _is_same_leaf(original, key, value) else self.steps_of(value, step)
                for key, value in tree.items()
            }
        if tree and isinstance(tree, list | tuple):
            return [self.steps_of(value, step) for value in tree]
        return step

    def _copied_from(self, tree: JsonObject) -> tuple[JsonObject, dict[str, Steps]]:
        """Return the known tree of which this is a copy of one level: the one that holds the same trees."""
        for key, value in tree.items():
            if isinstance(value, dict | list):
                original, steps = self._holders.get(id(value), ({}, {}))
                if original.get(key) is value:
                    return original, steps
        return {}, {}


def _is_same_leaf(original: JsonObject, key: str, value: Any) -> bool:
    return key in original and not isinstance(value, dict | list) and original[key] == value


def _trees(info: Info) -> JsonObject:
    return {
        "labels": info.labels,
        "annotations": info.annotations,
        "template": info.template,
        COMMAND: info.trainer_command,
        COUNTS: {pods.name: pods.count for pods in info.pod_sets},
    }


def snapshot_steps(snapshot: JsonObject) -> Steps:
    """Return the steps of the snapshot of a runtime."""
    return settled({"data": RUNTIME, "metadata": METADATA}, snapshot, SNAPSHOT)


def job_steps(job: Job, obj: JsonObject) -> Steps:
    """Return the steps of an object that a job becomes: what a pod has of its template, and what the kind has set.

    What a gang scheduler has set counts as set by the kind.
    """
    step = f"kind {job.kind.kind}"
    replica_type = ((obj["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL) or "").lower()
    named = next((each for each in job.replica_specs if each.lower() == replica_type), None)
    if obj["kind"] != "Pod" or named is None:
        return set_by(step, obj)
    replica = job.replica_specs[named]
    origin = f"{job.kind.kind} spec.{job.kind.replica_specs_field}.{named}"
    before = {field: replica.template[field] for field in ("metadata", "spec") if replica.template.get(field)}
    steps = carried(before, set_by(f"{origin}.template", before), obj, step)
    if obj["spec"].get("restartPolicy") == replica.restart_policy:
        put(steps, ("spec", "restartPolicy"), step, f"{origin}.restartPolicy")
    return steps
