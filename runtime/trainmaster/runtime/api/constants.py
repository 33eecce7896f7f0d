"""Names that are part of the contract with users, SDKs and other controllers: they are the same as upstream's.

Nothing here is tunable. How the objects of a TrainJob are named is decided here too, so that writers and readers agree.
"""

from __future__ import annotations

from typing import Final

# The API group
GROUP: Final = "trainer.kubeflow.org"
LEGACY_GROUP: Final = "kubeflow.org"
"""The group of an early version of the API, which a TrainJob may still write for that of its runtime."""
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

# Restarts
RESILIENCE_POLICY_ANNOTATION: Final = "trainmaster.dev/resilience-policy"
"""Of a job: its resilience policy as JSON."""

RESILIENCE_STATUS_ANNOTATION: Final = "trainmaster.dev/resilience-status"
"""Of a job of `kubeflow.org/v1` whose pods are restarted together: the ledger of its attempts as JSON."""

RESILIENCE_ANNOTATION: Final = "trainmaster.dev/resilience"
"""Of a JobSet: the policy that it was built for."""

ELASTIC_ANNOTATION: Final = "trainmaster.dev/elastic-nodes"
"""Of a JobSet: the fewest and the most nodes of its trainer, `min:max`."""

RESILIENCE_LABEL: Final = "trainmaster.dev/resilience"
"""Of pods that the manager watches, because their job has a resilience policy."""

ATTEMPTS_BEFORE_LABEL: Final = "trainmaster.dev/attempts-before"
"""Of pods of a JobSet that took the place of another one, and of jobs of `kubeflow.org/v1` whose pods are restarted
together: how many attempts of the job had ended before.
"""

# Ports and the downward API
TRAINER_PORT: Final = 29500
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
COMPLETION_INDEX_FIELD_PATH: Final = f"metadata.annotations['{COMPLETION_INDEX_ANNOTATION}']"
JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
JOB_INDEX_FIELD_PATH: Final = f"metadata.labels['{JOB_INDEX_LABEL}']"

# Several slices
SLICE_ID: Final = "TRAINMASTER_SLICE_ID"
HOST_ID: Final = "TRAINMASTER_HOST_ID"
MEGASCALE_COORDINATOR_ADDRESS: Final = "MEGASCALE_COORDINATOR_ADDRESS"
MEGASCALE_NUM_SLICES: Final = "MEGASCALE_NUM_SLICES"
MEGASCALE_SLICE_ID: Final = "MEGASCALE_SLICE_ID"

# Dynamic resource allocation
RESOURCE_API_VERSION: Final = "resource.k8s.io/v1"

# Torch
PET_NNODES: Final = "PET_NNODES"
PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
PET_NODE_RANK: Final = "PET_NODE_RANK"
PET_MASTER_ADDR: Final = "PET_MASTER_ADDR"
PET_MASTER_PORT: Final = "PET_MASTER_PORT"
PET_MAX_RESTARTS: Final = "PET_MAX_RESTARTS"
PET_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
PET_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"
PET_RDZV_ID: Final = "PET_RDZV_ID"
TORCH_DISABLE_SHARE_RDZV_TCP_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
ELASTIC_RESERVED_ENV: Final = frozenset({PET_RDZV_BACKEND, PET_RDZV_ENDPOINT, PET_RDZV_ID})
"""Those that it sets as well if the job is elastic."""

TORCH_RESERVED_ENV: Final = frozenset({PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT})
"""Variables of the main container that only the torch policy may set."""

# JAX; users may set these themselves
JAX_NUM_PROCESSES: Final = "JAX_NUM_PROCESSES"
JAX_PROCESS_ID: Final = "JAX_PROCESS_ID"
JAX_COORDINATOR_ADDRESS: Final = "JAX_COORDINATOR_ADDRESS"

# XGBoost
DMLC_TRACKER_URI: Final = "DMLC_TRACKER_URI"
DMLC_TRACKER_PORT: Final = "DMLC_TRACKER_PORT"
DMLC_TASK_ID: Final = "DMLC_TASK_ID"
DMLC_NUM_WORKER: Final = "DMLC_NUM_WORKER"
XGBOOST_RESERVED_ENV: Final = frozenset({DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_TASK_ID, DMLC_NUM_WORKER})
"""Variables of the main container that only the xgboost policy may set."""

# MPI
OPEN_MPI: Final = "OpenMPI"
INTEL_MPI: Final = "IntelMPI"
MPICH: Final = "MPICH"
MPI_IMPLEMENTATIONS: Final = (OPEN_MPI, INTEL_MPI, MPICH)
MPI_HOSTFILE_KEY: Final = "hostfile"
MPI_HOSTFILE_DIRECTORY: Final = "/etc/mpi"
MPI_HOSTFILE_PATH: Final = f"{MPI_HOSTFILE_DIRECTORY}/{MPI_HOSTFILE_KEY}"
MPI_RESERVED_ENV: Final = {
    OPEN_MPI: frozenset(
        {
            "OMPI_MCA_orte_default_hostfile",
            "OMPI_MCA_orte_keep_fqdn_hostnames",
            "OMPI_MCA_orte_set_default_slots",
            "OMPI_MCA_plm_rsh_args",
        }
    ),
    INTEL_MPI: frozenset(
        {
            "I_MPI_HYDRA_BOOTSTRAP",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
            "I_MPI_HYDRA_HOST_FILE",
            "I_MPI_PERHOST",
        }
    ),
    MPICH: frozenset({"HYDRA_HOST_FILE", "HYDRA_LAUNCHER_EXTRA_ARGS", "HYDRA_LAUNCH_EXTRA_ARGS"}),
}
"""Variables of the main container that only the mpi policy may set, by implementation."""

# Flux
FLUX_INSTALLER: Final = "flux-installer"
FLUX_VIEW_IMAGE: Final = "FLUX_VIEW_IMAGE"
FLUX_NETWORK_DEVICE: Final = "FLUX_NETWORK_DEVICE"
FLUX_QUEUE_POLICY: Final = "FLUX_QUEUE_POLICY"

# Gang scheduling
COSCHEDULING_API_VERSION: Final = "scheduling.x-k8s.io/v1alpha1"
COSCHEDULING_POD_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
VOLCANO_POD_ANNOTATION: Final = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
POD_GROUP_KIND: Final = "PodGroup"
SCHEDULING_API_VERSION: Final = "scheduling.k8s.io/v1alpha2"
"""The API by which Kubernetes itself schedules gangs (KEP-3015), as of 1.36."""

WORKLOAD_KIND: Final = "Workload"
SCHEDULING_GATE: Final = "TrainJobWorkloadAwareScheduling"
SLICE_GROUP_LABEL: Final = "trainmaster.dev/slice-pod-group"
"""Of pods, in whose ReplicatedJob each Job is a gang: what the names of their PodGroups begin with."""

SYSTEM_PRIORITY_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
"""Those that every cluster has."""

# Progress that trainers report (KEP-2779)
TRAIN_JOB_STATUS_GATE: Final = "TrainJobStatus"
STATUS_URL_ENV: Final = "KUBEFLOW_TRAINER_SERVER_URL"
STATUS_AUTHORITY_ENV: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
STATUS_TOKEN_ENV: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable that holds a path
STATUS_VOLUME: Final = "kubeflow-trainer-token"
STATUS_MOUNT_PATH: Final = "/var/run/secrets/kubeflow/trainer"
STATUS_AUTHORITY_KEY: Final = "ca.crt"
STATUS_TOKEN_KEY: Final = "token"  # noqa: S105 - the name of a file
STATUS_TOKEN_SECONDS: Final = 3600

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
MAX_RESTARTS_EXCEEDED_REASON: Final = "MaxRestartsExceeded"
NO_PROGRESS_REASON: Final = "NoProgress"
LOG_RULE_BROKEN_REASON: Final = "LogRuleBroken"
WORLD_SIZE_MISMATCH_REASON: Final = "WorldSizeMismatch"
POLICY_REASONS: Final = (
    MAX_RESTARTS_EXCEEDED_REASON,
    NO_PROGRESS_REASON,
    LOG_RULE_BROKEN_REASON,
    WORLD_SIZE_MISMATCH_REASON,
)
"""With which a TrainJob fails by its resilience policy."""
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


def mpi_secret_name(trainjob: str) -> str:
    """Return the name of the Secret that holds the SSH key pair of an MPI job."""
    return f"{trainjob}-mpi-ssh-auth"


def mpi_config_map_name(trainjob: str) -> str:
    """Return the name of the ConfigMap that holds the hostfile of an MPI job."""
    return f"{trainjob}-mpi-hostfile"


def flux_config_map_name(trainjob: str) -> str:
    """Return the name of the ConfigMap that holds the scripts of a Flux job."""
    return f"{trainjob}-flux-entrypoint"


def flux_secret_name(trainjob: str) -> str:
    """Return the name of the Secret that holds the CURVE certificate of a Flux job."""
    return f"{trainjob}-flux-curve"


def status_config_map_name(trainjob: str) -> str:
    """Return the name of the ConfigMap that holds the authority of the status server."""
    return f"{trainjob}-tls-config"


def status_audience(namespace: str, trainjob: str) -> str:
    """Return whom the token of a trainer is for: the status of its TrainJob."""
    return f"{API_VERSION}/namespaces/{namespace}/trainjobs/{trainjob}/status"


def status_path(namespace: str, trainjob: str) -> str:
    """Return the path to which a trainer posts its progress."""
    return f"/apis/{status_audience(namespace, trainjob)}"
