"""spec.runPolicy: what a V1 job says about its life, and where a TrainJob says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trainmaster.runtime.api.constants import MANAGED_BY_MULTIKUEUE, MANAGED_BY_TRAINER, VOLCANO_QUEUE_ANNOTATION
from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import CLEAN_NONE, CLEAN_RUNNING, MANAGED_BY_TRAINING_OPERATOR
from trainmaster.runtime.jsontree import JsonObject

_MANAGED_BY: Final = {
    MANAGED_BY_TRAINING_OPERATOR: MANAGED_BY_TRAINER,
    MANAGED_BY_MULTIKUEUE: MANAGED_BY_MULTIKUEUE,
}

VOLCANO: Final = "volcano"
_PATH: Final = "spec.runPolicy.schedulingPolicy"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """What a job says about its gang; it counts where there is a gang scheduler."""

    min_available: int | None = None
    queue: str | None = None
    priority_class: str | None = None
    schedule_timeout_seconds: int | None = None
    given: tuple[str, ...] = ()
    """The paths of all that is set."""


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """What was read."""

    trainjob: JsonObject = field(default_factory=dict)
    """The fields of the TrainJob's spec."""

    backoff_limit: int | None = None
    scheduling: SchedulingPolicy = field(default_factory=SchedulingPolicy)


def convert_run_policy(source: Source, notes: Notes) -> RunPolicy:
    """Read the run policy of a valid job.

    Raises:
        ConversionError: A field has a value that means nothing.
    """
    trainjob: JsonObject = {}
    if (suspend := source.take("suspend", bool)) is not None:
        trainjob["suspend"] = suspend
    _convert_deadline(source, trainjob, notes)
    _convert_ttl(source, trainjob, notes)
    _convert_manager(source, trainjob, notes)
    convert_cleanup(source, notes)
    backoff_limit = source.take("backoffLimit", int)
    if backoff_limit is not None and backoff_limit < 0:
        raise ConversionError(source.at("backoffLimit"), f"must not be negative, but is {backoff_limit}")
    return RunPolicy(trainjob, backoff_limit, _scheduling_policy(source.part("schedulingPolicy")))


def _convert_deadline(source: Source, trainjob: JsonObject, notes: Notes) -> None:
    seconds = source.take("activeDeadlineSeconds", int)
    if seconds is None:
        return
    if seconds >= 1:
        trainjob["activeDeadlineSeconds"] = seconds
    else:
        notes.lose(
            source.at("activeDeadlineSeconds"),
            f"left out: {seconds} lets the job fail as soon as it starts; a TrainJob needs 1 second at least",
        )


def _convert_ttl(source: Source, trainjob: JsonObject, notes: Notes) -> None:
    seconds = source.take("ttlSecondsAfterFinished", int)
    if seconds is None:
        return
    trainjob["ttlSecondsAfterFinished"] = max(seconds, 0)
    if seconds < 0:
        notes.tell(source.at("ttlSecondsAfterFinished"), f"{seconds} becomes 0: both mean at once")


def _convert_manager(source: Source, trainjob: JsonObject, notes: Notes) -> None:
    manager = source.take("managedBy", str)
    if manager is None:
        return
    trainjob["managedBy"] = _MANAGED_BY[manager]
    if _MANAGED_BY[manager] != manager:
        notes.tell(source.at("managedBy"), f"becomes {_MANAGED_BY[manager]}")


def convert_cleanup(source: Source, notes: Notes) -> None:
    """Tell what becomes of a cleanPodPolicy, which a JobSet has not. V1 takes every other word for All."""
    policy, path = source.take("cleanPodPolicy", str), source.at("cleanPodPolicy")
    if policy == CLEAN_NONE:
        notes.lose(
            path,
            "pods that still run when the job has ended are stopped: a JobSet keeps only those that have ended; "
            "let what has to go on run in a job of its own",
        )
    elif policy == CLEAN_RUNNING:
        notes.tell(path, "is what JobSets do: pods that still run when the job has ended are deleted")
    elif policy:
        notes.lose(
            path,
            "pods that have ended are kept as long as the TrainJob; ttlSecondsAfterFinished deletes both",
        )


def _scheduling_policy(source: Source) -> SchedulingPolicy:
    given = tuple(source.at(name) for name in source.names)
    source.take("minResources", dict)
    return SchedulingPolicy(
        min_available=source.take("minAvailable", int),
        queue=source.take("queue", str),
        priority_class=source.take("priorityClass", str),
        schedule_timeout_seconds=source.take("scheduleTimeoutSeconds", int),
        given=given,
    )


def set_gang(
    runtime: JsonObject,
    pod_specs: list[JsonObject],
    policy: SchedulingPolicy,
    *,
    scheduler: str,
    pods: int,
    notes: Notes,
) -> None:
    """Let all pods of a runtime be scheduled together.

    Args:
        runtime: The runtime's spec; it is changed.
        pod_specs: Those of its pods; they are changed.
        scheduler: What Training Operator V1 runs with as `--gang-scheduler-name`; nothing: without gangs.
        pods: How many pods the job has.
    """
    if not scheduler:
        for path in policy.given:
            notes.lose(
                path, "left out: it counts only with a gang scheduler; name the one of V1 with --gang-scheduler-name"
            )
        return
    is_volcano = scheduler.lower() == VOLCANO
    for pod_spec in pod_specs:
        pod_spec.setdefault("schedulerName", VOLCANO if is_volcano else scheduler)
    if is_volcano:
        _set_volcano(runtime, pod_specs, policy, notes)
    else:
        _set_coscheduling(runtime, policy, notes)
    if policy.min_available is not None and policy.min_available != pods:
        notes.lose(
            f"{_PATH}.minAvailable",
            f"{policy.min_available} becomes {pods}: a TrainJob starts with all of its pods or not at all",
        )
    elif policy.min_available is not None:
        notes.tell(f"{_PATH}.minAvailable", "left out: it is the number of all pods, which a TrainJob waits for anyway")
    if f"{_PATH}.minResources" in " ".join(policy.given):
        notes.tell(f"{_PATH}.minResources", "left out: it is calculated from what the pods request")


def _set_volcano(runtime: JsonObject, pod_specs: list[JsonObject], policy: SchedulingPolicy, notes: Notes) -> None:
    runtime["podGroupPolicy"] = {"volcano": {}}
    if policy.queue:
        metadata = runtime["template"].setdefault("metadata", {})
        metadata.setdefault("annotations", {})[VOLCANO_QUEUE_ANNOTATION] = policy.queue
    if policy.priority_class:
        for pod_spec in pod_specs:
            pod_spec.setdefault("priorityClassName", policy.priority_class)
        notes.tell(
            f"{_PATH}.priorityClass", "is set for the pods that name none, too: the gang has the class of its pods"
        )
    if policy.schedule_timeout_seconds is not None:
        notes.tell(f"{_PATH}.scheduleTimeoutSeconds", "left out: V1 does not pass it on to Volcano either")


def _set_coscheduling(runtime: JsonObject, policy: SchedulingPolicy, notes: Notes) -> None:
    timeout = policy.schedule_timeout_seconds
    runtime["podGroupPolicy"] = {"coscheduling": {} if timeout is None else {"scheduleTimeoutSeconds": timeout}}
    for name, value in (("queue", policy.queue), ("priorityClass", policy.priority_class)):
        if value is not None:
            notes.tell(f"{_PATH}.{name}", "left out: V1 passes it on to Volcano only")
