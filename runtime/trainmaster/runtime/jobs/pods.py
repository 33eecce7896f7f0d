"""The pods and services of a job, before anything is known of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from trainmaster.runtime.api.constants import ATTEMPTS_BEFORE_LABEL
from trainmaster.runtime.jobs.constants import EXIT_CODE, JOB_ROLE_LABEL, MASTER_ROLE, NEVER
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.labels import owner_reference, replica_labels
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resilience import prepare_pod

_HEADLESS: Final = "None"


def build_pod(job: Job, replica_type: str, index: int, gang: GangScheduler | None = None) -> JsonObject:
    """Build one pod.

    Args:
        gang: The gang scheduler, if there is one.
    """
    replica = job.replica_specs[replica_type]
    template: JsonObject = copy_tree(replica.template)
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **replica_labels(job, replica_type, index)}
    if job.kind.is_master_role(job, replica_type, index):
        labels[JOB_ROLE_LABEL] = MASTER_ROLE
    pod: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **{field: metadata[field] for field in ("annotations", "finalizers") if metadata.get(field)},
            "name": job.kind.pod_name(job, replica_type, index),
            "namespace": job.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": template.get("spec") or {},
    }
    policy = replica.restart_policy
    pod["spec"]["restartPolicy"] = NEVER if policy == EXIT_CODE or job.restarts_together else policy
    if job.resilience is not None:
        labels[ATTEMPTS_BEFORE_LABEL] = "0"
        prepare_pod(pod, job.resilience)
    job.kind.set_cluster_spec(job, pod, replica_type, index)
    if gang is not None:
        gang.mark(job, pod, replica_type)
    return pod


def build_service(job: Job, replica_type: str, index: int) -> JsonObject:
    """Build the headless Service by whose name the others find a pod.

    It publishes the address of a pod that is not ready yet: whoever waits for it may be what it waits for (V1-B21).
    """
    labels = replica_labels(job, replica_type, index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.kind.pod_name(job, replica_type, index),
            "namespace": job.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": _HEADLESS,
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": service_ports(job, replica_type),
        },
    }


def service_ports(job: Job, replica_type: str) -> list[JsonObject]:
    """Return the ports of a type's Services: those of the container that trains, each number of a protocol once.

    A Service that has several ports needs a name for each (core/v1), so unnamed ones are called by their number. Of
    several names for one number that of the kind counts, else the first.
    """
    given: list[JsonObject] = training_container(job, replica_type).get("ports") or []
    ports: dict[tuple[int, str], JsonObject] = {}
    for port in given:
        number, protocol = port["containerPort"], port.get("protocol", "TCP")
        name = port.get("name") or f"port-{number}"
        if (number, protocol) not in ports or name == job.kind.port_name:
            rest = {} if protocol == "TCP" else {"protocol": protocol}
            ports[number, protocol] = {"name": name, "port": number, **rest}
    return list(ports.values())


def training_container(job: Job, replica_type: str) -> JsonObject:
    """Return the container of a type that trains: that of the kind's name, or the first; empty if there is none."""
    containers = (job.replica_specs[replica_type].template.get("spec") or {}).get("containers") or []
    named = [each for each in containers if each.get("name") == job.kind.container_name]
    candidates = named or (containers if job.kind.any_container else [])
    return candidates[0] if candidates else {}


def trainer_of(job: Job, replica_type: str) -> str:
    """Return the name of the container of a type that trains."""
    return str(training_container(job, replica_type).get("name") or job.kind.container_name)


def training_port(job: Job, replica_type: str) -> int:
    """Return the port of the kind's name in the container that trains; the kind's own if there is none."""
    ports = training_container(job, replica_type).get("ports") or []
    named = (port["containerPort"] for port in ports if port.get("name") == job.kind.port_name)
    return next(named, job.kind.port)


def owned(job: Job, obj: JsonObject) -> JsonObject:
    """Complete an object that a kind has built, with namespace and owner where they are missing."""
    return {
        **obj,
        "metadata": {"namespace": job.namespace, "ownerReferences": [owner_reference(job)], **obj["metadata"]},
    }


def job_objects(job: Job, gang: GangScheduler | None = None) -> Iterator[JsonObject]:
    """Build what a job becomes, in the order of writing; what its kind builds is that for pods which exist."""
    pods = {
        replica_type: [build_pod(job, replica_type, index, gang) for index in range(replica.replicas)]
        for replica_type, replica in job.replica_specs.items()
    }
    for obj in job.kind.build(job, list(chain.from_iterable(pods.values())), NO_LISTERS):
        yield owned(job, obj)
    if gang is not None:
        yield gang.pod_group(job, None, {})
    for replica_type, of_type in pods.items():
        yield from of_type
        for index in range(len(of_type) if job.kind.has_services else 0):
            yield build_service(job, replica_type, index)
