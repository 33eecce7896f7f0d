"""Everything that a job becomes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.labels import owner_reference
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jobs.pods import build_pod, build_service
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS


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
