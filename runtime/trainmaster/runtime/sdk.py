"""The SDK: everything that the author of a plugin imports, and all that is promised to stay.

    from trainmaster.runtime.sdk import Info, TrainJob, env_value, upsert_env


    class Region:
        name = "region"

        def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
            for pods in info.pod_sets:
                for container in pods.pod_spec["containers"]:
                    upsert_env(container, [env_value("REGION", "eu")])

Guarantees:
- What is named here, with its arguments and its fields, is there in all versions of `API_VERSION` of the same major
  number; a minor step adds. Whatever else `trainmaster` has may change with any release.
- It is typed: `py.typed` is beside it, and both mypy and pyright know every name.
- It does no I/O, knows no event loop, and imports nothing of the controller.

Shapes: a Kubernetes object, or a part of one, is a `JsonObject`: dicts, lists, texts, numbers, booleans and None, with
the field names of its API. The TrainJob and the policies of its runtime are models, whose attributes are those names in
Python's spelling: `job.spec.trainer.num_nodes` for `spec.trainer.numNodes`. Quantities are texts ("500m", "1.5Gi"),
times are texts of RFC 3339, durations are whole seconds where a name ends in `seconds`.

Tests of plugins import `trainmaster.runtime.testing` besides.
"""

from trainmaster.runtime.api.constants import (
    ANCESTOR_LABEL,
    COMPLETE,
    DATASET_INITIALIZER,
    DATASET_MOUNT_PATH,
    FAILED,
    INITIALIZER_VOLUME,
    JOBSET_API_VERSION,
    JOBSET_KIND,
    LAUNCHER,
    MODEL_INITIALIZER,
    MODEL_MOUNT_PATH,
    NODE,
    TRAINER_ANCESTOR,
    TRAINER_PORT,
)
from trainmaster.runtime.api.decoding import ApiTypeError, parse_runtime, parse_trainjob
from trainmaster.runtime.api.meta import ApiModel, Condition, ObjectMeta, OwnerReference
from trainmaster.runtime.api.trainingruntime import (
    ClusterTrainingRuntime,
    CoschedulingPolicy,
    CustomPolicy,
    EnvInjection,
    EnvInjectionTarget,
    FluxPolicy,
    JAXPolicy,
    JobSetTemplate,
    MLPolicy,
    MPIPolicy,
    NetworkTopology,
    PodGroupPolicy,
    RunPolicy,
    TorchPolicy,
    TrainingRuntime,
    TrainingRuntimeSpec,
    VolcanoPolicy,
    XGBoostPolicy,
)
from trainmaster.runtime.api.trainjob import (
    Initializer,
    InitializerSource,
    JobStatus,
    ResourceClaim,
    RuntimePatch,
    RuntimeRef,
    Trainer,
    TrainerMetric,
    TrainerStatus,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)
from trainmaster.runtime.field_errors import ErrorType, FieldError, FieldWarning, did_you_mean
from trainmaster.runtime.framework.interface import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    AppliesTo,
    ApplyWhen,
    Build,
    Desired,
    EnforceMLPolicy,
    EnforcePodGroup,
    EnforcePodSpec,
    NotReady,
    Plugin,
    PreBuild,
    Rejected,
    Status,
    StatusReport,
    Validate,
    WatchExtension,
)
from trainmaster.runtime.framework.models import SecretFile
from trainmaster.runtime.info import Endpoints, Info, PodSet
from trainmaster.runtime.jsontree import JsonObject, copy_json
from trainmaster.runtime.listers import NO_LISTERS, IndexFunction, JobKey, Listers, NoSuchIndex, Watch
from trainmaster.runtime.names import dns_label, dns_label_1035, dns_subdomain, label_value, qualified_name
from trainmaster.runtime.ownership import Owner, is_controlled_by, is_left_over, owner_reference
from trainmaster.runtime.podspec import (
    append_env,
    append_env_of_all,
    env_completion_index,
    env_field,
    env_value,
    upsert_env,
    upsert_ports,
    upsert_volume_mounts,
    upsert_volumes,
)
from trainmaster.runtime.quantity import Notation, Quantity, QuantityError
from trainmaster.runtime.rendezvous import (
    Rendezvous,
    join,
    node_count,
    rendezvous,
    reserved_env,
    set_node_count,
    set_pods,
    unreachable,
)
from trainmaster.runtime.resource_requirements import Resources, accelerator_count, cpu_count, gpu_count, pod_requests

__all__ = [
    "ANCESTOR_LABEL",
    "API_VERSION",
    "COMPLETE",
    "DATASET_INITIALIZER",
    "DATASET_MOUNT_PATH",
    "ENTRY_POINT_GROUP",
    "FAILED",
    "INITIALIZER_VOLUME",
    "JOBSET_API_VERSION",
    "JOBSET_KIND",
    "LAUNCHER",
    "MODEL_INITIALIZER",
    "MODEL_MOUNT_PATH",
    "NODE",
    "NO_LISTERS",
    "TRAINER_ANCESTOR",
    "TRAINER_PORT",
    "ApiModel",
    "ApiTypeError",
    "AppliesTo",
    "ApplyWhen",
    "Build",
    "ClusterTrainingRuntime",
    "Condition",
    "CoschedulingPolicy",
    "CustomPolicy",
    "Desired",
    "Endpoints",
    "EnforceMLPolicy",
    "EnforcePodGroup",
    "EnforcePodSpec",
    "EnvInjection",
    "EnvInjectionTarget",
    "ErrorType",
    "FieldError",
    "FieldWarning",
    "FluxPolicy",
    "IndexFunction",
    "Info",
    "Initializer",
    "InitializerSource",
    "JAXPolicy",
    "JobKey",
    "JobSetTemplate",
    "JobStatus",
    "JsonObject",
    "Listers",
    "MLPolicy",
    "MPIPolicy",
    "NetworkTopology",
    "NoSuchIndex",
    "NotReady",
    "Notation",
    "ObjectMeta",
    "Owner",
    "OwnerReference",
    "Plugin",
    "PodGroupPolicy",
    "PodSet",
    "PreBuild",
    "Quantity",
    "QuantityError",
    "Rejected",
    "Rendezvous",
    "ResourceClaim",
    "Resources",
    "RunPolicy",
    "RuntimePatch",
    "RuntimeRef",
    "SecretFile",
    "Status",
    "StatusReport",
    "TorchPolicy",
    "TrainJob",
    "TrainJobSpec",
    "TrainJobStatus",
    "Trainer",
    "TrainerMetric",
    "TrainerStatus",
    "TrainingRuntime",
    "TrainingRuntimeSpec",
    "Validate",
    "VolcanoPolicy",
    "Watch",
    "WatchExtension",
    "XGBoostPolicy",
    "accelerator_count",
    "append_env",
    "append_env_of_all",
    "copy_json",
    "cpu_count",
    "did_you_mean",
    "dns_label",
    "dns_label_1035",
    "dns_subdomain",
    "env_completion_index",
    "env_field",
    "env_value",
    "gpu_count",
    "is_controlled_by",
    "is_left_over",
    "join",
    "label_value",
    "node_count",
    "owner_reference",
    "parse_runtime",
    "parse_trainjob",
    "pod_requests",
    "qualified_name",
    "rendezvous",
    "reserved_env",
    "set_node_count",
    "set_pods",
    "unreachable",
    "upsert_env",
    "upsert_ports",
    "upsert_volume_mounts",
    "upsert_volumes",
]
