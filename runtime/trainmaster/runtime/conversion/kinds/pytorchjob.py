"""PyTorchJob: nodes of torchrun.

- Master and Worker of one template are the nodes of one trainer: node 0 is the master, node i + 1 is worker i, as V1
  ranks them. With different templates there is a ReplicatedJob for each, and the rank is the index among all pods.
- The variables of torchrun come from `mlPolicy.torch` where the job is neither elastic nor of two templates; then
  torchrun meets at the port of TrainJobs. Otherwise they are those of V1.
- MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, for programs that torchrun does not start, are those of V1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trainmaster.runtime.api.constants import (
    NODE,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_NPROC_PER_NODE,
    TORCH_RESERVED_ENV,
)
from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.kinds.elastic import Elastic
from trainmaster.runtime.conversion.replicas import Group
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import MASTER, WORKER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value

_WORDS: Final = ("auto", "cpu", "gpu")
_MOST_TARGETS: Final = 8
"""Containers that mlPolicy.torch.envInjection can name."""


class PyTorchJob(JobConversion):
    """Converts a PyTorchJob."""

    kind = "PyTorchJob"
    framework = "torch"
    is_ranked = True

    _processes: str | None = "auto"
    """nprocPerNode; None where the elastic policy says it."""

    _says_processes = False
    _elastic: Elastic | None = None

    def read(self, spec: Source) -> None:
        """Read nprocPerNode and the elastic policy."""
        given = spec.take("nprocPerNode", str)
        if "elasticPolicy" in spec:
            limits = self.job.spec["elasticPolicy"]
            self._elastic = Elastic(spec.part("elasticPolicy"), limits, self.replicas[WORKER].count, self.notes)
        elastic_processes = self._elastic.processes if self._elastic else None
        self._says_processes = given is not None
        self._processes = given or (None if elastic_processes is not None else "auto")

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1, without those that the torch policy sets."""
        every = list(self._environment(group))
        if not self._has_policy:
            return every
        return [each for each in every if each["name"] not in TORCH_RESERVED_ENV]

    def reserved(self) -> frozenset[str]:
        """Return the variables of torchrun, where the policy sets them."""
        return TORCH_RESERVED_ENV if self._has_policy else frozenset()

    def ml_policy(self) -> JsonObject:
        """Return the torch policy, where it gives what V1 gave."""
        if not self._has_policy:
            return {}
        torch: JsonObject = {}
        if self._processes == "auto" and self._says_processes:
            message = (
                "left out: it is what TrainJobs do, one process for each GPU, or without GPUs one for each CPU of the "
                "container, where V1 had torchrun count those of the machine"
            )
            self.notes.tell("spec.nprocPerNode", message)
        elif self._processes in _WORDS and self._processes != "auto":
            torch["numProcPerNode"] = self._processes
        replicas = self.groups[0].replicas
        others = [each["name"] for place, each in enumerate(replicas.containers) if place != self.groups[0].main]
        if others:
            torch["envInjection"] = {"targets": [{"jobName": NODE, "containerNames": others}]}
        return {"torch": torch}

    def processes(self) -> int | None:
        """Return nprocPerNode if it is a number."""
        return _number(self._processes) if self._has_policy else None

    def job_success(self, group: Group) -> JsonObject | None:
        """V1 looks at the master alone; an elastic job without one has succeeded with its first worker."""
        if not self.is_one_group or group.count <= 1:
            return None
        if MASTER in self.replicas:
            return {"rules": [{"succeededIndexes": "0"}]}
        return {"rules": [{"succeededCount": 1}]} if self._elastic else None

    @property
    def _has_policy(self) -> bool:
        """Whether the variables of torchrun come from the torch policy."""
        if not self.is_one_group or self._elastic or not (self._processes in _WORDS or _number(self._processes)):
            return False
        containers = self.groups[0].replicas.containers
        # V1 lets the user's own stand where it sets none itself; the policy would refuse, or replace them.
        own = {variable["name"] for each in containers for variable in each.get("env") or ()} & TORCH_RESERVED_ENV
        set_by_v1 = {each["name"] for each in self._environment(self.groups[0])}
        names = {each.get("name") for each in containers}
        return own <= set_by_v1 and NODE not in names and len(containers) <= _MOST_TARGETS + 1

    def _environment(self, group: Group) -> Iterable[JsonObject]:
        yield env_value("PYTHONUNBUFFERED", 1)
        master = self.replicas.get(MASTER)
        if master is not None:
            port, host = self.port(master), self.host(master, 0)
            yield env_value("MASTER_PORT", port)
            yield env_value(PET_MASTER_PORT, port)
            yield env_value("MASTER_ADDR", host)
            yield env_value(PET_MASTER_ADDR, host)
            yield env_value("WORLD_SIZE", self.total * (_number(self._processes) or 1))
            yield self.rank(group, "RANK")
            yield self.rank(group, PET_NODE_RANK)
        if self._processes is not None:
            yield env_value(PET_NPROC_PER_NODE, self._processes)
        if self._elastic is None:
            yield env_value(PET_NNODES, self.total)
        else:
            worker = self.replicas[WORKER]
            host = self.host(worker, 0) if worker.count else self.host(self.present[0], 0)
            yield from self._elastic.environment(self.hosts.rewritten, host, self.port(worker))


def _number(processes: str | None) -> int | None:
    """Return a number of processes that is written as one."""
    try:
        number = int(processes or "")
    except ValueError:
        return None
    return number if number >= 1 else None
