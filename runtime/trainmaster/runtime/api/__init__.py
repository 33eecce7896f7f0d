"""The Trainer API (`trainer.kubeflow.org/v1alpha1`) as Python types, and reading them from JSON.

Pydantic and the models are imported when one of them is first used: most of the command line needs constants alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainmaster.runtime.api.decoding import ApiTypeError, ObjectUnreadable, parse_runtime, parse_trainjob
    from trainmaster.runtime.api.meta import ApiModel, Condition, ObjectMeta, OwnerReference
    from trainmaster.runtime.api.trainingruntime import (
        ClusterTrainingRuntime,
        CoschedulingPolicy,
        EnvInjection,
        EnvInjectionTarget,
        FluxPolicy,
        JAXPolicy,
        JobSetTemplate,
        MLPolicy,
        MPIPolicy,
        NetworkTopology,
        PodGroupPolicy,
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

__all__ = [
    "ApiModel",
    "ApiTypeError",
    "ClusterTrainingRuntime",
    "Condition",
    "CoschedulingPolicy",
    "EnvInjection",
    "EnvInjectionTarget",
    "FluxPolicy",
    "Initializer",
    "InitializerSource",
    "JAXPolicy",
    "JobSetTemplate",
    "JobStatus",
    "MLPolicy",
    "MPIPolicy",
    "NetworkTopology",
    "ObjectMeta",
    "ObjectUnreadable",
    "OwnerReference",
    "PodGroupPolicy",
    "ResourceClaim",
    "RuntimePatch",
    "RuntimeRef",
    "TorchPolicy",
    "TrainJob",
    "TrainJobSpec",
    "TrainJobStatus",
    "Trainer",
    "TrainerMetric",
    "TrainerStatus",
    "TrainingRuntime",
    "TrainingRuntimeSpec",
    "VolcanoPolicy",
    "XGBoostPolicy",
    "parse_runtime",
    "parse_trainjob",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("decoding", "meta", "trainingruntime", "trainjob"):
            if hasattr(found := import_module(f"{__name__}.{module}"), name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
