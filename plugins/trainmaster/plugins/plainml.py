"""PlainML: node counts for runtimes without a framework of their own.

Not active with torch, mpi and jax; that is so in the Go original, where it is active beside flux and xgboost, too. With
these it sets the number that they set themselves. Only mpi counts otherwise, so it must never be active there.
"""

from __future__ import annotations

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.info import Info
from trainmaster.runtime.rendezvous import set_node_count


class PlainML:
    """Applies `trainer.numNodes`."""

    name = "plainml"

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes."""
        policy = info.ml_policy
        if policy and any(framework is not None for framework in (policy.torch, policy.mpi, policy.jax)):
            return
        set_node_count(info, job)
