"""PlainML: node counts for runtimes without a framework of their own.

Active unless another policy sets the number of nodes itself.
"""

from __future__ import annotations

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.info import Info
from trainmaster.runtime.rendezvous import set_node_count


class PlainML:
    """Applies `trainer.numNodes` where no framework plugin does."""

    name = "plainml"

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes."""
        policy = info.ml_policy
        if policy and any(framework is not None for framework in (policy.torch, policy.mpi, policy.jax)):
            return
        set_node_count(info, job)
