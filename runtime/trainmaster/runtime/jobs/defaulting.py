"""Defaulting and reading of a job. It happens in memory: what is stored stays as its author wrote it.

Rules, as in the Training Operator V1: keys of the replica map in any case, `replicas`, `restartPolicy`,
`cleanPodPolicy`, the port of the container that trains; then those of the kind.
"""

from __future__ import annotations

from typing import Any

from trainmaster.runtime.api.decoding import ApiTypeError, parse_part
from trainmaster.runtime.api.meta import ObjectMeta
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.types import Replicas, ReplicaSpec, RunPolicy
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.resilience import group_policy


def parse_job(kind: JobKind, raw: JsonObject) -> Job:
    """Read a job, defaulted.

    Args:
        raw: The object, as it is stored or was sent; it is not changed.

    Raises:
        ApiTypeError: A field has the wrong type; nothing is coerced.
    """
    metadata = parse_part(ObjectMeta, raw.get("metadata"), "metadata")
    spec: JsonObject = dict(_object(raw.get("spec"), "spec"))
    run_policy = kind.run_policy(parse_part(RunPolicy, spec.get("runPolicy"), "spec.runPolicy"), spec)
    path = f"spec.{kind.replica_specs_field}"
    given = _object(spec.get(kind.replica_specs_field), path)
    canonical = {canonical_type(kind, each, given): value for each, value in given.items()}
    replica_specs = {
        each: _replica_spec(kind, each, parse_part(Replicas, canonical[each], f"{path}.{each}"))
        for each in sorted(canonical, key=lambda each: rank_of(kind, each))
    }
    spec = {name: copy_tree(value) for name, value in spec.items() if name != kind.replica_specs_field}
    job = Job(
        kind=kind,
        metadata=metadata,
        run_policy=run_policy,
        replica_specs=replica_specs,
        spec=spec,
        status=_object(raw.get("status"), "status"),
        raw=raw,
        resilience=group_policy(metadata.annotations, metadata.uid),
    )
    kind.default(job)
    return job


def canonical_type(kind: JobKind, name: str, given: JsonObject) -> str:
    """Return how a replica type is written whose author may have used other cases, for instance `worker`."""
    if name in kind.replica_types:
        return name
    same = next((each for each in kind.replica_types if each.lower() == name.lower()), name)
    return name if same in given else same


def rank_of(kind: JobKind, replica_type: str) -> tuple[int, str]:
    """Return the place of a replica type: known ones in the order of the kind, then others by name."""
    known = kind.replica_types
    return (known.index(replica_type), "") if replica_type in known else (len(known), replica_type)


def _replica_spec(kind: JobKind, replica_type: str, given: Replicas) -> ReplicaSpec:
    replicas = given.replicas if given.replicas is not None else kind.default_replicas(replica_type)
    return ReplicaSpec(
        replicas=replicas,
        template=_with_default_port(kind, given.template),
        restart_policy=given.restart_policy or kind.default_restart_policy,
    )


def _with_default_port(kind: JobKind, template: JsonObject) -> JsonObject:
    containers = (template.get("spec") or {}).get("containers") or []
    if not kind.port_name or not containers:
        return template
    names = [each.get("name") for each in containers]
    place = names.index(kind.container_name) if kind.container_name in names else 0
    ports = containers[place].get("ports") or []
    if any(port.get("name") == kind.port_name for port in ports):
        return template
    with_port = {**containers[place], "ports": [*ports, {"name": kind.port_name, "containerPort": kind.port}]}
    containers = [*containers[:place], with_port, *containers[place + 1 :]]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _object(value: Any, path: str) -> JsonObject:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiTypeError([f"{path}: must be an object"])
    return value
