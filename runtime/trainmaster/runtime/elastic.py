"""Elastic training: within which limits the number of nodes of a job may change while it trains. Pure.

The limits come from `mlPolicy.torch.elasticPolicy` of the runtime, with `trainer.elasticPolicy` of the TrainJob laid
over it by field. A JobSet has them in an annotation, by which the manager knows that it may resize it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainmaster.runtime.api.constants import ELASTIC_ANNOTATION, TRAINER_ANCESTOR
from trainmaster.runtime.api.trainingruntime import MLPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.info import Info, ancestor_of
from trainmaster.runtime.jsontree import JsonObject

FIELD_PATH = "spec.trainer.elasticPolicy"


class Limits(NamedTuple):
    """With how few and how many nodes a job trains."""

    min_nodes: int
    max_nodes: int
    max_restarts: int | None = None
    """How often the agents start their processes anew."""

    def __str__(self) -> str:
        return f"{self.min_nodes}:{self.max_nodes}"


def elastic_limits(ml_policy: MLPolicy | None, job: TrainJob) -> Limits | None:
    """Return the limits of a TrainJob; None if its size is fixed."""
    torch = ml_policy.torch if ml_policy else None
    layers = torch.elastic_policy if torch else None, job.spec.trainer.elastic_policy if job.spec.trainer else None
    if torch is None or layers == (None, None):
        return None
    merged = {name: value for each in layers if each for name, value in each if value is not None}
    fewest = merged.get("min_nodes", 1)
    return Limits(fewest, merged.get("max_nodes", fewest), merged.get("max_restarts"))


def elastic_problems(info: Info, job: TrainJob, nodes: int) -> Iterator[FieldError]:
    """Return why a job of that many nodes cannot be elastic although it is to be."""
    limits = elastic_limits(info.ml_policy, job)
    if limits is None:
        if job.spec.trainer and job.spec.trainer.elastic_policy:
            yield FieldError(FIELD_PATH, "the runtime has no mlPolicy.torch, and only torchrun is elastic", "Forbidden")
        return
    if not 1 <= limits.min_nodes <= limits.max_nodes:
        detail = f"minNodes must be at least 1, and at most maxNodes, which is {limits.max_nodes}"
        yield FieldError(f"{FIELD_PATH}.minNodes", detail, value=limits.min_nodes)
    elif not limits.min_nodes <= nodes <= limits.max_nodes:
        detail = f"must be between {limits.min_nodes} and {limits.max_nodes}, the limits of elasticPolicy"
        yield FieldError("spec.trainer.numNodes", detail, value=nodes)
    if info.trainer and info.trainer.replicas > 1:
        yield FieldError(FIELD_PATH, "a trainer of several slices has a fixed size", "Forbidden")
    if limits.max_nodes > 1 and (info.template.get("network") or {}).get("enableDNSHostnames") is False:
        detail = "nodes meet by host names, but the runtime sets network.enableDNSHostnames to false"
        yield FieldError(FIELD_PATH, detail, "Forbidden")


class Sizes(NamedTuple):
    """How many nodes an elastic job has and is to have."""

    nodes: int
    wanted: int
    suspended: bool
    trainer: str
    """The ReplicatedJob whose pods they are."""


def elastic_sizes(trainjob: JsonObject, jobset: JsonObject) -> Sizes | None:
    """Compare an elastic TrainJob with its JobSet; None if its size is fixed.

    What is beyond the limits, as a server without our webhooks may store it, changes nothing.
    """
    annotation = (jobset["metadata"].get("annotations") or {}).get(ELASTIC_ANNOTATION, "")
    limits = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", annotation)
    trainer = next((each for each in jobset["spec"]["replicatedJobs"] if ancestor_of(each) == TRAINER_ANCESTOR), None)
    if limits is None or trainer is None:
        return None
    nodes = trainer["template"]["spec"].get("parallelism", 1)
    wanted = (trainjob["spec"].get("trainer") or {}).get("numNodes") or nodes
    fewest, most = map(int, limits.groups())
    wanted = wanted if fewest <= wanted <= most else nodes
    return Sizes(nodes, wanted, bool(trainjob["spec"].get("suspend")), trainer["name"])
