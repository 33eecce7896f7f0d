"""Names that are part of the contract with users, SDKs and other controllers: they are the same as upstream's.

Nothing here is tunable. How the objects of a TrainJob are named is decided here too, so that writers and readers agree.
"""

from __future__ import annotations

from typing import Final

# The API group
GROUP: Final = "trainer.kubeflow.org"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "trainer.kubeflow.org/v1alpha1"
TRAINJOB_KIND: Final = "TrainJob"
TRAINING_RUNTIME_KIND: Final = "TrainingRuntime"
CLUSTER_TRAINING_RUNTIME_KIND: Final = "ClusterTrainingRuntime"

JOBSET_GROUP: Final = "jobset.x-k8s.io"
JOBSET_VERSION: Final = "v1alpha2"
JOBSET_API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
JOBSET_KIND: Final = "JobSet"

# Who manages a TrainJob, and under which names we write
MANAGED_BY_TRAINER: Final = "trainer.kubeflow.org/trainjob-controller"
MANAGED_BY_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
FIELD_MANAGER: Final = "trainer"
STATUS_FIELD_MANAGER: Final = "trainer-status"
LEGACY_FINALIZER: Final = "trainer.kubeflow.org/resource-in-use"

# Labels of runtimes and of their Job templates
ANCESTOR_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
SUPPORT_LABEL: Final = "trainer.kubeflow.org/support"
SUPPORT_DEPRECATED: Final = "deprecated"
SKIP_VALIDATION_LABEL: Final = "trainer.kubeflow.org/webhook-validation"
SKIP_VALIDATION_VALUE: Final = "disabled"
DEPRECATION_POLICY_URL: Final = (
    "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
)

# Steps of a TrainJob: values of ANCESTOR_LABEL
TRAINER_ANCESTOR: Final = "trainer"
DATASET_INITIALIZER: Final = "dataset-initializer"
MODEL_INITIALIZER: Final = "model-initializer"
ANCESTORS: Final = (DATASET_INITIALIZER, MODEL_INITIALIZER, TRAINER_ANCESTOR)

# ReplicatedJobs and containers
NODE: Final = "node"
LAUNCHER: Final = "launcher"
MAIN_CONTAINER_OF_ANCESTOR: Final = {
    DATASET_INITIALIZER: DATASET_INITIALIZER,
    MODEL_INITIALIZER: MODEL_INITIALIZER,
    TRAINER_ANCESTOR: NODE,
}
"""The container that a step's own settings (image, env, ...) go to."""

# Initializers
INITIALIZER_VOLUME: Final = "initializer"
STORAGE_URI_ENV: Final = "STORAGE_URI"
DATASET_MOUNT_PATH: Final = "/workspace/dataset"
MODEL_MOUNT_PATH: Final = "/workspace/model"

# Ports and the downward API
TRAINER_PORT: Final = 29500
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
COMPLETION_INDEX_FIELD_PATH: Final = f"metadata.annotations['{COMPLETION_INDEX_ANNOTATION}']"

# Torch
PET_NNODES: Final = "PET_NNODES"
PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
PET_NODE_RANK: Final = "PET_NODE_RANK"
PET_MASTER_ADDR: Final = "PET_MASTER_ADDR"
PET_MASTER_PORT: Final = "PET_MASTER_PORT"
TORCH_RESERVED_ENV: Final = frozenset({PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT})
"""Variables of the main container that only the torch policy may set."""

# Status: condition types and what we write into them
SUSPENDED: Final = "Suspended"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
FINAL_CONDITIONS: Final = frozenset({COMPLETE, FAILED})
"""Once one of these is true, the TrainJob never runs again."""
SUSPENDED_REASON: Final = "Suspended"
RESUMED_REASON: Final = "Resumed"
DEADLINE_EXCEEDED_REASON: Final = "DeadlineExceeded"
RUNTIME_NOT_SUPPORTED_REASON: Final = "TrainingRuntimeNotSupported"
SUSPENDED_MESSAGE: Final = "TrainJob is suspended"
RESUMED_MESSAGE: Final = "TrainJob is resumed"
DEADLINE_EXCEEDED_MESSAGE: Final = "TrainJob exceeded its active deadline"

# JobSet's own condition types
JOBSET_COMPLETED: Final = "Completed"
JOBSET_FAILED: Final = "Failed"

# The frozen runtime of a TrainJob
SNAPSHOT_KEY: Final = "runtime"


def snapshot_name(trainjob: str) -> str:
    """Return the name of the ConfigMap that holds the runtime a TrainJob was created from."""
    return f"{trainjob}-runtime-snapshot"
