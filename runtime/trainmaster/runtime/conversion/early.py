"""What the kinds of early versions of Trainer are in today's words.

podSpecOverrides and podTemplateOverrides: runtimePatches now.

An override names several ReplicatedJobs and applies to each; a patch has a list of them. Variables of the main
containers cannot be patched: they stand in `spec.trainer` and `spec.initializer`, which always had precedence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    API_VERSION,
    DATASET_INITIALIZER,
    FRAMEWORK_LABEL,
    GROUP,
    INTEL_MPI,
    LAUNCHER,
    MANAGED_BY_TRAINER,
    MODEL_INITIALIZER,
    NODE,
    TRAINER_ANCESTOR,
    TRAINJOB_KIND,
)
from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source, checked, convert_metadata, drop_status, objects
from trainmaster.runtime.jsontree import JsonObject, copy_tree

INITIALIZER: Final = "initializer"
"""The one Job that had both initializers; each is a Job of its own now."""

JOBS: Final = {"trainer-node": NODE, LAUNCHER: LAUNCHER}
"""ReplicatedJobs that have another name, or none of their own meaning, now."""

CONTAINERS: Final = {"trainer": NODE}

ANCESTORS: Final = {
    NODE: TRAINER_ANCESTOR,
    DATASET_INITIALIZER: DATASET_INITIALIZER,
    MODEL_INITIALIZER: MODEL_INITIALIZER,
}
"""The step of a ReplicatedJob, which was known by its name."""

INITIALIZERS: Final = (DATASET_INITIALIZER, MODEL_INITIALIZER)


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

_IMPLEMENTATIONS: Final = {"Intel": INTEL_MPI}

EARLY_GROUP: Final = "kubeflow.org"
_MANAGERS: Final = {f"{EARLY_GROUP}/trainjob-controller": MANAGED_BY_TRAINER}
_STAY: Final = ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
OLD_FIELDS: Final = {
    "datasetConfig": "initializer.dataset",
    "modelConfig": "initializer.model",
    "labels": "runtimePatches",
    "annotations": "runtimePatches",
    "podSpecOverrides": "runtimePatches",
    "podTemplateOverrides": "runtimePatches",
}
"""Fields of a TrainJob's spec that there are no more, and what has taken their place."""


@dataclass(slots=True)
class Overrides:
    """What was read of all overrides."""

    patches: list[JsonObject] = dataclasses.field(default_factory=list)
    containers: dict[str, JsonObject] = dataclasses.field(default_factory=dict)
    """command, args and env of the main containers, by their names."""


def convert_overrides(source: Source, notes: Notes, *, early_names: bool) -> Overrides:
    """Read the overrides of a TrainJob.

    Args:
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
    jobs = list(dict.fromkeys(_renamed_override(targets, spec, early=early)))
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


def _renamed_override(targets: list[str], spec: JsonObject, *, early: bool) -> Iterator[str]:
    for target in targets:
        if not early:
            yield target
        elif target != INITIALIZER:
            yield JOBS.get(target, target)
        else:
            # Containers can only be changed in the Job that has them.
            names = [each["name"] for field in ("containers", "initContainers") for each in spec.get(field, [])]
            yield from [name for name in INITIALIZERS if name in names] or INITIALIZERS


def convert_runtime(source: Source, notes: Notes, *, kind: str, early_names: bool) -> JsonObject:
    """Rewrite a runtime.

    Args:
        early_names: Whether it is one of v2alpha1, so that Jobs and containers have other names.

    Raises:
        ConversionError: A field has the wrong type.
    """
    metadata = convert_metadata(source.part("metadata"), notes)
    old = source.part("spec")
    spec: JsonObject = {}
    policy = _policy(old.part("mlPolicy"), notes)
    if policy:
        spec["mlPolicy"] = policy
        frameworks = [name for name in policy if name != "numNodes"]
        if early_names:  # the Kubeflow SDK reads no runtime without it
            metadata["labels"] = {FRAMEWORK_LABEL: (*frameworks, "plain")[0], **metadata.get("labels", {})}
    for field in ("podGroupPolicy", "runPolicy"):
        if value := old.take(field, dict):
            spec[field] = value
    if template := old.take("template", dict):
        spec["template"] = _template(template, old.at("template"), notes) if early_names else template
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _policy(old: Source, notes: Notes) -> JsonObject:
    policy: JsonObject = {}
    if (nodes := old.take("numNodes", int)) is not None:
        policy["numNodes"] = nodes
    if "torch" in old:
        torch = old.part("torch")
        policy["torch"] = _torch(torch, policy, notes)
    if mpi := old.take("mpi", dict):
        implementation = mpi.get("mpiImplementation")
        if implementation in _IMPLEMENTATIONS:
            mpi["mpiImplementation"] = _IMPLEMENTATIONS[implementation]
            notes.tell(old.at("mpi.mpiImplementation"), f"becomes {mpi['mpiImplementation']}")
        policy["mpi"] = mpi
    return policy | old.take_all()


def _torch(torch: Source, policy: JsonObject, notes: Notes) -> JsonObject:
    new: JsonObject = {}
    processes: Any = torch.take("numProcPerNode", object)
    if isinstance(processes, str) and processes.isdecimal():
        processes = int(processes)
    if processes is not None:
        new["numProcPerNode"] = processes
    elastic = torch.part("elasticPolicy")
    if elastic.take("metrics", list):
        notes.lose(elastic.at("metrics"), "left out: write a HorizontalPodAutoscaler for the TrainJob yourself")
    if limits := elastic.take_all():
        new["elasticPolicy"] = limits
        policy.setdefault("numNodes", limits.get("minNodes", limits.get("maxNodes", 1)))
    return new | torch.take_all()


def _template(template: JsonObject, path: str, notes: Notes) -> JsonObject:
    """Give Jobs, containers and steps their present names."""
    spec = checked(template.get("spec") or {}, dict, f"{path}.spec")
    old = objects(
        checked(spec.get("replicatedJobs") or [], list, f"{path}.spec.replicatedJobs"), f"{path}.spec.replicatedJobs"
    )
    jobs: list[JsonObject] = []
    names: dict[str, list[str]] = {}
    for place, job in enumerate(old):
        where = f"{path}.spec.replicatedJobs[{place}]"
        name = checked(job.get("name"), str, f"{where}.name")
        new = _split(job, where, notes) if name == INITIALIZER else [_renamed(job, JOBS.get(name, name), where, notes)]
        jobs += new
        names[name] = [each["name"] for each in new]
    if jobs:
        spec["replicatedJobs"] = jobs
    for job in jobs:
        if job.get("dependsOn"):
            job["dependsOn"] = [
                {**each, "name": name}
                for each in job["dependsOn"]
                for name in names.get(each.get("name"), [each.get("name")])
            ]
    _retarget(spec.get("successPolicy"), names)
    for rule in (spec.get("failurePolicy") or {}).get("rules") or ():
        _retarget(rule, names)
    if coordinator := spec.get("coordinator"):
        coordinator["replicatedJob"] = names.get(coordinator.get("replicatedJob"), [coordinator.get("replicatedJob")])[
            0
        ]
    return {**template, "spec": spec}


def _retarget(holder: JsonObject | None, names: dict[str, list[str]]) -> None:
    if holder and holder.get("targetReplicatedJobs"):
        holder["targetReplicatedJobs"] = [
            new for old in holder["targetReplicatedJobs"] for new in names.get(old, [old])
        ]


def _renamed(job: JsonObject, name: str, path: str, notes: Notes) -> JsonObject:
    if name != job["name"]:
        notes.tell(f"{path}.name", f'becomes "{name}"')
    job["name"] = name
    for place, container in enumerate(_containers(job, path)):
        if container.get("name") in CONTAINERS:
            container["name"] = CONTAINERS[container["name"]]
            field = f"{path}.template.spec.template.spec.containers[{place}].name"
            notes.tell(field, f'becomes "{container["name"]}"')
    if name in ANCESTORS:
        metadata = job.setdefault("template", {}).setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), ANCESTOR_LABEL: ANCESTORS[name]}
    return job


def _split(job: JsonObject, path: str, notes: Notes) -> list[JsonObject]:
    """Make a Job of each initializer."""
    there = [each.get("name") for each in _containers(job, path)]
    jobs = []
    for name in INITIALIZERS:
        if name not in there:
            continue
        own = copy_tree(job)
        pod_spec = own["template"]["spec"]["template"]["spec"]
        for field in ("containers", "initContainers"):
            kept = [each for each in pod_spec.get(field) or [] if each.get("name") not in set(INITIALIZERS) - {name}]
            if field in pod_spec:
                pod_spec[field] = kept
        if not pod_spec["containers"]:
            raise ConversionError(path, f"the container {name} must be no init container")
        jobs.append(_renamed(own, name, path, Notes()))
    if not jobs:
        return [job]
    split = " and ".join(each["name"] for each in jobs)
    notes.tell(f"{path}.name", f"becomes {split}: each initializer is a Job of its own")
    return jobs


def _containers(job: JsonObject, path: str) -> list[JsonObject]:
    where = f"{path}.template.spec.template.spec"
    node: Any = job
    for field in ("template", "spec", "template", "spec"):
        node = checked((node or {}).get(field) or {}, dict, where)
    found = [*(node.get("containers") or []), *(node.get("initContainers") or [])]
    return objects(found, f"{where}.containers")


def convert_trainjob(source: Source, notes: Notes, *, early_names: bool) -> JsonObject:
    """Rewrite a TrainJob.

    Args:
        early_names: Whether it is one of v2alpha1, so that Jobs and containers have other names.

    Raises:
        ConversionError: It is none that an early Trainer would have run.
    """
    metadata = convert_metadata(source.part("metadata"), notes)
    drop_status(source, notes)
    old = source.part("spec")
    spec: JsonObject = {"runtimeRef": _runtime_ref(old)}
    overrides = convert_overrides(old, notes, early_names=early_names)
    if initializer := _initializer(old, overrides, notes):
        spec["initializer"] = initializer
    if trainer := _trainer(old, overrides, notes):
        spec["trainer"] = trainer
    patches = [*(old.take("runtimePatches", list) or []), *_metadata_patch(old, notes), *overrides.patches]
    if patches:
        spec["runtimePatches"] = patches
    for name in _STAY:
        if (value := old.take(name, object)) is not None:
            spec[name] = value
    if manager := old.take("managedBy", str):
        spec["managedBy"] = _MANAGERS.get(manager, manager)
        if manager in _MANAGERS:
            notes.tell(old.at("managedBy"), f"becomes {_MANAGERS[manager]}")
    return {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "metadata": metadata, "spec": spec}


def _runtime_ref(old: Source) -> JsonObject:
    reference = old.take("runtimeRef", dict)
    if not reference or not reference.get("name"):
        raise ConversionError(old.at("runtimeRef.name"), "is missing")
    if reference.get("apiGroup") == EARLY_GROUP:
        reference["apiGroup"] = GROUP
    return reference


def _initializer(old: Source, overrides: Overrides, notes: Notes) -> JsonObject:
    initializer = old.take("initializer", dict) or {}
    if dataset := old.take("datasetConfig", dict):
        initializer["dataset"] = dataset
    model = old.part("modelConfig")
    if given := model.take("input", dict):
        initializer["model"] = given
    if model.take("output", dict):
        notes.lose(
            model.at("output"), "left out: nothing exports models; let the training write the model to its place"
        )
    for name, field in ((DATASET_INITIALIZER, "dataset"), (MODEL_INITIALIZER, "model")):
        env = overrides.containers.get(name, {}).get("env")
        if env:
            initializer.setdefault(field, {})["env"] = _merged(env, initializer.get(field, {}).get("env"))
    return initializer


def _trainer(old: Source, overrides: Overrides, notes: Notes) -> JsonObject:
    trainer = old.take("trainer", dict) or {}
    for field, value in overrides.containers.get(NODE, {}).items():
        trainer[field] = _merged(value, trainer.get("env")) if field == "env" else trainer.get(field) or value
    if (processes := trainer.pop("numProcPerNode", None)) is not None:
        number = _process_count(processes, old.at("trainer.numProcPerNode"), notes)
        if number is not None:
            trainer["numProcPerNode"] = number
    return trainer


def _process_count(value: Any, path: str, notes: Notes) -> int | None:
    """Return a number of processes; words have another place."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if value == "auto":
        notes.tell(path, '"auto" is left out: it is what counts without it')
    elif value in ("cpu", "gpu"):
        notes.lose(path, f'"{value}" is left out: only the runtime can say so, in mlPolicy.torch.numProcPerNode')
    else:
        raise ConversionError(path, f"must be a number, auto, cpu or gpu, not {value!r:.80}")
    return None


def _metadata_patch(old: Source, notes: Notes) -> list[JsonObject]:
    """Labels and annotations of a TrainJob's spec were those of its JobSet."""
    metadata = {field: value for field in ("labels", "annotations") if (value := old.take(field, dict))}
    for field in metadata:
        notes.tell(old.at(field), "moves to runtimePatches: it is for the JobSet")
    return (
        [{"manager": f"{MANAGER}-metadata", "trainingRuntimeSpec": {"template": {"metadata": metadata}}}]
        if metadata
        else []
    )


def _merged(env: list[JsonObject], winning: list[JsonObject] | None) -> list[JsonObject]:
    """Merge variables by name."""
    by_name = {each["name"]: each for each in env}
    return list((by_name | {each["name"]: each for each in winning or ()}).values())
