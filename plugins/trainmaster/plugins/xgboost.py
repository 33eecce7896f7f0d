"""XGBoost: what Rabit, its collective, needs.

The tracker runs beside rank 0. A node has one worker for each of its GPUs, or one if it has none.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.api.constants import (
    DMLC_NUM_WORKER,
    DMLC_TASK_ID,
    DMLC_TRACKER_PORT,
    DMLC_TRACKER_URI,
    XGBOOST_RESERVED_ENV,
)
from trainmaster.runtime.api.trainingruntime import XGBoostPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.info import Info
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.podspec import env_value
from trainmaster.runtime.rendezvous import (
    ignored_process_count,
    join,
    rendezvous,
    set_node_count,
    unranked,
    unreachable,
)


class XGBoost:
    """Serves `mlPolicy.xgboost`."""

    name = "xgboost"
    policies = ("xgboost",)

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes and inject the DMLC_* environment."""
        if _policy(info) is None:
            return
        set_node_count(info, job)
        meeting = rendezvous(info, job)
        if meeting is None:
            return
        workers_per_node = max(1, info.trainer_gpus)
        environment = [
            env_value(DMLC_TRACKER_URI, meeting.host),
            env_value(DMLC_TRACKER_PORT, meeting.port),
            *meeting.rank(DMLC_TASK_ID),
            env_value(DMLC_NUM_WORKER, meeting.nodes * workers_per_node),
        ]
        join(info, job, meeting, environment, rank=DMLC_TASK_ID)

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Forbid users to set what the policy sets."""
        if _policy(info) is None:
            return
        for index, variable in enumerate(job.spec.trainer.env if job.spec.trainer else []):
            name = variable["name"]
            if name in XGBOOST_RESERVED_ENV:
                detail = f"{name} is reserved for the XGBoost runtime"
                yield FieldError(f"spec.trainer.env[{index}]", detail, type="Forbidden")
        yield from ignored_process_count(job, "XGBoost")
        yield from unreachable(info, job)
        yield from unranked(info, job, DMLC_TASK_ID)


def _policy(info: Info) -> XGBoostPolicy | None:
    return info.ml_policy.xgboost if info.ml_policy else None
