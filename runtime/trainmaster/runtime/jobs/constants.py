"""Names of the `kubeflow.org/v1` API (Training Operator V1) that users and tools rely on."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

ENTRY_POINT_GROUP: Final = "trainmaster.jobs"
"""Under which distributions offer kinds of jobs, by their names in lower case."""

GROUP: Final = "kubeflow.org"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

OPERATOR_NAME_LABEL: Final = "training.kubeflow.org/operator-name"
JOB_NAME_LABEL: Final = "training.kubeflow.org/job-name"
REPLICA_TYPE_LABEL: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"
JOB_ROLE_LABEL: Final = "training.kubeflow.org/job-role"
MASTER_ROLE: Final = "master"

MASTER: Final = "Master"
WORKER: Final = "Worker"
"""Replica types that most kinds have."""

MANAGED_BY_TRAINING_OPERATOR: Final = "kubeflow.org/training-operator"
MANAGED_BY_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"

CREATED: Final = "Created"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUCCEEDED: Final = "Succeeded"
SUSPENDED: Final = "Suspended"
FAILED: Final = "Failed"
"""Types of conditions."""

BACKOFF_LIMIT_REACHED: Final = "it has reached the specified backoff limit"
"""Why a job has failed, in its condition, as the original says it."""

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
EXIT_CODE: Final = "ExitCode"
"""Restart policies of replicas."""

CLEAN_ALL: Final = "All"
CLEAN_RUNNING: Final = "Running"
CLEAN_NONE: Final = "None"
"""Values of cleanPodPolicy."""


def installed_kinds() -> list[str]:
    """List the kinds that installed distributions offer, in lower case."""
    return sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))
