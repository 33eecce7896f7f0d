"""What a job says of itself, as commands, explanations, the history and the web page show it. Pure.

A job is a TrainJob or one of `kubeflow.org/v1`, as the API server gave it. Objects are whatever the definitions of the
cluster, Trainmaster's or another's, have let in: what has not the shape that it should have is taken for absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, PLUGIN_SKIPPED, WAITING
from trainmaster.controller.container_failures import restarts_of
from trainmaster.runtime.api.constants import (
    COMPLETE,
    FAILED,
    NODE,
    RESILIENCE_STATUS_ANNOTATION,
    SUSPENDED,
    TRAINJOB_KIND,
)
from trainmaster.runtime.jobs.constants import BACKOFF_LIMIT_REACHED, CREATED, RESTARTING, RUNNING, SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""A job that has it is suspended and resumed by Kueue."""

MADE_BY_RUN: Final = {"app.kubernetes.io/managed-by": "trainmaster-run"}
"""The label of what `trainmaster run` makes of a program: nobody has written a manifest."""

PRECEDENCE: Final = (
    COMPLETE, SUCCEEDED, FAILED, BLOCKED, SUSPENDED, CONTAINER_FAILED, RESTARTING, WAITING, RUNNING, CREATED,
    PLUGIN_SKIPPED,
)  # fmt: skip
"""The conditions of jobs of both APIs, the one that matters most first: an end is final, and a problem wants its owner,
also while the job is suspended and would not show it. The first of them that holds is the state of a job.
"""

ENDS: Final = (COMPLETE, SUCCEEDED, FAILED)
"""The conditions of a job that has ended."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of a job that are the same."""

    pods: int
    pod_spec: Mapping[str, Any]
    is_node: bool
    """Whether they train; others initialize, or launch."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the training has reported of itself (`status.trainerStatus`)."""

    percentage: int | None
    """From 0 to 100."""

    remaining_seconds: int | None
    """Until the end, as the training sees it."""

    metrics: Mapping[str, str]
    """The last numbers, by name, as they were reported."""

    time: str = ""
    """When, RFC 3339; empty if it does not say."""


@dataclass(frozen=True, slots=True)
class JobFields:
    """The fields of a job. Texts are empty, and mappings too, where they are absent."""

    object: JsonObject

    @property
    def kind(self) -> str:
        """Of the job."""
        return text(self.object.get("kind")) or TRAINJOB_KIND

    @property
    def is_trainjob(self) -> bool:
        """Whether it is one; else it is of `kubeflow.org/v1`."""
        return self.kind == TRAINJOB_KIND

    @property
    def metadata(self) -> JsonObject:
        """Of the object."""
        return mapping(self.object.get("metadata"))

    @property
    def namespace(self) -> str:
        """In which it is."""
        return text(self.metadata.get("namespace"))

    @property
    def name(self) -> str:
        """Of the job."""
        return text(self.metadata.get("name"))

    @property
    def uid(self) -> str:
        """Of the object: a job that is created anew under the same name has another one."""
        return text(self.metadata.get("uid"))

    @property
    def is_made_by_run(self) -> bool:
        """Whether `trainmaster run` made it of a program, so that options say what fields say of others."""
        return MADE_BY_RUN.items() <= mapping(self.metadata.get("labels")).items()

    @property
    def is_terminating(self) -> bool:
        """Whether the server was asked to delete it, which may take its time."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def spec(self) -> JsonObject:
        """What is wanted."""
        return mapping(self.object.get("spec"))

    @property
    def run_policy(self) -> JsonObject:
        """Where `suspend`, `managedBy` and the limits of the job stand."""
        return self.spec if self.is_trainjob else mapping(self.spec.get("runPolicy"))

    @property
    def is_suspended(self) -> bool:
        """Whether its owner, or a queue, wants it to be."""
        return bool(self.run_policy.get("suspend"))

    @property
    def status(self) -> JsonObject:
        """What has become of it so far."""
        return mapping(self.object.get("status"))

    @property
    def conditions(self) -> dict[str, JsonObject]:
        """Those that hold, by type."""
        return true_conditions(self.object)

    @property
    def outcome(self) -> str | None:
        """How it ended: the type of that condition; None while it may still run."""
        conditions = self.conditions
        return next((each for each in ENDS if each in conditions), None)

    @property
    def began(self) -> str:
        """Since when it may run, RFC 3339: its creation, or the end of its last suspension."""
        resumed = next(
            (each for each in conditions_of(self.object) if (each["type"], each["status"]) == (SUSPENDED, "False")), {}
        )
        return text(resumed.get("lastTransitionTime")) or text(self.metadata.get("creationTimestamp"))

    @property
    def ended(self) -> str:
        """When it ended, RFC 3339."""
        end = self.conditions.get(self.outcome or "")
        return "" if end is None else text(self.status.get("completionTime")) or end.get("lastTransitionTime", "")

    @property
    def parts(self) -> list[JsonObject]:
        """What became of each ReplicatedJob of a TrainJob, as its workload tells."""
        return mappings(self.status.get("jobsStatus"))

    @property
    def replicas(self) -> list[JsonObject]:
        """What became of the replicas of each type of a job of `kubeflow.org/v1`."""
        return mappings(list(mapping(self.status.get("replicaStatuses")).values()))

    @property
    def progress(self) -> Progress | None:
        """What the training of a TrainJob has reported of itself; None if it reports nothing."""
        reported = mapping(self.status.get("trainerStatus"))
        if not reported:
            return None
        metrics = mappings(reported.get("metrics"))
        percentage, remaining = reported.get("progressPercentage"), reported.get("estimatedRemainingSeconds")
        return Progress(
            percentage if isinstance(percentage, int) else None,
            remaining if isinstance(remaining, int) else None,
            {name: text(each.get("value")) for each in metrics if (name := text(each.get("name")))},
            text(reported.get("lastUpdatedTime")),
        )

    def restarts(self, jobset: JsonObject, pods: Iterable[JsonObject] = ()) -> int:
        """Return how often the training was started again, as the job, its JobSet (empty: none) and its pods tell.

        Of jobs of `kubeflow.org/v1` the restarts of all pods count, where the job has a limit of them, and those by its
        resilience policy, of all pods together.
        """
        if not self.is_trainjob:
            return self._restarts_together() + self._restarts_counted()
        told = "\n".join(self.conditions.get(each, {}).get("message", "") for each in (FAILED, CONTAINER_FAILED))
        noted = [number(mapping(each).get("restarts")) for each in (self.status, jobset.get("status"))]
        return max(*noted, restarts_of(pods, told))

    def _restarts_counted(self) -> int:
        """Return how many restarts count against `backoffLimit`.

        Of a job that has failed by its limit it is the limit: restarts in place are not in the status, and pods that
        stay may go on restarting.
        """
        limit = number(self.run_policy.get("backoffLimit"))
        if limit and BACKOFF_LIMIT_REACHED in text(self.conditions.get(FAILED, {}).get("message")):
            return limit
        return sum(number(each.get("restarts")) for each in self.replicas)

    def _restarts_together(self) -> int:
        """Return how often all pods of a job of `kubeflow.org/v1` were restarted by its resilience policy."""
        annotations = mapping(self.metadata.get("annotations"))
        if RESILIENCE_STATUS_ANNOTATION not in annotations:
            return 0
        from trainmaster.runtime.resilience import group_ledger  # noqa: PLC0415 - has pydantic

        ledger = group_ledger(annotations, self.uid)
        attempts: list[JsonObject] = ledger.get("attempts") or [{"number": -1}]
        return number(attempts[-1].get("number"), -1) + 1 - bool(ledger.get("failure"))

    def pod_sets(self, jobset: JsonObject) -> list[PodSet]:
        """Return what it asks for: a TrainJob by its JobSet, which has what its runtime says, or else by itself."""
        return list(_of_jobset(jobset)) or list(self._of_trainer() if self.is_trainjob else self._of_replicas())

    def _of_trainer(self) -> Iterator[PodSet]:
        trainer = mapping(self.spec.get("trainer"))
        if nodes := number(trainer.get("numNodes")):
            container = {"resources": mapping(trainer.get("resourcesPerNode"))}
            yield PodSet(nodes, {"containers": [container]}, is_node=True)

    def _of_replicas(self) -> Iterator[PodSet]:
        for name, replicas in self.spec.items():
            if name.endswith("ReplicaSpecs"):
                for each in mapping(replicas).values():
                    pod_spec = mapping(mapping(mapping(each).get("template")).get("spec"))
                    yield PodSet(number(mapping(each).get("replicas"), 1), pod_spec, is_node=True)


def _of_jobset(jobset: JsonObject) -> Iterator[PodSet]:
    for each in mappings(mapping(jobset.get("spec")).get("replicatedJobs")):
        job = mapping(mapping(each.get("template")).get("spec"))
        pods = number(each.get("replicas"), 1) * number(job.get("parallelism"), 1)
        yield PodSet(pods, mapping(mapping(job.get("template")).get("spec")), each.get("name") == NODE)


def conditions_of(obj: JsonObject) -> list[JsonObject]:
    """Return the conditions of an object that are some: texts, with a type and a status."""
    return [
        {name: value for name, value in each.items() if isinstance(value, str)}
        for each in mappings(mapping(obj.get("status")).get("conditions"))
        if isinstance(each.get("type"), str) and isinstance(each.get("status"), str)
    ]


def true_conditions(obj: JsonObject) -> dict[str, JsonObject]:
    """Return the conditions of an object that hold, by type."""
    return {each["type"]: each for each in conditions_of(obj) if each["status"] == "True"}


def mapping(value: Any) -> JsonObject:
    """Return a value that is a mapping; an empty one in the place of any other."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """Return a value that is a text; an empty one in the place of any other."""
    return value if isinstance(value, str) else ""


def number(value: Any, default: int = 0) -> int:
    """Return a value that is a number of things; the default in the place of any other."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def mappings(value: Any) -> list[JsonObject]:
    """Return the mappings of a list; none in the place of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
