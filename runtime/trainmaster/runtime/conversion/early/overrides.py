"""podSpecOverrides and podTemplateOverrides: runtimePatches now.

An override names several ReplicatedJobs and applies to each; a patch has a list of them. Variables of the main
containers cannot be patched: they stand in `spec.trainer` and `spec.initializer`, which always had precedence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.api.constants import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE
from trainmaster.runtime.conversion.early.names import CONTAINERS, INITIALIZER, INITIALIZERS, JOBS
from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source, checked, objects
from trainmaster.runtime.jsontree import JsonObject, copy_tree

MANAGER: Final = "trainer.kubeflow.org/overrides"
"""Whose patches they are; several are numbered, since each manager has one."""

_UNKNOWN_MANAGER: Final = "trainer.kubeflow.org/unknown"
_MAX_PATCHES: Final = 16
_POD_FIELDS: Final = (
    *("serviceAccountName", "nodeSelector", "affinity", "tolerations", "volumes", "schedulingGates"),
    *("imagePullSecrets", "securityContext", "terminationGracePeriodSeconds"),
)
_CONTAINER_FIELDS: Final = ("volumeMounts", "securityContext")
_MAIN: Final = (NODE, DATASET_INITIALIZER, MODEL_INITIALIZER)


@dataclass(slots=True)
class Overrides:
    """What was read of all overrides."""

    patches: list[JsonObject] = dataclasses.field(default_factory=list)
    containers: dict[str, JsonObject] = dataclasses.field(default_factory=dict)
    """command, args and env of the main containers, by their names."""


def convert_overrides(source: Source, notes: Notes, *, early_names: bool) -> Overrides:
    """Read the overrides of a TrainJob.

    Args:
        source: Its spec.
        notes: Where to tell what is lost.
        early_names: Whether Jobs and containers still have the names of v2alpha1.

    Raises:
        ConversionError: A field has the wrong type, or there are too many.
    """
    read = Overrides()
    for name in ("podSpecOverrides", "podTemplateOverrides"):
        found = objects(source.take(name, list) or [], source.at(name))
        for place, each in enumerate(found):
            path = f"{source.at(name)}[{place}]"
            _convert(Source(each, path), read, notes, is_template=name == "podTemplateOverrides", early=early_names)
    if len(read.patches) > _MAX_PATCHES:
        raise ConversionError(source.path, f"has {len(read.patches)} overrides, but only {_MAX_PATCHES} patches can be")
    managers: set[str] = set()
    for number, patch in enumerate(read.patches, start=1):
        if not patch["manager"] or patch["manager"] in managers:
            patch["manager"] = f"{MANAGER}-{number}" if len(read.patches) > 1 else MANAGER
        managers.add(patch["manager"])
    return read


def _convert(source: Source, read: Overrides, notes: Notes, *, is_template: bool, early: bool) -> None:
    targets = [
        checked(each.get("name"), str, f"{source.at('targetJobs')}[{place}].name")
        for place, each in enumerate(objects(source.take("targetJobs", list) or [], source.at("targetJobs")))
    ]
    manager = source.take("manager", str)
    if source.take("time", str):
        notes.tell(source.at("time"), "left out: the API server sets it")
    template: JsonObject = {}
    if is_template and (metadata := source.take("metadata", dict)):
        template["metadata"] = metadata
    pod = source.part("spec") if is_template else source
    spec = {name: value for name in _POD_FIELDS if (value := pod.take(name, object)) is not None}
    for name in ("initContainers", "containers"):
        containers = objects(pod.take(name, list) or [], pod.at(name))
        changes = [
            change
            for place, each in enumerate(containers)
            if (change := _container(Source(each, f"{pod.at(name)}[{place}]"), read, notes, early=early))
        ]
        if changes:
            spec[name] = changes
    if spec:
        template["spec"] = spec
    for path in source.left():
        notes.tell(path, "left out: overrides had no such field")
    jobs = list(dict.fromkeys(_renamed(targets, spec, early=early)))
    if template and jobs:
        patched = [{"name": name, "template": {"spec": {"template": copy_tree(template)}}} for name in jobs]
        named = "" if manager in (None, _UNKNOWN_MANAGER) else manager
        spec_patch = {"template": {"spec": {"replicatedJobs": patched}}}
        read.patches.append({"manager": named, "trainingRuntimeSpec": spec_patch})
    elif template:
        notes.lose(source.path, "left out: it names no Job to apply to; give the runtime's as targetJobs")


def _container(source: Source, read: Overrides, notes: Notes, *, early: bool) -> JsonObject:
    given = source.take("name", str)
    if not given:
        raise ConversionError(source.at("name"), "is missing")
    name = CONTAINERS.get(given, given) if early else given
    if name != given:
        notes.tell(source.at("name"), f'becomes "{name}", as runtimes call that container now')
    change = {field: value for field in _CONTAINER_FIELDS if (value := source.take(field, object)) is not None}
    env = source.take("env", list) or []
    texts = {field: value for field in ("command", "args") if (value := source.take(field, list))}
    if name in _MAIN:
        main = read.containers.setdefault(name, {})
        if env:
            known = {each["name"]: each for each in main.get("env", [])}
            main["env"] = list((known | {each["name"]: each for each in objects(env, source.at("env"))}).values())
            notes.tell(source.at("env"), f"moves to where variables of the container {name} are set")
        if name == NODE:
            main |= texts
            texts = {}
    elif env:
        change["env"] = env
    for field in texts:
        notes.lose(source.at(field), "left out: patches cannot change it; let the runtime say it")
    if source.take("envFrom", list):
        notes.lose(source.at("envFrom"), "left out: patches cannot change it; let the runtime say it")
    return {"name": name, **change} if change else {}


def _renamed(targets: list[str], spec: JsonObject, *, early: bool) -> Iterator[str]:
    for target in targets:
        if not early:
            yield target
        elif target != INITIALIZER:
            yield JOBS.get(target, target)
        else:
            # Containers can only be changed in the Job that has them.
            names = [each["name"] for field in ("containers", "initContainers") for each in spec.get(field, [])]
            yield from [name for name in INITIALIZERS if name in names] or INITIALIZERS
