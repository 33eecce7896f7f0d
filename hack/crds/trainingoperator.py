"""The six kinds of the Training Operator (kubeflow.org/v1): PyTorchJob, TFJob, XGBoostJob, MPIJob, PaddleJob, JAXJob.

Types, required fields, defaults and rules are those of the original, and no more: what it stores, and could run, is
stored here too. There are two fields more, in the status. What is wrong beyond the types is for the webhooks to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from crds import schema
from crds.definitions import AGE, column, custom_resource
from crds.kubernetes import CORE, META, QUANTITY, definition
from crds.schema import Schema, immutable
from trainmaster.runtime.jobs.constants import GROUP, VERSION

_AUTOSCALING: Final = "io.k8s.api.autoscaling.v2"

STATE: Final = column("State", ".status.conditions[-1:].type")
"""The last condition, whatever its status: the controller puts the one last that tells the state."""

_CLEAN_POD_POLICY: Final = "Which pods are deleted when the job has finished: All, Running or None (the default)."

_SCHEDULING_POLICY: Final = schema.obj(
    {
        "minAvailable": schema.integer("How many pods start together; all of them if absent."),
        "queue": schema.string(
            "Queue of Volcano.", rules=[immutable("spec.runPolicy.schedulingPolicy.queue is immutable")]
        ),
        "minResources": schema.mapping(
            definition(QUANTITY), "What has to be free before pods start; if absent, what minAvailable pods request."
        ),
        "priorityClass": schema.string("Priority class of the pod group of Volcano."),
        "scheduleTimeoutSeconds": schema.integer("How long pods wait for each other (scheduler-plugins only)."),
    },
    "How the pods are scheduled as a gang, where the operator is configured with a gang scheduler.",
)

_RUN_POLICY: Final = schema.obj(
    {
        "cleanPodPolicy": schema.string(_CLEAN_POD_POLICY),
        "ttlSecondsAfterFinished": schema.integer("How long the job is kept after its end; if absent, for ever."),
        "activeDeadlineSeconds": schema.integer(
            "How long the job may run before it is stopped and fails.", format="int64"
        ),
        "backoffLimit": schema.integer("How many restarts there may be before the job fails."),
        "schedulingPolicy": _SCHEDULING_POLICY,
        "suspend": schema.boolean("Whether the job is kept from running.", default=False),
        "managedBy": schema.string(
            "The controller that is in charge of the job: kubeflow.org/training-operator, as if it were absent, or"
            " kueue.x-k8s.io/multikueue."
        ),
    },
    "How the job runs and ends, whatever its framework.",
)

_REPLICA_SPEC: Final = schema.obj(
    {
        "replicas": schema.integer("How many pods there are of this type."),
        "template": {
            **definition(f"{CORE}.PodTemplateSpec"),
            "description": "The pods; restartPolicy below their spec is replaced by the one beside the template.",
        },
        "restartPolicy": schema.string(
            "What becomes of a pod whose container ends: Always, OnFailure, Never, or ExitCode, by which it is made"
            " anew after codes from 128 on."
        ),
    },
    "Pods of one type.",
)

_ELASTIC_POLICY: Final = {
    "minReplicas": schema.integer("The fewest workers; as many as maxReplicas if absent."),
    "maxReplicas": schema.integer("The most workers; as many as minReplicas if absent."),
    "maxRestarts": schema.integer("How often workers are started anew."),
    "metrics": schema.plain_list(
        definition(f"{_AUTOSCALING}.MetricSpec"),
        "What a HorizontalPodAutoscaler scales the workers by; without it there is none.",
    ),
}

_PYTORCH_ELASTIC_POLICY: Final = schema.obj(
    {
        **_ELASTIC_POLICY,
        "rdzvBackend": schema.string("Rendezvous backend of torchrun: c10d (the default), etcd or etcd-v2."),
        "rdzvPort": schema.integer("Port of the rendezvous."),
        "rdzvHost": schema.string("Host of the rendezvous; the first worker if absent."),
        "rdzvId": schema.string("Name by which the workers of a job find each other."),
        "rdzvConf": schema.plain_list(
            schema.obj({"key": schema.string("Name of the option."), "value": schema.string("Its value.")}),
            "More options of the rendezvous backend.",
        ),
        "standalone": schema.boolean("Whether each pod trains on its own, with a rendezvous of its own."),
        "nProcPerNode": schema.integer("Deprecated: nprocPerNode of the spec."),
    },
    "The number of workers may change while the job runs.",
)

_CONDITION: Final = schema.obj(
    {
        "type": schema.string("What it is about: Created, Running, Restarting, Suspended, Succeeded or Failed."),
        "status": schema.string("Whether it holds: True, False or Unknown."),
        "reason": schema.string("Why, as a word for programs."),
        "message": schema.string("Why, as a sentence for people."),
        "lastUpdateTime": schema.time("When the condition was last written."),
        "lastTransitionTime": schema.time("When status last changed."),
    },
    required=("status", "type"),
)

_REPLICA_STATUS: Final = schema.obj(
    {
        "active": schema.integer("How many pods run."),
        "succeeded": schema.integer("How many pods have succeeded."),
        "failed": schema.integer("How many pods have failed."),
        "selector": schema.string("Labels of the pods, for autoscalers."),
        "labelSelector": {
            **definition(f"{META}.LabelSelector"),
            "description": "Deprecated: selector; never written.",
        },
        # Not in the original, which forgets what it restarted.
        "restarts": schema.integer("How many restarts count against backoffLimit; only where there is one."),
        "restartedPodUIDs": schema.atomic_list(schema.string(), "Pods that are deleted and counted in restarts."),
    },
)

_STATUS: Final = schema.obj(
    {
        "conditions": schema.plain_list(_CONDITION, "What the job has been through; the last one is its state."),
        "replicaStatuses": schema.mapping(_REPLICA_STATUS, "Numbers of pods by state, for each replica type."),
        "startTime": schema.time("When pods were first created, or created again after a suspension."),
        "completionTime": schema.time("When the job succeeded or failed."),
        "lastReconcileTime": schema.time("When the job was last looked at while it waited for its pod group."),
    },
    "What has been observed.",
)


def py_torch_job() -> dict[str, Any]:
    """Return the definition of PyTorchJob."""
    return _job(
        "PyTorchJob",
        "pytorchReplicaSpecs",
        "Master and Worker.",
        {
            "elasticPolicy": _PYTORCH_ELASTIC_POLICY,
            "nprocPerNode": schema.string("How many processes train on each node: auto, cpu, gpu, or a number."),
        },
        scales=True,
    )


def tf_job() -> dict[str, Any]:
    """Return the definition of TFJob."""
    return _job(
        "TFJob",
        "tfReplicaSpecs",
        "Chief or Master, Worker, PS and Evaluator.",
        {
            "successPolicy": schema.string(
                "AllWorkers: the job succeeds when all workers have; if empty, when the chief or the first worker has."
            ),
            "enableDynamicWorker": schema.boolean("Whether workers may come and go, and fail, while the job runs."),
        },
    )


def xgboost_job() -> dict[str, Any]:
    """Return the definition of XGBoostJob."""
    return _job("XGBoostJob", "xgbReplicaSpecs", "Master and Worker.")


def mpi_job() -> dict[str, Any]:
    """Return the definition of MPIJob."""
    return _job(
        "MPIJob",
        "mpiReplicaSpecs",
        "Launcher and Worker.",
        {
            "slotsPerWorker": schema.integer("How many processes run on each worker; 1 if absent."),
            "cleanPodPolicy": schema.string(f"{_CLEAN_POD_POLICY} That of runPolicy wins."),
            "mainContainer": schema.string("Container of the workers in which processes are started."),
        },
        columns=(AGE, STATE),
    )


def paddle_job() -> dict[str, Any]:
    """Return the definition of PaddleJob."""
    return _job(
        "PaddleJob",
        "paddleReplicaSpecs",
        "Master and Worker.",
        {"elasticPolicy": schema.obj(_ELASTIC_POLICY, "How many workers there may be.")},
        scales=True,
    )


def jax_job() -> dict[str, Any]:
    """Return the definition of JAXJob."""
    return _job("JAXJob", "jaxReplicaSpecs", "Worker.", scales=True)


def _job(
    kind: str,
    replica_specs: str,
    replica_types: str,
    fields: Mapping[str, Schema] | None = None,
    *,
    columns: tuple[dict[str, Any], ...] = (STATE, AGE),
    scales: bool = False,
) -> dict[str, Any]:
    spec = schema.obj(
        {
            replica_specs: schema.mapping(_REPLICA_SPEC, f"The pods, by replica type: {replica_types}"),
            "runPolicy": _RUN_POLICY,
            **(fields or {}),
        },
        "What to train, in which pods.",
        required=(replica_specs,),
    )
    worker = ".status.replicaStatuses.Worker"
    scale = {
        "specReplicasPath": f".spec.{replica_specs}.Worker.replicas",
        "statusReplicasPath": f"{worker}.active",
        "labelSelectorPath": f"{worker}.selector",
    }
    return custom_resource(
        group=GROUP,
        version=VERSION,
        kind=kind,
        description=f"A training job of the Training Operator ({kind}).",
        properties={"spec": spec, "status": _STATUS},
        columns=columns,
        scale=scale if scales else None,
    )


def jobs() -> list[dict[str, Any]]:
    """Return all six definitions."""
    return [jax_job(), mpi_job(), paddle_job(), py_torch_job(), tf_job(), xgboost_job()]
