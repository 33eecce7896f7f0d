"""The elastic policy: how few and how many workers a job can do with. PyTorchJobs and PaddleJobs have one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jsontree import JsonObject

PATH = "spec.elasticPolicy"


class ElasticPolicy(ApiModel):
    """What elastic policies of all kinds have."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    max_restarts: int | None = None

    metrics: list[JsonObject] | None = None
    """Metrics of autoscaling/v2 by which the workers are scaled; None: they are not."""

    def with_limits(self, workers: int | None) -> Self:
        """Fill in the limits: each is the other one if that alone is given, both are the number of workers otherwise.

        A job without workers stays without limits (V1-B13).
        """
        fewest = self.min_replicas if self.min_replicas is not None else self.max_replicas
        most = self.max_replicas if self.max_replicas is not None else self.min_replicas
        if fewest is None:
            fewest = most = workers
        if fewest is None:
            return self
        return self.model_copy(update={"min_replicas": fewest, "max_replicas": most})

    def impossible_limits(self) -> Iterator[FieldError]:
        """Return what is wrong with limits that no number of workers is within (V1-B17)."""
        fewest, most = self.min_replicas, self.max_replicas
        if fewest is not None and fewest < 1:
            yield FieldError(f"{PATH}.minReplicas", "must be greater than or equal to 1", value=fewest)
        elif most is not None and most < 1:
            yield FieldError(f"{PATH}.maxReplicas", "must be greater than or equal to 1", value=most)
        elif fewest is not None and most is not None and fewest > most:
            detail = f"must be less than or equal to maxReplicas, which is {most}"
            yield FieldError(f"{PATH}.minReplicas", detail, value=fewest)
