"""The rules of `spec.runtimePatches` that hold whatever the runtime is."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.canonical import without_blanks
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import domain_prefixed_path


def validate_runtime_patches(job: TrainJob, old: TrainJob | None) -> Iterator[FieldError]:
    """Validate who patches, and that nobody does while the TrainJob runs."""
    for patch in job.spec.runtime_patches:
        for part, problem in domain_prefixed_path(patch.manager):
            yield FieldError("spec.runtimePatches.manager", problem, value=part)
    if old is not None and patches_changed(job, old) and not (job.spec.suspend or old.spec.suspend):
        detail = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield FieldError("spec.runtimePatches", detail, type="Forbidden")


def patches_changed(job: TrainJob, old: TrainJob) -> bool:
    """Tell whether an update changes any runtime patch."""
    return _trees(job) != _trees(old)


def _trees(job: TrainJob) -> list[JsonObject]:
    return [without_blanks(patch.to_json()) for patch in job.spec.runtime_patches]
