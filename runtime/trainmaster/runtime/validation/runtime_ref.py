"""`spec.runtimeRef`: the runtime that a TrainJob is validated against, which it will be, or has been, built from.

- A new TrainJob is validated against the live runtime, read in the way in which the controller freezes it.
- A stored one is validated against its snapshot, so that editing or deleting a runtime never gets in the way of the
  jobs that were made from it.
"""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    GROUP,
    TRAINING_RUNTIME_KIND,
    snapshot_name,
)
from trainmaster.runtime.api.decoding import ApiTypeError, ObjectUnreadable
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import RuntimeRef, TrainJob
from trainmaster.runtime.canonical import TemplateInvalid
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.snapshot import SnapshotInvalid, decode_snapshot, encode_runtime, parse_snapshot_text

Runtime = TrainingRuntime | ClusterTrainingRuntime

SUPPORTED: Final = (TRAINING_RUNTIME_KIND, CLUSTER_TRAINING_RUNTIME_KIND)


class RuntimeUnusable(Exception):
    """There is no runtime to validate against; `field_error` says why."""

    def __init__(self, field_error: FieldError) -> None:
        super().__init__(field_error.detail)
        self.field_error = field_error


def unsupported_runtime(reference: RuntimeRef) -> str | None:
    """Name what a reference leads to if that is no kind of runtime."""
    if reference.kind in SUPPORTED and reference.api_group == GROUP:
        return None
    return f"{reference.kind}.{reference.api_group}" if reference.api_group else reference.kind


def runtime_key(job: TrainJob) -> tuple[str, str, str | None, str]:
    """Return API version, kind, namespace and name of the runtime that a TrainJob names."""
    reference = job.spec.runtime_ref
    namespace = job.metadata.namespace if reference.kind == TRAINING_RUNTIME_KIND else None
    return API_VERSION, reference.kind, namespace, reference.name


def live_runtime(job: TrainJob, listers: Listers) -> JsonObject | None:
    """Look up the runtime that a TrainJob names."""
    return listers.get(*runtime_key(job))


def of_other_kind(job: TrainJob) -> TrainJob:
    """Return a TrainJob as if it named the runtime of the other kind that has this name."""
    reference = job.spec.runtime_ref
    kind = next(each for each in SUPPORTED if each != reference.kind)
    spec = job.spec.model_copy(update={"runtime_ref": reference.model_copy(update={"kind": kind})})
    return job.model_copy(update={"spec": spec})


def other_kind_exists(job: TrainJob, listers: Listers) -> str:
    """Say that there is a runtime of the other kind, as the end of a message; nothing if there is none."""
    other = of_other_kind(job)
    try:
        if live_runtime(other, listers) is None:
            return ""
    except ObjectUnreadable:
        pass  # it is there
    kind = other.spec.runtime_ref.kind
    return f"; there is a {kind} of that name: write kind: {kind}"


def runtime_of(job: TrainJob, live: JsonObject | None, listers: Listers, *, stored: bool) -> Runtime:
    """Return the runtime that decides about a TrainJob.

    Args:
        stored: Whether the TrainJob exists; a new one has no snapshot, whatever is left of an earlier one.

    Raises:
        RuntimeUnusable: There is none.
    """
    try:
        if stored:
            snapshot = listers.get("v1", "ConfigMap", job.metadata.namespace, snapshot_name(job.metadata.name))
            if snapshot is not None and is_controlled_by(snapshot, job):
                return decode_snapshot(snapshot, job)
        if live is None:
            raise RuntimeUnusable(_not_found(job, listers))
        return parse_snapshot_text(encode_runtime(live), job)
    except (ApiTypeError, TemplateInvalid, SnapshotInvalid) as error:
        value = job.spec.runtime_ref.with_defaults()
        raise RuntimeUnusable(
            FieldError("spec.runtimeRef", f"the runtime cannot be used: {error}", value=value)
        ) from error


def _not_found(job: TrainJob, listers: Listers) -> FieldError:
    reference = job.spec.runtime_ref
    namespaced = reference.kind == TRAINING_RUNTIME_KIND
    what = "trainingRuntime" if namespaced else "clusterTrainingRuntime"
    return FieldError(
        # The original spells the path in two ways.
        "spec.runtimeRef" if namespaced else "spec.RuntimeRef",
        f'{reference.kind}.{GROUP} "{reference.name}" not found: specified {what} must be created before the TrainJob '
        f"is created{other_kind_exists(job, listers)}",
        value=reference.with_defaults(),
    )
