"""TrainingRuntimes and ClusterTrainingRuntimes of early versions of Trainer."""

from __future__ import annotations

from typing import Any, Final

from trainmaster.runtime.api.constants import ANCESTOR_LABEL, API_VERSION, FRAMEWORK_LABEL, INTEL_MPI
from trainmaster.runtime.conversion.early.names import ANCESTORS, CONTAINERS, INITIALIZER, INITIALIZERS, JOBS
from trainmaster.runtime.conversion.metadata import convert_metadata
from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source, checked, objects
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_IMPLEMENTATIONS: Final = {"Intel": INTEL_MPI}


def convert_runtime(source: Source, notes: Notes, *, kind: str, early_names: bool) -> JsonObject:
    """Rewrite a runtime.

    Args:
        source: The runtime.
        notes: Where to tell what changes.
        kind: Which of the two kinds it is.
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
        if frameworks and early_names:
            metadata["labels"] = {FRAMEWORK_LABEL: frameworks[0], **metadata.get("labels", {})}
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
    lowest, highest = elastic.take("minNodes", int), elastic.take("maxNodes", int)
    if lowest is not None or highest is not None:
        nodes = policy.setdefault("numNodes", highest if lowest is None else lowest)
        path = elastic.at("maxNodes" if lowest is None else "minNodes")
        notes.lose(path, f"there are {nodes} nodes: a TrainJob keeps the number of its nodes")
        if lowest is not None and highest is not None:
            notes.lose(elastic.at("maxNodes"), "left out: a TrainJob keeps the number of its nodes")
    if elastic.take("maxRestarts", int) is not None:
        notes.lose(elastic.at("maxRestarts"), "left out: use torchrun --max-restarts, or failurePolicy of the JobSet")
    if elastic.take("metrics", list):
        notes.lose(elastic.at("metrics"), "left out: nothing changes the number of nodes of a TrainJob")
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
