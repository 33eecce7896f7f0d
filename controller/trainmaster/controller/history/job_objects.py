"""What an object of the API tells of a job, as a record; pure.

Objects are whatever the definitions of the cluster, ours or another's, have let in: what has not the shape that it
should have is taken for absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.controller.condition_types import CONTAINER_FAILED
from trainmaster.controller.explain.conditions import cause_of
from trainmaster.controller.history.record import FAILED, SUCCEEDED, JobRecord, Sample, TimelineEntry, bounded, gone
from trainmaster.runtime.api.constants import COMPLETE, JOBSET_KIND, NODE, TRAINJOB_KIND
from trainmaster.runtime.jobs import constants as v1
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

_EXIT_CODE: Final = re.compile(r"\bexit code:? (\d{1,3})\b")
_RESTART: Final = re.compile(r"attempt (\d{1,6})(?:, restart (\d{1,6}))?: ")
_ENDS: Final = (COMPLETE, SUCCEEDED, FAILED)


def record_of(
    job: JsonObject, workloads: Iterable[JsonObject] = (), *, started: str = "", user_key: str = ""
) -> JobRecord:
    """Return what is known of a job at present.

    Args:
        job: A TrainJob, or a job of `kubeflow.org/v1`.
        workloads: What a TrainJob became, as far as it is there: a JobSet tells what its runtime asks for.
        started: When all of a TrainJob was seen to be ready for the first time; its status has no room for that.
        user_key: The annotation, or label, that says who submitted it.
    """
    metadata, spec, status = _mapping(job.get("metadata")), _mapping(job.get("spec")), _mapping(job.get("status"))
    conditions = conditions_of(job)
    kind = _text(job.get("kind")) or TRAINJOB_KIND
    is_trainjob = kind == TRAINJOB_KIND
    end = next((each for each in conditions if each["type"] in _ENDS and each["status"] == "True"), None)
    running = next((each for each in conditions if each["type"] == v1.RUNNING), {})
    jobset = next((each for each in workloads if each.get("kind") == JOBSET_KIND), {})
    groups = list(_jobset_groups(jobset)) or (
        list(_trainer_groups(spec)) if is_trainjob else list(_replica_groups(spec))
    )
    told = "\n".join(_text(each.get("message")) for each in conditions if each["type"] in (FAILED, CONTAINER_FAILED))
    exit_codes = _EXIT_CODE.findall(told)
    restarts = max(
        _number(_mapping(jobset.get("status")).get("restarts")),
        sum(_number(_mapping(each).get("restarts")) for each in _mapping(status.get("replicaStatuses")).values()),
        *(int(attempt) + int(restart or 0) for attempt, restart in _RESTART.findall(told)),
        0,
    )
    return bounded(
        JobRecord(
            uid=_text(metadata.get("uid")),
            api_version=_text(job.get("apiVersion")),
            kind=kind,
            namespace=_text(metadata.get("namespace")),
            name=_text(metadata.get("name")),
            created=_text(metadata.get("creationTimestamp")),
            runtime=_text(_mapping(spec.get("runtimeRef")).get("name")) if is_trainjob else "",
            user=_annotation(metadata, user_key) if user_key else "",
            nodes=_nodes(groups),
            accelerators=_accelerators(groups),
            started=started or _text(status.get("startTime")) or _text(running.get("lastTransitionTime")),
            ended=_text(status.get("completionTime")) or _text(end.get("lastTransitionTime")) if end else "",
            result=(FAILED if end["type"] == FAILED else SUCCEEDED) if end else "",
            cause=_cause(conditions) if end is None or end["type"] == FAILED else "",
            message=_text(end.get("message")) if end else "",
            exit_code=int(exit_codes[0]) if exit_codes and (end is None or end["type"] == FAILED) else None,
            restarts=restarts,
            samples=list(_samples(status)),
            suspensions=sum(each["type"] == v1.SUSPENDED and each["status"] == "True" for each in conditions),
            timeline=list(_timeline(metadata, conditions, started)),
        )
    )


def _cause(conditions: Iterable[JsonObject]) -> str:
    return cause_of({each["type"]: each for each in conditions if each["status"] == "True"}) or ""


def deleted_record(
    job: JsonObject, workloads: Iterable[JsonObject] = (), *, at: str, started: str = "", user_key: str = ""
) -> JobRecord:
    """Return what is known of a job that is gone, or is about to go.

    Args:
        job: Its last state.
        workloads: As of `record_of`.
        at: When it was deleted.
        started: As of `record_of`.
        user_key: Likewise.
    """
    record = record_of(job, workloads, started=started, user_key=user_key)
    # The server writes until when it gives the job; what it was asked at that is the same, but for a grace period.
    metadata = _mapping(job.get("metadata"))
    return gone(record, at=_text(metadata.get("deletionTimestamp")) or at, text="the job was deleted")


def conditions_of(job: JsonObject) -> list[JsonObject]:
    """Return the conditions of a job that are some: texts, with a type and a status."""
    listed = _mapping(job.get("status")).get("conditions")
    return [
        {name: text for name, text in each.items() if isinstance(text, str)}
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and isinstance(each.get("type"), str) and isinstance(each.get("status"), str)
    ]


def is_deleted(job: JsonObject) -> bool:
    """Tell whether the server was asked to delete a job, which may take its time."""
    return bool(_mapping(job.get("metadata")).get("deletionTimestamp"))


def has_parts(job: JsonObject) -> bool:
    """Tell whether a TrainJob has become something that tells of itself."""
    return bool(_mapping(job.get("status")).get("jobsStatus"))


def is_ready(job: JsonObject) -> bool:
    """Tell whether all of a TrainJob is ready now: no part of it has ended, so that this is how it began."""
    jobs = _mapping(job.get("status")).get("jobsStatus")
    parts = [each for each in jobs if isinstance(each, dict)] if isinstance(jobs, list) else []
    nodes = [each for each in parts if each.get("name") == NODE] or parts
    return bool(nodes) and all(0 < _number(each.get("active")) <= _number(each.get("ready")) for each in nodes)


def progress_of(job: JsonObject) -> Sample | None:
    """Return what a TrainJob has reported of its progress last."""
    return next(_samples(_mapping(job.get("status"))), None)


@dataclass(frozen=True, slots=True)
class _Group:
    """Some pods that are the same."""

    pods: int
    pod_spec: Mapping[str, Any]
    is_node: bool


def _jobset_groups(jobset: JsonObject) -> Iterator[_Group]:
    replicated = _mapping(jobset.get("spec")).get("replicatedJobs")
    for each in replicated if isinstance(replicated, list) else ():
        job = _mapping(_mapping(_mapping(each).get("template")).get("spec"))
        pods = _number(_mapping(each).get("replicas"), 1) * _number(job.get("parallelism"), 1)
        yield _Group(pods, _mapping(_mapping(job.get("template")).get("spec")), _mapping(each).get("name") == NODE)


def _trainer_groups(spec: Mapping[str, Any]) -> Iterator[_Group]:
    """What a TrainJob says itself, where there is nothing yet that knows what its runtime says."""
    trainer = _mapping(spec.get("trainer"))
    if trainer.get("numNodes"):
        container = {"resources": _mapping(trainer.get("resourcesPerNode"))}
        yield _Group(_number(trainer["numNodes"]), {"containers": [container]}, is_node=True)


def _replica_groups(spec: Mapping[str, Any]) -> Iterator[_Group]:
    for name, replicas in spec.items():
        if name.endswith("ReplicaSpecs"):
            for each in _mapping(replicas).values():
                pod = _mapping(_mapping(_mapping(each).get("template")).get("spec"))
                yield _Group(_number(_mapping(each).get("replicas"), 1), pod, is_node=True)


def _nodes(groups: list[_Group]) -> int | None:
    if not groups:
        return None
    return sum(each.pods for each in groups if each.is_node) or sum(each.pods for each in groups)


def _accelerators(groups: list[_Group]) -> dict[str, int]:
    """Add up the extended resources of all pods: their names have a domain, unlike those of cpu and memory."""
    found: dict[str, int] = {}
    for group in groups:
        containers = group.pod_spec.get("containers")
        for container in containers if isinstance(containers, list) else ():
            resources = _mapping(_mapping(container).get("resources"))
            wanted = {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
            for name, amount in wanted.items():
                if "/" in name and (number := _amount(amount)):
                    found[name] = found.get(name, 0) + number * group.pods
    return found


def _amount(amount: Any) -> int:
    try:
        return Quantity.parse(amount).ceil()
    except QuantityError:
        return 0


def _samples(status: Mapping[str, Any]) -> Iterator[Sample]:
    reported = _mapping(status.get("trainerStatus"))
    listed = reported.get("metrics")
    metrics = [_mapping(each) for each in listed] if isinstance(listed, list) else []
    percentage = reported.get("progressPercentage")
    if reported:
        yield Sample(
            _text(reported.get("lastUpdatedTime")),
            percentage if isinstance(percentage, int) else None,
            {_text(each.get("name")): _text(each.get("value")) for each in metrics if _text(each.get("name"))},
        )


def _timeline(metadata: Mapping[str, Any], conditions: list[JsonObject], started: str) -> Iterator[TimelineEntry]:
    if created := _text(metadata.get("creationTimestamp")):
        yield TimelineEntry(created, "Created")
    if started:
        yield TimelineEntry(started, "Started", "all nodes are ready")
    for each in conditions:
        holds, reason, message = each["status"] == "True", each.get("reason", ""), each.get("message", "")
        if each["type"] == v1.CREATED or not (holds or each["type"] == v1.SUSPENDED):
            continue
        event = each["type"] if holds else "Resumed"
        if event == CONTAINER_FAILED:
            # One line for each attempt; those before the last one were there when they were the last.
            message = message.rpartition("\n")[2]
        text = ": ".join(filter(None, ("" if reason == event else reason, message)))
        yield TimelineEntry(each.get("lastTransitionTime", ""), event, text)


def _annotation(metadata: Mapping[str, Any], key: str) -> str:
    for place in ("annotations", "labels"):
        if value := _text(_mapping(metadata.get(place)).get(key)):
            return value
    return ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
