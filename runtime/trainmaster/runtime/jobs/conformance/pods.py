"""The pods, Services and other objects of a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from trainmaster.runtime.jobs.conformance.calls import unkept
from trainmaster.runtime.jobs.constants import EXIT_CODE, JOB_ROLE_LABEL, NEVER
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.labels import owner_reference, replica_labels
from trainmaster.runtime.jobs.pods import build_pod, build_service
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.names import dns_label, dns_label_1035, dns_subdomain

MOST_PODS: Final = 3
"""Pods of a type that are built: there may be thousands."""


def built(job: Job) -> Iterator[tuple[str, int, JsonObject]]:
    """Build the pods of a job, the first ones of each type: each with its type and index."""
    for replica_type, spec in job.replica_specs.items():
        for index in range(min(spec.replicas, MOST_PODS)):
            yield replica_type, index, build_pod(job, replica_type, index)


def check_pods(job: Job) -> Iterator[str]:
    """Return what is wrong with the pods and Services of a job."""
    yield from unkept(job, "set_cluster_spec", lambda: list(built(job)))
    names: dict[str, str] = {}
    for replica_type, index, pod in built(job):
        metadata, place = pod.get("metadata") or {}, f"the pod {index} of {replica_type}"
        name = metadata.get("name")
        if name != job.kind.pod_name(job, replica_type, index):
            yield f"set_cluster_spec changes the name of {place}; give it by pod_name"
            continue
        if name in names:
            yield f"pod_name gives {place} the name of {names[name]}, {name!r}"
        names[name] = place
        yield from (f"pod_name of {place}, {name!r}: {problem}" for problem in dns_label(name))
        if metadata.get("namespace") != job.namespace or metadata.get("ownerReferences") != [owner_reference(job)]:
            yield f"set_cluster_spec changes namespace or owner of {place}"
        labels = replica_labels(job, replica_type, index)
        if {key: value for key, value in (metadata.get("labels") or {}).items() if key in labels} != labels:
            yield f"set_cluster_spec changes labels of {place} by which it is found"
        yield from _pod_spec(job, replica_type, pod["spec"], place)
        if job.kind.has_services:
            yield from _service(build_service(job, replica_type, index), place)
    leading = [pod for _, _, pod in built(job) if JOB_ROLE_LABEL in pod["metadata"]["labels"]]
    if not leading and job.kind.leading_type(job) == job.kind.leading_types[0]:
        yield "is_master_role is true of no pod, so nobody knows whose log tells of the job"


def _pod_spec(job: Job, replica_type: str, spec: JsonObject, place: str) -> Iterator[str]:
    replica = job.replica_specs[replica_type]
    if spec.get("restartPolicy") != (NEVER if replica.restart_policy == EXIT_CODE else replica.restart_policy):
        yield f"set_cluster_spec changes the restart policy of {place}"
    template = replica.template.get("spec") or {}
    for given, made in zip(template.get("containers") or [], spec.get("containers") or [], strict=False):
        if (given["name"], given.get("image")) != (made.get("name"), made.get("image")):
            yield f"set_cluster_spec changes name or image of the container {given['name']!r} of {place}"
    if len(spec.get("containers") or []) < len(template.get("containers") or []):
        yield f"set_cluster_spec takes containers from {place}"


def _service(service: JsonObject, place: str) -> Iterator[str]:
    for port in service["spec"]["ports"]:
        yield from (f"the Service of {place}, port {port['name']!r}: {each}" for each in dns_label(port["name"]))
    yield from (f"the Service of {place}: {each}" for each in dns_label_1035(service["metadata"]["name"]))


def check_objects(job: Job) -> Iterator[str]:
    """Return what is wrong with the other objects of a job."""
    watches = {(each.api_version, each.kind): each for each in job.kind.watches()}
    pods = [pod for _, _, pod in built(job)]

    def objects() -> list[JsonObject]:
        built = job.kind.build(job, pods, NO_LISTERS)
        # What is created and never changed may be random.
        return [each for each in built if not _is_created_only(each)]

    def _is_created_only(obj: JsonObject) -> bool:
        watch = watches.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        return watch is not None and watch.creates_only

    yield from unkept(job, "build", objects)
    for obj in job.kind.build(job, pods, NO_LISTERS):
        what = f"{obj.get('apiVersion')} {obj.get('kind')}"
        watch = watches.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        if watch is None or not watch.writes:
            yield f"build returns a {what}: watches must have it, with writes=True"
        elif watch.namespaced:
            yield from (f"build names a {what}: {each}" for each in dns_subdomain(obj["metadata"].get("name", "")))
        try:
            json.dumps(obj, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"build returns a {what} that is no JSON: {error}"
