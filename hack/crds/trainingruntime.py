"""TrainingRuntime and ClusterTrainingRuntime (Trainer API v1alpha1)."""

from __future__ import annotations

from typing import Any, Final

from crds import schema
from crds.definitions import custom_resource
from crds.jobset import JOBSET_SPEC
from crds.kubernetes import META, definition
from crds.schema import rule
from trainmaster.runtime.api import constants

_ENV_INJECTION: Final = schema.obj(
    {
        "targets": schema.map_list(
            schema.obj(
                {
                    "jobName": schema.name("A ReplicatedJob of the template."),
                    "containerNames": schema.set_list(
                        schema.string(length=(0, 63)),
                        "Containers of that ReplicatedJob, other than the main one.",
                        min_items=1,
                        max_items=8,
                        rules=[
                            rule(
                                "!self.exists(c, c == 'node')",
                                "containerNames must not include the main node container because PET_* envs are"
                                " always injected into it",
                            )
                        ],
                    ),
                },
                required=("jobName", "containerNames"),
            ),
            "Containers by ReplicatedJob.",
            key="jobName",
            max_items=16,
        )
    },
    "Further containers that get the PET_* variables of torchrun.",
)

_ONLY_ONE: Final = "Only one of the policy can be configured"


def _custom(what: str) -> schema.Schema:
    """Return the policy of a plugin that this definition knows nothing of; what is in it is judged by the webhook."""
    return schema.obj(
        {
            "name": schema.string(
                "The plugin, by the name of its entry point: trainmaster plugins list shows those that there are.",
                length=(1, schema.SUBDOMAIN_LENGTH),
                pattern="^[A-Za-z0-9_.-]+$",
            ),
            "config": schema.free_form(
                "The settings of the plugin, whatever they are. Fields that it does not know, and values that it does"
                " not take, are refused when the runtime is written; a plugin that is not there judges nothing."
            ),
        },
        f"{what} by a plugin that is installed beside Trainmaster's own. TrainJobs of a runtime whose plugin is not"
        " there wait for it.",
        required=("name",),
    )


_ML_POLICY: Final = schema.obj(
    {
        "numNodes": schema.integer("How many nodes train unless the TrainJob says otherwise; 1 if absent."),
        "torch": schema.obj(
            {
                "numProcPerNode": schema.integer_or_string(
                    "Processes on each node unless the TrainJob says otherwise: a number, gpu (one for each GPU that"
                    " torchrun finds), cpu (one for each CPU of the container), or auto, the default (gpu where the"
                    " container has GPUs, one for each other accelerator, else cpu).",
                    rules=[
                        rule(
                            "type(self) == int ? self >= 1 : self in ['auto', 'cpu', 'gpu']",
                            "NumProcPerNode in torchPolicy must be auto, cpu, gpu or an integer >= 1",
                        )
                    ],
                ),
                "envInjection": _ENV_INJECTION,
            },
            "Training with PyTorch's torchrun.",
        ),
        "mpi": schema.obj(
            {
                "numProcPerNode": schema.integer(
                    "Slots of each node in the hostfile.",
                    default=1,
                    rules=[rule("self >= 1", "NumProcPerNode in mpiPolicy must be >= 1")],
                ),
                "mpiImplementation": schema.string(
                    "The MPI that the image contains.",
                    default=constants.OPEN_MPI,
                    enum=(*constants.MPI_IMPLEMENTATIONS, ""),
                ),
                "sshAuthMountPath": schema.string(
                    "Directory in which the nodes find their SSH keys.", default="/root/.ssh", length=(0, 4096)
                ),
                "runLauncherAsNode": schema.boolean("Whether the launcher trains as well.", default=False),
            },
            "Training with MPI.",
        ),
        "jax": schema.obj(description="Training with JAX."),
        "xgboost": schema.obj(description="Training with XGBoost."),
        "flux": schema.obj(
            {
                "numProcPerNode": schema.integer(
                    "Processes on each node.",
                    default=1,
                    rules=[rule("self >= 1", "NumProcPerNode in fluxPolicy must be >= 1")],
                )
            },
            "Training under the Flux resource manager.",
        ),
        "custom": _custom("Training with a framework that is served"),
    },
    "The machine learning framework and its settings; at most one framework can be given.",
    rules=[
        rule(
            "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux), has(self.custom)]"
            ".filter(x, x).size() <= 1",
            _ONLY_ONE,
        )
    ],
)

_POD_GROUP_POLICY: Final = schema.obj(
    {
        "coscheduling": schema.obj(
            {
                "scheduleTimeoutSeconds": schema.integer(
                    "How long the scheduler waits until all pods of the group fit.", default=60
                )
            },
            "Gang scheduling by the coscheduling plugin of scheduler-plugins.",
        ),
        "volcano": schema.obj(
            {
                "networkTopology": schema.obj(
                    {
                        "mode": schema.string(
                            "Whether the tier is a must (hard) or a wish (soft).",
                            default="hard",
                            enum=("hard", "soft"),
                        ),
                        "highestTierAllowed": schema.integer(
                            "Highest tier of the network that the pods may span.", default=1, format=None
                        ),
                    },
                    "How close to each other the pods are placed.",
                )
            },
            "Gang scheduling by Volcano.",
        ),
        "custom": _custom("Gang scheduling by a scheduler that is served"),
    },
    "How the pods of a TrainJob are scheduled together.",
    # The two that the original has may both be set, there as here.
    rules=[rule("!has(self.custom) || !(has(self.coscheduling) || has(self.volcano))", _ONLY_ONE)],
)

_RUN_POLICY: Final = schema.obj(
    {
        "ttlSecondsAfterFinished": schema.integer(
            "How long TrainJobs are kept after their end unless they say otherwise; for ever if absent.", minimum=0
        )
    },
    "The life of TrainJobs.",
)

_SPEC: Final = schema.obj(
    {
        "mlPolicy": _ML_POLICY,
        "podGroupPolicy": _POD_GROUP_POLICY,
        "runPolicy": _RUN_POLICY,
        "template": schema.obj(
            {
                "metadata": definition(f"{META}.ObjectMeta"),
                "spec": JOBSET_SPEC,
            },
            "The JobSet from which a TrainJob starts.",
            min_properties=1,
        ),
    },
    "What TrainJobs that name this runtime start from.",
    min_properties=1,
)


def training_runtime() -> dict[str, Any]:
    """Return the definition of TrainingRuntime."""
    return custom_resource(
        group=constants.GROUP,
        version=constants.VERSION,
        kind=constants.TRAINING_RUNTIME_KIND,
        description="A blueprint for the TrainJobs of its namespace.",
        properties={"spec": _SPEC},
    )


def cluster_training_runtime() -> dict[str, Any]:
    """Return the definition of ClusterTrainingRuntime."""
    return custom_resource(
        group=constants.GROUP,
        version=constants.VERSION,
        kind=constants.CLUSTER_TRAINING_RUNTIME_KIND,
        description="A blueprint for TrainJobs of any namespace.",
        properties={"spec": _SPEC},
        namespaced=False,
    )
