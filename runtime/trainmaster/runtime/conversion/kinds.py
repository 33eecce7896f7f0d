"""What each of the six kinds has of its own in its conversion.

The elastic policy of a PyTorchJob: by its variables torchrun forms the ring again when workers come and go.

A TrainJob keeps the number of its nodes. Nodes that fail come back and join again; no autoscaler adds or removes any.

PyTorchJob: nodes of torchrun.

- Master and Worker of one template are the nodes of one trainer: node 0 is the master, node i + 1 is worker i, as V1
  ranks them. With different templates there is a ReplicatedJob for each, and the rank is the index among all pods.
- The variables of torchrun come from `mlPolicy.torch` where the job is neither elastic nor of two templates; then
  torchrun meets at the port of TrainJobs. Otherwise they are those of V1.
- MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, for programs that torchrun does not start, are those of V1.

TFJob: a ReplicatedJob for each type of replicas; there is no plugin for TensorFlow, and none is needed.

TF_CONFIG is the same for all pods of a type but for the index, which Kubernetes fills in as `$(JOB_COMPLETION_INDEX)`.

XGBoostJob: the nodes of one trainer, with the variables of V1 beside those of `mlPolicy.xgboost`.

Node 0 is the master, node i + 1 is worker i. With different templates there is a ReplicatedJob for each, and the rank
is the index among all pods.

PaddleJob: one pod where all meet, and the others.

The launcher of Paddle starts the rendezvous where PADDLE_MASTER is the address of its own pod, so that pod gets its IP
and the others get its name: they are two ReplicatedJobs. With a Master (a parameter server) these are `master` and
`worker`. Without one the first worker is the ReplicatedJob `master`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from trainmaster.runtime.api.constants import (
    NODE,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_NPROC_PER_NODE,
    PET_RDZV_BACKEND,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
    TORCH_RESERVED_ENV,
    XGBOOST_RESERVED_ENV,
)
from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.replicas import Group, Replicas
from trainmaster.runtime.conversion.source import Source, checked, objects
from trainmaster.runtime.jobs.constants import MASTER, WORKER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_completion_index, env_field, env_value

_WORDS: Final = ("auto", "cpu", "gpu")
_MOST_TARGETS: Final = 8
"""Containers that mlPolicy.torch.envInjection can name."""

CHIEFS: Final = ("Chief", "Master")
PS: Final = "PS"
_ALL_WORKERS: Final = "AllWorkers"
_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Kubernetes sets this variable last, unless it is there; so it has to be, to be used by another one."""

_MEETING: Final = "master"
_POD_IP: Final = "POD_IP_DUMMY"


class Elastic:
    """An elastic policy.

    Args:
        limits: The policy with its limits, which may have defaults.
        workers: How many workers there are.
    """

    def __init__(self, source: Source, limits: JsonObject, workers: int, notes: Notes) -> None:
        for name in ("minReplicas", "maxReplicas"):
            source.take(name, int)
        self._lowest, self._highest = limits["minReplicas"], limits["maxReplicas"]
        self._backend = source.take("rdzvBackend", str) or "c10d"
        self._host, self._port = source.take("rdzvHost", str), source.take("rdzvPort", int)
        self._id = source.take("rdzvId", str)
        conf = objects(source.take("rdzvConf", list) or [], source.at("rdzvConf"))
        self._conf = [
            "=".join(
                checked(each.get(field), str, f"{source.at('rdzvConf')}[{place}].{field}") for field in ("key", "value")
            )
            for place, each in enumerate(conf)
        ]
        self._standalone = source.take("standalone", bool)
        self._restarts = source.take("maxRestarts", int)
        self.processes = source.take("nProcPerNode", int)
        """nProcPerNode, the older place of nprocPerNode."""

        if source.take("metrics", list):
            notes.lose(
                source.at("metrics"),
                f"left out: nothing changes the number of nodes of a TrainJob, so it keeps {workers} workers and gets "
                "no HorizontalPodAutoscaler",
            )
        elif self._lowest != self._highest:
            notes.tell(
                source.at("minReplicas"),
                f"a TrainJob keeps its {workers} workers; torchrun goes on with {self._lowest} or more of them",
            )

    def environment(self, rewritten: Callable[[str], str], host: str, port: int) -> Iterable[JsonObject]:
        """Return the variables that V1 set.

        Args:
            rewritten: Puts new names of pods in place of old ones.
        """
        host = rewritten(self._host) if self._host else host
        yield env_value(PET_RDZV_ENDPOINT, f"{host}:{port if self._port is None else self._port}")
        yield env_value(PET_RDZV_BACKEND, self._backend)
        yield env_value(PET_NNODES, f"{self._lowest}:{self._highest}")
        if self._restarts is not None:
            yield env_value("PET_MAX_RESTARTS", self._restarts)
        if self.processes is not None:
            yield env_value(PET_NPROC_PER_NODE, self.processes)
        if self._id:
            yield env_value(PET_RDZV_ID, self._id)
        if self._conf:
            yield env_value("PET_RDZV_CONF", ",".join(self._conf))
        if self._standalone:
            # V1 set the empty text, which torchrun cannot read.
            yield env_value("PET_STANDALONE", 1)


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


class TFJob(JobConversion):
    """Converts a TFJob."""

    kind = "TFJob"
    framework = "tensorflow"
    sets_main_only = True

    _needs_all_workers = False
    _is_dynamic = False

    def read(self, spec: Source) -> None:
        """Read when the job has succeeded, and whether workers come and go."""
        policy = spec.take("successPolicy", str)
        if policy not in (None, "", _ALL_WORKERS):
            raise ConversionError(spec.at("successPolicy"), f'"{policy}" is neither empty nor {_ALL_WORKERS}')
        self._needs_all_workers = policy == _ALL_WORKERS
        self._is_dynamic = bool(spec.take("enableDynamicWorker", bool))
        if self._is_dynamic:
            self.notes.lose(
                spec.at("enableDynamicWorker"),
                "workers know of themselves only, as in V1; but the failure of one ends the TrainJob as its "
                "restartPolicy says, and none can be added",
            )

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return TF_CONFIG, if there are several pods."""
        if self.total == 1:
            return
        yield env_completion_index(_INDEX)
        config = self._sparse(group) if self._is_dynamic else self._full(group)
        yield env_value("TF_CONFIG", config)

    def job_success(self, group: Group) -> JsonObject | None:
        """Without a chief, V1 looks at the first worker alone."""
        if self._chief or self._needs_all_workers or group.replicas.type != WORKER or group.count <= 1:
            return None
        return {"rules": [{"succeededIndexes": "0"}]}

    @property
    def _chief(self) -> Replicas | None:
        return next((each for each in self.present if each.type in CHIEFS and each.count), None)

    def _address(self, replicas: Replicas, index: int) -> str:
        return f"{self.host(replicas, index)}:{self.port(replicas)}"

    def _addresses(self, type_: str) -> list[str]:
        replicas = self.replicas.get(type_)
        return [self._address(replicas, index) for index in range(replicas.count)] if replicas else []

    def _full(self, group: Group) -> str:
        cluster = {each.word: self._addresses(each.type) for each in self.replicas.values()}
        ordered = {word: cluster[word] for word in sorted(cluster)}
        return _with_task({"cluster": ordered}, group, environment="cloud")

    def _sparse(self, group: Group) -> str:
        """Workers know themselves and all parameter servers, parameter servers know themselves."""
        type_ = group.replicas.type
        own = f"{group.name}-0-$({_INDEX})"
        address = f"{self.jobset}-{own}.{self.jobset}:{self.port(group.replicas)}"
        cluster: JsonObject = {"worker": {}, "ps": []}
        if type_ == WORKER:
            cluster = {"worker": {f"$({_INDEX})": address}, "ps": self._addresses(PS)}
        elif type_ == PS:
            cluster["ps"] = [address]
        return _with_task({"cluster": cluster}, group)


def _with_task(config: JsonObject, group: Group, **more: Any) -> str:
    """Write a configuration as V1 did, with the index as a number that is not known yet."""
    task = {"type": group.replicas.word, "index": 0}
    text = json.dumps({**config, "task": task, **more}, separators=(",", ":"))
    return text.replace(
        f'"type":"{group.replicas.word}","index":0', f'"type":"{group.replicas.word}","index":$({_INDEX})'
    )


class XGBoostJob(JobConversion):
    """Converts an XGBoostJob."""

    kind = "XGBoostJob"
    framework = "xgboost"
    is_ranked = True

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1."""
        master, worker = self.replicas[MASTER], self.replicas.get(WORKER)
        yield env_value("MASTER_PORT", self.port(master))
        yield env_value("MASTER_ADDR", self.host(master, 0))
        yield env_value("WORLD_SIZE", self.total)
        yield self.rank(group, "RANK")
        yield env_value("PYTHONUNBUFFERED", 1)
        if worker is not None and worker.count:
            yield env_value("WORKER_PORT", self.port(worker))
            yield env_value("WORKER_ADDRS", ",".join(self.host(worker, index) for index in range(worker.count)))

    def ml_policy(self) -> JsonObject:
        """Return the XGBoost policy, unless the user sets its variables."""
        containers = self.groups[0].replicas.containers
        own = {variable["name"] for each in containers for variable in each.get("env") or ()}
        return {"xgboost": {}} if self.is_one_group and not own & XGBOOST_RESERVED_ENV else {}

    def job_success(self, group: Group) -> JsonObject | None:
        """V1 looks at the master alone."""
        return {"rules": [{"succeededIndexes": "0"}]} if self.is_one_group and group.count > 1 else None


class PaddleJob(JobConversion):
    """Converts a PaddleJob."""

    kind = "PaddleJob"
    framework = "paddle"

    def read(self, spec: Source) -> None:
        """Leave out the elastic policy, by which V1 does nothing."""
        policy = spec.part("elasticPolicy")
        for field in policy.names:
            self.notes.tell(policy.at(field), "left out: Training Operator V1 does nothing with it in a PaddleJob")
        policy.take_all()

    def group(self) -> list[Group]:
        """Return the pod where all meet, and the others."""
        first, others = self._meeting, [each for each in self.present if each is not self._meeting]
        if first.count <= 1 and not others:
            return [self.group_of(first)]
        main = self.main_container(first)
        groups = [Group(_MEETING, [(first, range(1))], main=main, is_node=True)]
        if first.count > 1:
            groups.append(
                Group("worker" if first.type == WORKER else "server", [(first, range(1, first.count))], main=main)
            )
        return groups + [self.group_of(each) for each in others]

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1."""
        meeting = self._meeting
        yield env_value("PYTHONUNBUFFERED", 1)
        yield env_value("PADDLE_JOB_ID", self.jobset)
        yield env_value("PADDLE_NNODES", self.total)
        if group is self.groups[0]:
            yield env_field(_POD_IP, "status.podIP")
            yield env_value("PADDLE_MASTER", f"$({_POD_IP}):{self.port(meeting)}")
        else:
            yield env_value("PADDLE_MASTER", f"{self.host(meeting, 0)}:{self.port(meeting)}")
        if self._has_servers:
            yield env_value("PADDLE_SERVER_NUM" if group.replicas.type == MASTER else "PADDLE_TRAINER_NUM", 1)

    @property
    def _has_servers(self) -> bool:
        return MASTER in self.replicas

    @property
    def _meeting(self) -> Replicas:
        """The type whose first pod is where all meet."""
        return self.present[0]


class JAXJob(JobConversion):
    """Converts a JAXJob."""

    kind = "JAXJob"
    framework = "jax"

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1."""
        worker = group.replicas
        yield env_value("PYTHONUNBUFFERED", 1)
        yield env_value("COORDINATOR_PORT", self.port(worker))
        yield env_value("COORDINATOR_ADDRESS", self.host(worker, 0))
        yield env_value("NUM_PROCESSES", self.total)
        yield self.rank(group, "PROCESS_ID")

    def ml_policy(self) -> JsonObject:
        """Return the JAX policy."""
        return {"jax": {}}
