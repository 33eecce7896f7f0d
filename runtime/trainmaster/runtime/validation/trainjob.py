"""Validation of TrainJobs: what is admitted is what will be built.

The resolver decides: the TrainJob is resolved in a trial, by the plugins and the runtime that the controller will use,
and what would fail then, or is refused later for certain by JobSet, Job or Pod validation, is refused here. What may
come right is a warning.

- B13: a stored TrainJob is validated against its snapshot. Metadata and `suspend` can be changed whatever became of the
  runtime, and so can everything while it is being deleted: nothing stands in the way of its end.
- B26: whatever is wrong with the runtime, or with merging, is an answer and not a crash.
- U2: what is added to a TrainJob that runs is admitted, with a warning that it has no effect yet.
- U4: a trainer has at least one node.
- What a rule of our schema says of numbers is said here too: the definitions of the original lack those rules.
- U13: a TrainJob that another controller manages is not validated against the runtimes of this cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainmaster.runtime.api.constants import (
    DEPRECATION_POLICY_URL,
    GROUP,
    LEGACY_GROUP,
    MANAGED_BY_TRAINER,
    RESILIENCE_POLICY_ANNOTATION,
    SUPPORT_DEPRECATED,
    SUPPORT_LABEL,
)
from trainmaster.runtime.api.decoding import ApiTypeError, ObjectUnreadable, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.canonical import TemplateInvalid, without_blanks
from trainmaster.runtime.elastic import elastic_limits, elastic_problems
from trainmaster.runtime.field_errors import ErrorType, FieldError, FieldWarning, ValidationResult
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.models import CONFIG_PHASE
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.names import domain_prefixed_path
from trainmaster.runtime.podspec import warn_of_metadata
from trainmaster.runtime.rendezvous import node_count
from trainmaster.runtime.resolver import JobInvalid, PolicyUnserved, new_info, resolve
from trainmaster.runtime.strategicpatch import MergeError
from trainmaster.runtime.validation.jobset import validate_jobset
from trainmaster.runtime.validation.limits import trainjob_limits
from trainmaster.runtime.validation.runtime_ref import (
    Runtime,
    RuntimeUnusable,
    live_runtime,
    runtime_of,
    unsupported_runtime,
)

_POD_METADATA: Final = (
    "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[].template.spec.template.metadata"
)


def validate_trainjob(
    obj: JsonObject, old: JsonObject | None, *, framework: Framework, listers: Listers
) -> ValidationResult:
    """Validate a TrainJob that has passed the rules of its schema.

    Args:
        old: The one that is stored, when it is an update.
    """
    if old is not None and (_is_being_deleted(obj) or not _is_changed(obj, old)):
        return ValidationResult(warnings=_warnings(obj, listers))
    exceeded = list(trainjob_limits(obj))
    if exceeded:
        # Before anything that costs more than counting.
        return ValidationResult(exceeded)
    if not _mapping(_mapping(obj.get("spec")).get("runtimeRef")):
        return ValidationResult(refusal="unsupported runtime: ")
    try:
        job = parse_trainjob(obj)
    except ApiTypeError as error:
        return ValidationResult(refusal=f"the TrainJob cannot be read: {'; '.join(error.problems)}")
    unknown = unsupported_runtime(job.spec.runtime_ref)
    if unknown is not None:
        return ValidationResult(refusal=f"unsupported runtime: {unknown}")
    before = _parsed(old)
    errors, warnings = [*_check_trainer(job, before), *validate_runtime_patches(job, before)], list[FieldWarning]()
    if job.spec.managed_by != MANAGED_BY_TRAINER or job.is_finished:
        errors += _check_resize(job, before, None)
    else:
        build_errors, warnings = _check_build(job, before, framework, listers)
        errors += build_errors
        warnings += _late_changes(job, before)
    return ValidationResult(errors, [*_warnings(obj, listers), *map(str, warnings)])


def _check_trainer(job: TrainJob, before: TrainJob | None) -> Iterator[FieldError]:
    trainer = job.spec.trainer
    if trainer is None or (before is not None and before.spec.trainer == trainer):
        # What is stored cannot be corrected; whether something can come of it is found out by building it.
        return
    if trainer.num_nodes is not None and trainer.num_nodes < 1:
        yield FieldError("spec.trainer.numNodes", "must be greater than or equal to 1", value=trainer.num_nodes)
    if trainer.num_proc_per_node is not None and trainer.num_proc_per_node < 1:
        detail = "numProcPerNode must be greater than or equal to 1"
        yield FieldError("spec.trainer.numProcPerNode", detail, value=trainer.num_proc_per_node)


def _check_resize(job: TrainJob, before: TrainJob | None, info: Info | None) -> Iterator[FieldError]:
    """Check that the number of nodes changes only where it may; the schema cannot know the runtime."""
    old, new = before.spec.trainer if before else None, job.spec.trainer
    if old is None or new is None or old.num_nodes == new.num_nodes:
        return
    if new.num_nodes is None or info is None or elastic_limits(info.ml_policy, job) is None:
        reason = "only a job with an elasticPolicy of mlPolicy.torch changes its size"
        detail = f"field is immutable: {'the job has ended' if job.is_finished else reason}"
        yield FieldError("spec.trainer.numNodes", detail, value=new.num_nodes)


def _late_changes(job: TrainJob, before: TrainJob | None) -> Iterator[FieldWarning]:
    """Warn of what the schema lets one add to a TrainJob that runs."""
    if before is None or job.spec.suspend or before.spec.suspend:
        return
    trainer, old = job.spec.trainer, before.spec.trainer
    if trainer and old:
        trainer = trainer.model_copy(update={"num_nodes": old.num_nodes})  # if that may change, it does
    for name, is_changed in (
        ("trainer", trainer != old),
        ("initializer", job.spec.initializer != before.spec.initializer),
    ):
        if is_changed:
            detail = (
                "does not change what runs already: for that, suspend the TrainJob, delete its JobSet and resume it"
            )
            yield FieldWarning(f"spec.{name}", detail)


def _check_build(
    job: TrainJob, before: TrainJob | None, framework: Framework, listers: Listers
) -> tuple[list[FieldError], list[FieldWarning]]:
    """Validate with the plugins, then try the whole resolution."""
    warnings = list[FieldWarning]()
    try:
        runtime = _runtime(job, listers, stored=before is not None)
        info = new_info(job, runtime, listers=listers)
        fixed = [*_check_resize(job, before, info), *elastic_problems(info, job, node_count(info, job))]
        errors, warnings = framework.validate(info, job, before, listers)
        errors += fixed
        # What is wrong already would come up again, in other words.
        if not errors and not any(_check_trainer(job, before)):
            for found in _check_resolution(job, runtime, framework, listers):
                if isinstance(found, FieldError):
                    errors.append(found)
                else:
                    warnings.append(found)
    except RuntimeUnusable as error:
        return [error.field_error], []
    except PluginFailed as error:
        if error.not_ready:
            return [], [*warnings, FieldWarning("spec", f"cannot be built yet: {error}")]
        return [_field_error(error, job)], []
    except (PolicyUnserved, MergeError, TemplateInvalid, JobInvalid) as error:
        return [_field_error(error, job)], []
    return errors, warnings


def _runtime(job: TrainJob, listers: Listers, *, stored: bool) -> Runtime:
    try:
        live = live_runtime(job, listers)
    except ObjectUnreadable as error:
        if not stored:
            value = job.spec.runtime_ref.with_defaults()
            raise RuntimeUnusable(FieldError("spec.runtimeRef", str(error), value=value)) from error
        live = None  # its snapshot decides
    return runtime_of(job, live, listers, stored=stored)


def _field_error(error: Exception, job: TrainJob) -> FieldError:
    """Name the field that makes a resolution fail."""
    match error:
        case PolicyUnserved():
            return FieldError("spec.runtimeRef", str(error), value=job.spec.runtime_ref.with_defaults())
        case PluginFailed(phase=phase) if phase == CONFIG_PHASE:
            kind: ErrorType = "Invalid" if error.rejected else "InternalError"
            return FieldError("spec.runtimeRef", str(error), kind, job.spec.runtime_ref.with_defaults())
        case PluginFailed():
            return FieldError("spec", str(error), "Forbidden" if error.rejected else "InternalError")
        case MergeError():
            return FieldError("spec.runtimePatches", f"a runtime patch does not fit the runtime: {error}", "Forbidden")
        case TemplateInvalid():
            patched = ", with the runtimePatches of this TrainJob," if job.spec.runtime_patches else ""
            detail = f"the runtime{patched} cannot be used: {error}"
            return FieldError("spec.runtimeRef", detail, value=job.spec.runtime_ref.with_defaults())
    path, _, detail = str(error).partition(": ")
    return FieldError(path, detail, "Forbidden")


def _check_resolution(
    job: TrainJob, runtime: Runtime, framework: Framework, listers: Listers
) -> Iterator[FieldError | FieldWarning]:
    resolution = resolve(job, runtime, framework, listers=listers)
    for failure in resolution.skipped:
        yield FieldWarning("spec", f"goes on without the plugin {failure.plugin}: {failure}")
    for desired in resolution.objects:
        yield from validate_jobset(desired.object, resolution.info.runtime_template)


def _warnings(obj: JsonObject, listers: Listers) -> list[str]:
    """Say what about a TrainJob will not work for ever."""
    reference = _mapping(_mapping(obj.get("spec")).get("runtimeRef"))
    warnings = [str(warning) for warning in warn_of_metadata(obj, instead=_POD_METADATA)]
    if reference.get("apiGroup") == LEGACY_GROUP:
        warnings.append(f'spec.runtimeRef.apiGroup: "{LEGACY_GROUP}" is taken for "{GROUP}"; write that instead')
    job = _parsed(obj)
    if job is not None and unsupported_runtime(job.spec.runtime_ref) is None and _is_deprecated(job, listers):
        warnings.append(f"Referenced {deprecation(job.spec.runtime_ref.kind, job.spec.runtime_ref.name)}")
    return warnings


def _is_deprecated(job: TrainJob, listers: Listers) -> bool:
    try:
        metadata = _mapping((live_runtime(job, listers) or {}).get("metadata"))
    except ObjectUnreadable:
        return False  # who may not be built with it is told so; all others may
    return _mapping(metadata.get("labels")).get(SUPPORT_LABEL) == SUPPORT_DEPRECATED


def deprecation(kind: str, name: str) -> str:
    """Say that a runtime is deprecated."""
    return (
        f'{kind} "{name}" is deprecated and will be removed in a future release of Kubeflow Trainer. '
        f"See runtime deprecation policy: {DEPRECATION_POLICY_URL}"
    )


def _is_being_deleted(obj: JsonObject) -> bool:
    return bool(_mapping(obj.get("metadata")).get("deletionTimestamp"))


def _is_changed(obj: JsonObject, old: JsonObject) -> bool:
    """Tell whether an update concerns what is built, rather than whether it runs."""
    return _validated(obj) != _validated(old)


def _validated(obj: JsonObject) -> JsonObject:
    spec: JsonObject = without_blanks(_mapping(obj.get("spec")))
    annotations = _mapping(_mapping(obj.get("metadata")).get("annotations"))
    return {**spec, "suspend": None, RESILIENCE_POLICY_ANNOTATION: annotations.get(RESILIENCE_POLICY_ANNOTATION)}


def _parsed(obj: JsonObject | None) -> TrainJob | None:
    try:
        return parse_trainjob(obj) if obj is not None else None
    except ApiTypeError:
        return None


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


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
