"""Slices: whether the nodes of a TrainJob can be dealt out evenly to the slices of its trainer.

What slices are, and how the nodes get their ranks, is in `trainmaster.runtime.multislice`. Building refuses
what is uneven as well; here it is said at admission, with the field that has to change.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.info import Info
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.multislice import SlicesInvalid, hosts_per_slice
from trainmaster.runtime.rendezvous import node_count


class Slices:
    """Checks numbers of nodes."""

    name = "slices"

    def validate(self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers) -> Iterator[FieldError]:
        """Refuse nodes that do not come out even."""
        trainer = info.trainer
        if trainer is None or (info.ml_policy and info.ml_policy.mpi):
            return  # one host of MPI may be the launcher: how many are left is that plugin's to say
        nodes = node_count(info, job)
        try:
            hosts_per_slice(nodes, trainer.replicas, name=trainer.name)
        except SlicesInvalid as error:
            asked = job.spec.trainer.num_nodes if job.spec.trainer else None
            if asked is not None and trainer.replicas >= 1:
                yield FieldError("spec.trainer.numNodes", str(error), value=asked)
            else:
                yield FieldError("spec.runtimeRef", str(error), value=job.spec.runtime_ref.with_defaults())
