"""JAX: what `jax.distributed.initialize()` needs.

One process runs on each node and drives all devices of it; GPUs and `numProcPerNode` change nothing. Users may replace
each of the variables by one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.api.constants import JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID
from trainmaster.runtime.api.trainingruntime import JAXPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldWarning
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


class JAX:
    """Serves `mlPolicy.jax`."""

    name = "jax"
    policies = ("jax",)

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes and inject the JAX_* environment."""
        if _policy(info) is None:
            return
        set_node_count(info, job)
        meeting = rendezvous(info, job)
        if meeting is None:
            return
        environment = [
            env_value(JAX_NUM_PROCESSES, meeting.nodes),
            *meeting.rank(JAX_PROCESS_ID),
            env_value(JAX_COORDINATOR_ADDRESS, meeting.address),
            *meeting.megascale(),
        ]
        join(info, job, meeting, environment, rank=JAX_PROCESS_ID)

    def validate(self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers) -> Iterator[FieldWarning]:
        """Warn about what cannot work; nothing is forbidden."""
        if _policy(info) is not None:
            yield from ignored_process_count(job, "JAX")
            yield from unreachable(info, job)
            yield from unranked(info, job, JAX_PROCESS_ID)


def _policy(info: Info) -> JAXPolicy | None:
    return info.ml_policy.jax if info.ml_policy else None
