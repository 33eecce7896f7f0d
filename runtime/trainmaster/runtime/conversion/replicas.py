"""The pods of a V1 job, as written, and how they are grouped into the ReplicatedJobs of a JobSet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.conversion.hosts import JOBSET_NAME
from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.restarts import POLICIES
from trainmaster.runtime.conversion.source import Source, checked, objects
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.jsontree import JsonObject

MAX_PODS: Final = 10_000
"""Of one job. Each has a name in the variables of all others; these would not fit into an object any more."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one type."""

    type: str
    count: int
    restart_policy: str
    template: JsonObject
    path: str
    """For instance `spec.pytorchReplicaSpecs.Worker`."""

    @property
    def word(self) -> str:
        """The type as it stands in names and labels."""
        return self.type.lower()

    @property
    def containers(self) -> list[JsonObject]:
        """The containers of its pods."""
        found: list[JsonObject] = self.template["spec"]["containers"]
        return found

    def place_of(self, name: str) -> int | None:
        """Return the place of a container."""
        return next((place for place, each in enumerate(self.containers) if each.get("name") == name), None)

    def port(self, container: str, name: str, default: int) -> int:
        """Return the port of that name that a container declares."""
        place = self.place_of(container)
        ports = (self.containers[place].get("ports") if place is not None else None) or []
        return next((port["containerPort"] for port in ports if port.get("name") == name), default)


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are the same but for their index: a ReplicatedJob."""

    name: str
    members: Sequence[tuple[Replicas, range]]
    """The replicas of V1 that are in it, in the order of their new indexes."""

    main: int = 0
    """The place of the container that trains."""

    is_node: bool = False
    """Whether that container is called `node`."""

    is_trainer: bool = False
    """Whether the TrainJob's `trainer` speaks of it."""

    is_spread: bool = False
    """Whether each pod is a Job of its own, so that pods know their index among all of the JobSet."""

    @property
    def replicas(self) -> Replicas:
        """Those whose template all members have."""
        return self.members[0][0]

    @property
    def count(self) -> int:
        """How many pods it has."""
        return sum(len(indexes) for _, indexes in self.members)


def read_replicas(
    source: Source, types: Sequence[str], default_policy: str, *, defaults: Mapping[str, int]
) -> list[Replicas]:
    """Read the replicas of a job, in the order of the types.

    Raises:
        ConversionError: They are not those of a job that Training Operator V1 would run.
    """
    if not source.names:
        raise ConversionError(source.path, "is missing or empty; every job has replicas")
    canonical = {each.lower(): each for each in types}
    found: dict[str, Replicas] = {}
    for name in source.names:
        type_ = canonical.get(name.lower())
        if type_ is None:
            raise ConversionError(source.at(name), f"is no type of replicas {did_you_mean(name, types)}")
        if type_ in found:
            raise ConversionError(source.at(name), f"{type_} is there twice")
        found[type_] = _replicas(type_, source.part(name), default_policy, default=defaults.get(type_, 1))
    ordered = [found[each] for each in types if each in found]
    pods = sum(each.count for each in ordered)
    if not pods:
        raise ConversionError(source.path, "has no replicas; a TrainJob has one node at least, and can be suspended")
    if pods > MAX_PODS:
        raise ConversionError(source.path, f"has {pods} pods; a job is converted if it has {MAX_PODS} or fewer")
    return ordered


def _replicas(type_: str, source: Source, default_policy: str, *, default: int) -> Replicas:
    count = source.take("replicas", int)
    if count is not None and count < 0:
        raise ConversionError(source.at("replicas"), f"must not be negative, but is {count}")
    policy = source.take("restartPolicy", str) or default_policy
    if policy not in POLICIES:
        raise ConversionError(source.at("restartPolicy"), f'"{policy}" is none of {", ".join(POLICIES)}')
    template = source.take("template", dict) or {}
    path = source.at("template.spec")
    pod_spec = checked(template.get("spec") or {}, dict, path)
    for field in ("containers", "initContainers", "volumes"):
        objects(checked(pod_spec.get(field) or [], list, f"{path}.{field}"), f"{path}.{field}")
    for field in ("containers", "initContainers"):
        for place, container in enumerate(pod_spec.get(field) or []):
            _check_container(container, f"{path}.{field}[{place}]")
            if field == "containers" and not container.get("image"):
                raise ConversionError(f"{path}.{field}[{place}].image", "is missing")
    if not pod_spec.get("containers"):
        raise ConversionError(f"{path}.containers", "must be specified: a pod needs a container")
    _check_metadata(template, source.at("template.metadata"))
    return Replicas(type_, default if count is None else count, policy, template, source.path)


def _check_container(container: JsonObject, path: str) -> None:
    """Check the shape of what is read or changed later."""
    checked(container.get("name"), str, f"{path}.name")
    for field in ("command", "args"):
        checked(container.get(field) or [], list, f"{path}.{field}")
    for field in ("env", "ports"):
        members = objects(checked(container.get(field) or [], list, f"{path}.{field}"), f"{path}.{field}")
        for place, member in enumerate(members):
            if field == "env":
                checked(member.get("name"), str, f"{path}.env[{place}].name")
            else:
                checked(member.get("containerPort"), int, f"{path}.ports[{place}].containerPort")
    checked(container.get("resources") or {}, dict, f"{path}.resources")


def _check_metadata(template: JsonObject, path: str) -> None:
    metadata = checked(template.get("metadata") or {}, dict, path)
    for field in ("labels", "annotations"):
        checked(metadata.get(field) or {}, dict, f"{path}.{field}")


def new_names(job: str, groups: Iterable[Group], *, indexless: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the new host name of each pod, by its old name.

    Args:
        job: The name of the job; nothing if it is generated.
        groups: All of its pods.
        indexless: Types whose only pod has no index in its old name.
    """
    jobset = job or f"$({JOBSET_NAME})"
    names = {}
    for group in groups:
        new = 0
        for replicas, indexes in group.members:
            for index in indexes:
                place = f"{new}-0" if group.is_spread else f"0-{new}"
                names[old_name(job, replicas, index, indexless=indexless)] = f"{jobset}-{group.name}-{place}.{jobset}"
                new += 1
    return names


def old_name(job: str, replicas: Replicas, index: int, *, indexless: frozenset[str] = frozenset()) -> str:
    """Return what a pod of a V1 job is called."""
    return f"{job}-{replicas.word}" if replicas.type in indexless else f"{job}-{replicas.word}-{index}"
