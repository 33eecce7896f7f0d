"""Volcano: gangs for the Volcano scheduler.

The members of the gang get the annotation that names their PodGroup. The runtime sets `schedulerName: volcano`.

The queue is named by an annotation of the JobSet, in the runtime or a runtime patch. Volcano makes a group of its own
for a pod outside of the gang; the same annotation on the pod keeps that group in the same queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from trainmaster.plugins.util.podgroup import (
    gang_of,
    has_two_schedulers,
    left_out,
    mark,
    pod_group,
    refuse_two_schedulers,
    watches,
)
from trainmaster.runtime.api.constants import (
    SYSTEM_PRIORITY_CLASSES,
    VOLCANO_API_VERSION,
    VOLCANO_POD_ANNOTATION,
    VOLCANO_QUEUE_ANNOTATION,
)
from trainmaster.runtime.api.trainingruntime import VolcanoPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import Desired, Rejected
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

_PRIORITY_CLASS: Final = ("scheduling.k8s.io/v1", "PriorityClass")

_QUEUE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_QUEUE_NAME: Final = 253


class Volcano:
    """Serves `podGroupPolicy.volcano`."""

    name = "volcano"
    policies = ("volcano",)

    def watch_extension(self) -> Iterable[Watch]:
        """The PodGroups of Volcano, what they are computed from, and the names of PriorityClasses."""
        yield from watches(VOLCANO_API_VERSION)
        yield Watch(*_PRIORITY_CLASS, "priorityclasses", namespaced=False, optional=True, metadata_only=True)

    def enforce_pod_group(self, info: Info, job: TrainJob) -> None:
        """Annotate the pods of the gang with their group, and the others with their queue."""
        if _policy(info) is None:
            return
        refuse_two_schedulers(info)
        queue = _queue(info)
        if queue is not None and (fault := _fault_of_queue(queue)):
            raise Rejected(f"annotation {VOLCANO_QUEUE_ANNOTATION} of the JobSet: {fault}")
        gang = gang_of(info)
        for pods in gang.members:
            mark(pods, "annotations", VOLCANO_POD_ANNOTATION, job.metadata.name)
        for pods in gang.others:
            if queue is not None:
                mark(pods, "annotations", VOLCANO_QUEUE_ANNOTATION, queue)

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the PodGroup."""
        policy = _policy(info)
        if policy is None:
            return
        gang = gang_of(info)
        spec: JsonObject = {}
        queue = _queue(info)
        if queue is not None:
            spec["queue"] = queue
        priorities = [pods.pod_spec["priorityClassName"] for pods in gang.members if _priority(pods.pod_spec)]
        if priorities:
            spec["priorityClassName"] = priorities[-1]
        topology = policy.network_topology
        if topology is not None:
            spec["networkTopology"] = {"mode": topology.mode, "highestTierAllowed": topology.highest_tier_allowed}
        yield from pod_group(gang, job, listers, api_version=VOLCANO_API_VERSION, **spec)

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Check the names of the queue and of PriorityClasses, and warn about a gang that is not whole."""
        # Two schedulers are the error of the plugin coscheduling.
        if _policy(info) is None or has_two_schedulers(info):
            return
        queue = _queue(info)
        fault = None if queue is None else _fault_of_queue(queue)
        if fault:
            # The path is the original's, and is the one that people find in its documentation.
            yield FieldError(f"spec.annotations[{VOLCANO_QUEUE_ANNOTATION}]", fault, value=queue)
        # A class that is deleted later must not keep anybody from suspending a job that uses it.
        if old is None or old.spec.runtime_patches != job.spec.runtime_patches:
            yield from _missing_priorities(info, job, listers)
        yield from left_out(info)


def _policy(info: Info) -> VolcanoPolicy | None:
    return info.pod_group_policy.volcano if info.pod_group_policy else None


def _queue(info: Info) -> str | None:
    return info.annotations.get(VOLCANO_QUEUE_ANNOTATION)


def _fault_of_queue(queue: str) -> str | None:
    if not queue:
        return "Volcano queue name must not be empty"
    if len(queue) > _LONGEST_QUEUE_NAME or not _QUEUE_NAME.fullmatch(queue):
        return (
            f"Volcano queue name must consist of lower case letters, digits, '-' and '.', with a letter or digit at "
            f'either end, and be no longer than {_LONGEST_QUEUE_NAME} characters, for instance "research"'
        )
    return None


def _priority(pod_spec: JsonObject) -> str | None:
    name: str | None = pod_spec.get("priorityClassName")
    return name or None


def _missing_priorities(info: Info, job: TrainJob, listers: Listers) -> Iterator[FieldError]:
    # Every cluster has classes of its own: a cache without any knows nothing, because we may not read them.
    if not any(True for _ in listers.list(*_PRIORITY_CLASS)):
        return
    of_runtime = {_priority(pod_spec) for pod_spec in _pod_specs(info.runtime_template)}
    for name in dict.fromkeys(_priority(pods.pod_spec) for pods in info.pod_sets):
        if not name or name in SYSTEM_PRIORITY_CLASSES or listers.get(*_PRIORITY_CLASS, None, name) is not None:
            continue
        detail = f'PriorityClass "{name}" doesn\'t exist: create it, or name one that does'
        if name in of_runtime:
            yield FieldError("spec.runtimeRef", detail, value=job.spec.runtime_ref.to_json())
        else:
            yield FieldError("spec.runtimePatches", detail, value=name)


def _pod_specs(template: JsonObject) -> Iterator[JsonObject]:
    """The pods of a runtime as it was written, which may leave out everything."""
    for replicated_job in template.get("replicatedJobs") or []:
        node: JsonObject = replicated_job
        for step in ("template", "spec", "template", "spec"):
            node = node.get(step) or {}
        yield node
