"""Names that changed between `kubeflow.org/v2alpha1` and `trainer.kubeflow.org/v1alpha1`."""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.api.constants import DATASET_INITIALIZER, LAUNCHER, MODEL_INITIALIZER, NODE, TRAINER_ANCESTOR

INITIALIZER: Final = "initializer"
"""The one Job that had both initializers; each is a Job of its own now."""

JOBS: Final = {"trainer-node": NODE, LAUNCHER: LAUNCHER}
"""ReplicatedJobs that have another name, or none of their own meaning, now."""

CONTAINERS: Final = {"trainer": NODE}

ANCESTORS: Final = {
    NODE: TRAINER_ANCESTOR,
    DATASET_INITIALIZER: DATASET_INITIALIZER,
    MODEL_INITIALIZER: MODEL_INITIALIZER,
}
"""The step of a ReplicatedJob, which was known by its name."""

INITIALIZERS: Final = (DATASET_INITIALIZER, MODEL_INITIALIZER)
