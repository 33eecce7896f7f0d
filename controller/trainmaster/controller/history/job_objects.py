"""What an object of the API tells of a job, as a record; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.conditions import CONTAINER_FAILED
from trainmaster.controller.explain.condition_causes import cause_of, exit_code_of
from trainmaster.controller.history.record import (
    FAILED,
    RESUMED,
    SUCCEEDED,
    JobRecord,
    Sample,
    TimelineEntry,
    bounded,
    gone,
)
from trainmaster.controller.job_fields import JobFields, PodSet, conditions_of, mapping, number, text
from trainmaster.controller.resilience.goodput import KINDS, goodput_of, seconds_of
from trainmaster.runtime.api.constants import JOBSET_KIND, NODE
from trainmaster.runtime.jobs import constants as v1
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError


def record_of(
    job: JsonObject, workloads: Iterable[JsonObject] = (), *, started: str = "", user_key: str = ""
) -> JobRecord:
    """Return what is known of a job at present.

    Args:
        job: A TrainJob, or a job of `kubeflow.org/v1`.
        workloads: What a TrainJob became, as far as it is there: a JobSet tells what its runtime asks for.
        started: When all of a TrainJob was seen to be ready for the first time; its status has no room for that.
    """
    fields = JobFields(job)
    conditions, metadata, status = conditions_of(job), fields.metadata, fields.status
    end = fields.conditions.get(fields.outcome or "", {})
    running = next((each for each in conditions if each["type"] == v1.RUNNING), {})
    has_failed = fields.outcome in (None, FAILED)
    jobset = next((each for each in workloads if each.get("kind") == JOBSET_KIND), {})
    pod_sets = fields.pod_sets(jobset)
    return bounded(
        JobRecord(
            uid=fields.uid,
            api_version=text(job.get("apiVersion")),
            kind=fields.kind,
            namespace=fields.namespace,
            name=fields.name,
            created=text(metadata.get("creationTimestamp")),
            runtime=text(mapping(fields.spec.get("runtimeRef")).get("name")) if fields.is_trainjob else "",
            user=_annotation(metadata, user_key) if user_key else "",
            nodes=_nodes(pod_sets),
            accelerators=_accelerators(pod_sets),
            started=started or text(status.get("startTime")) or running.get("lastTransitionTime", ""),
            ended=fields.ended,
            result=(FAILED if has_failed else SUCCEEDED) if end else "",
            cause=(cause_of(fields.conditions) or "") if has_failed else "",
            message=end.get("message", ""),
            exit_code=exit_code_of(fields.conditions) if has_failed else None,
            restarts=fields.restarts(jobset),
            goodput=_goodput(fields, jobset, started) if fields.is_trainjob else {},
            samples=[*filter(None, [progress_of(job)])],
            suspensions=sum(each["type"] == v1.SUSPENDED and each["status"] == "True" for each in conditions),
            timeline=list(_timeline(metadata, conditions, started)),
        )
    )


def deleted_record(
    job: JsonObject, workloads: Iterable[JsonObject] = (), *, at: str, started: str = "", user_key: str = ""
) -> JobRecord:
    """Return what is known of a job that is gone, or is about to go.

    Args:
        workloads: As of `record_of`.
        started: As of `record_of`.
        user_key: Likewise.
    """
    record = record_of(job, workloads, started=started, user_key=user_key)
    # The server writes until when it gives the job; what it was asked at that is the same, but for a grace period.
    deleted = text(JobFields(job).metadata.get("deletionTimestamp"))
    return gone(record, at=deleted or at, text="the job was deleted")


def is_ready(job: JsonObject) -> bool:
    """Tell whether all of a TrainJob is ready now: no part of it has ended, so that this is how it began."""
    parts = JobFields(job).parts
    nodes = [each for each in parts if each.get("name") == NODE] or parts
    return bool(nodes) and all(0 < number(each.get("active")) <= number(each.get("ready")) for each in nodes)


def progress_of(job: JsonObject) -> Sample | None:
    """Return what a TrainJob has reported of its progress last."""
    reported = JobFields(job).progress
    return None if reported is None else Sample(reported.time, reported.percentage, reported.metrics)


def _goodput(job: JobFields, jobset: JsonObject, started: str) -> dict[str, int]:
    """Return what the time of a TrainJob was spent on, once it is over."""
    until = seconds_of(job.ended or job.metadata.get("deletionTimestamp"))
    if until is None:
        return {}
    told = goodput_of(job.object, jobset=jobset, started=started, now=datetime.fromtimestamp(until, UTC))
    return {field: told[field] for field in KINDS.values() if told.get(field)}


def _nodes(pod_sets: list[PodSet]) -> int | None:
    if not pod_sets:
        return None
    return sum(each.pods for each in pod_sets if each.is_node) or sum(each.pods for each in pod_sets)


def _accelerators(pod_sets: list[PodSet]) -> dict[str, int]:
    """Add up the extended resources of all pods: their names have a domain, unlike those of cpu and memory."""
    found: dict[str, int] = {}
    for pod_set in pod_sets:
        containers = pod_set.pod_spec.get("containers")
        for container in containers if isinstance(containers, list) else ():
            resources = mapping(mapping(container).get("resources"))
            wanted = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
            for name, amount in wanted.items():
                if "/" in name and (number := _amount(amount)):
                    found[name] = found.get(name, 0) + number * pod_set.pods
    return found


def _amount(amount: Any) -> int:
    try:
        return Quantity.parse(amount).ceil()
    except QuantityError:
        return 0


def _timeline(metadata: Mapping[str, Any], conditions: list[JsonObject], started: str) -> Iterator[TimelineEntry]:
    if created := text(metadata.get("creationTimestamp")):
        yield TimelineEntry(created, "Created")
    if started:
        yield TimelineEntry(started, "Started", "all nodes are ready")
    for each in conditions:
        holds, reason, message = each["status"] == "True", each.get("reason", ""), each.get("message", "")
        if each["type"] == v1.CREATED or not (holds or each["type"] == v1.SUSPENDED):
            continue
        event = each["type"] if holds else RESUMED
        if event == CONTAINER_FAILED:
            # One line for each attempt; those before the last one were there when they were the last.
            message = message.rpartition("\n")[2]
        told = ": ".join(filter(None, ("" if reason == event else reason, message)))
        yield TimelineEntry(each.get("lastTransitionTime", ""), event, told)


def _annotation(metadata: Mapping[str, Any], key: str) -> str:
    for place in ("annotations", "labels"):
        if value := text(mapping(metadata.get(place)).get(key)):
            return value
    return ""
