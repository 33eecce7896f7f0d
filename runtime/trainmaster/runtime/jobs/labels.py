"""Labels of what belongs to a job, and the selectors made of them."""

from __future__ import annotations

from trainmaster.runtime.jobs.constants import (
    JOB_NAME_LABEL,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
)
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import controller_reference


def job_labels(job: Job) -> dict[str, str]:
    """Return the labels of all pods and services of a job."""
    return {
        OPERATOR_NAME_LABEL: job.kind.controller_name,
        JOB_NAME_LABEL: job.name.replace("/", "-"),
    }


def replica_labels(job: Job, replica_type: str, index: int) -> dict[str, str]:
    """Return the labels that tell one pod of a job from the others."""
    labels = {**job_labels(job), REPLICA_TYPE_LABEL: replica_type.lower()}
    return labels if replica_type in job.kind.single_types else {**labels, REPLICA_INDEX_LABEL: str(index)}


def replica_selector(job: Job, replica_type: str) -> str:
    """Return the selector of all pods of a type, as the scale subresource has it: keys sorted."""
    labels = {**job_labels(job), REPLICA_TYPE_LABEL: replica_type.lower()}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def owner_reference(job: Job) -> JsonObject:
    """Return the reference that makes a job the controller of an object."""
    return controller_reference(job.kind.api_version, job.kind.kind, job)
