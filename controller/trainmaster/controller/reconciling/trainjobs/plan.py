"""Plan: which writes bring the cluster to where a TrainJob wants it. Pure; `applier` performs the plan.

Rules:
- Nothing is written for a TrainJob that is being deleted, finished, or managed by another controller, with one
  exception: the workload of a job that the manager ended, as at its deadline, is deleted until it is gone.
- A finished TrainJob that has outlived its time to live is deleted itself.
- The snapshot of the runtime comes first, so that everything after it is built from what was frozen.
- An object of the same name that belongs to somebody else is never touched: owners are compared by UID (E-5). Names
  are the same for every try, so that a second try meets what the first one made (C-2).
- A TrainJob whose workload may have ended unseen, and has been deleted by its own time to live since, is not built
  again: that would train a second time (B27). Neither is one that plugins would build as another workload by now.
- What a workload is, plugins declare (`Watch.workload`).
- What is as it should be is not written (C-12).

When a TrainJob has to end, and when it is deleted:
- The deadline counts from the creation of the TrainJob, and anew whenever it is resumed (when the controller saw the
  resume); the clock stands still while the TrainJob is suspended.
- A finished TrainJob is deleted, with everything that belongs to it, when its time to live has passed since it finished
  (KEP-2899). What the TrainJob says counts, else what its runtime says; without either it is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from trainmaster.controller.conditions import RUNTIME_DENIED, RUNTIME_NOT_FOUND
from trainmaster.controller.diagnosis.counts import without_jobs
from trainmaster.controller.kube.clock import seconds_until
from trainmaster.controller.reconciling.drift import Drift, drift, owned_fields
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.trainjobs.observe import Observed, identity_of
from trainmaster.controller.reconciling.trainjobs.plugin_failures import blocking
from trainmaster.controller.reconciling.trainjobs.status import Plan
from trainmaster.controller.reconciling.writes import Apply, GroupVersionKind, name_taken
from trainmaster.runtime.api.constants import (
    DEADLINE_EXCEEDED_REASON,
    FAILED,
    FINAL_CONDITIONS,
    GROUP,
    POLICY_REASONS,
    SUSPENDED,
    TRAINING_RUNTIME_KIND,
)
from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.canonical import TemplateInvalid
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import ApplyWhen, Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import is_controlled_by, is_left_by_earlier
from trainmaster.runtime.resolver import JobInvalid, PolicyUnserved, Resolution, new_info, resolve
from trainmaster.runtime.snapshot import (
    SnapshotChanged,
    SnapshotInvalid,
    build_snapshot,
    decode_snapshot,
    encode_runtime_text,
    parse_snapshot_text,
    snapshot_digest,
    snapshot_text,
)
from trainmaster.runtime.strategicpatch import MergeError
from trainmaster.runtime.validation.jobset import may_lack_jobs
from trainmaster.runtime.validation.runtime_ref import runtime_key, unsupported_runtime


def plan(observed: Observed, framework: Framework, *, fails: bool, resizes: bool = False, now: datetime) -> Plan:
    """Decide what to write for one TrainJob.

    Args:
        fails: Whether the manager ends it.
        resizes: Whether its JobSet is asked to change its size while it runs.

    Raises:
        ObjectUnreadable: Its snapshot exists but cannot be read.
    """
    job = observed.job
    if fails or job.is_finished:
        deletes = _leftover_workloads(observed) if fails or _failed_by_manager(job) else []
        conditions = (observed.raw.get("status") or {}).get("conditions") or ()
        expires_in = _seconds_to_expiry(conditions, time_to_live(observed), now)
        return Plan(observed=observed, deletes=deletes, expires_in=expires_in)
    if unsupported_runtime(job.spec.runtime_ref) is not None:
        return Plan(observed=observed)
    planned = Plan(observed=observed)
    snapshot = observed.read_snapshot()
    try:
        runtime = _frozen_runtime(observed, snapshot, planned)
        if runtime is None:
            return planned
        resolution = resolve(job, runtime, framework, listers=observed.listers)
    except SnapshotInvalid as error:
        # The original's words, which differ between the two kinds of runtime.
        namespaced = job.spec.runtime_ref.kind == TRAINING_RUNTIME_KIND
        prefix = "unable to get runtime snapshot" if namespaced else "getting runtime snapshot"
        planned.snapshot_digest = ""
        planned.problem = Problem("RuntimeSnapshotInvalid", f"{prefix}: {error}")
    except PluginFailed as error:
        planned.problem = blocking(error)
    except PolicyUnserved as error:
        # Only another set of plugins helps, and that comes with a restart.
        planned.problem = Problem("PolicyUnserved", str(error), retry=False)
    except MergeError as error:
        planned.problem = Problem("RuntimePatchInvalid", f"a runtime patch does not fit the runtime: {error}")
    except (ApiTypeError, TemplateInvalid) as error:
        patched = ", with the runtimePatches of this TrainJob," if job.spec.runtime_patches else ""
        planned.problem = Problem("RuntimeInvalid", f"the runtime{patched} cannot be used: {error}")
    except JobInvalid as error:
        planned.problem = Problem("TrainJobInvalid", f"the TrainJob cannot be built: {error}", retry=False)
    else:
        planned.skipped = resolution.skipped
        planned.problem = _end_unseen(resolution.objects, observed) or _other_workload(resolution.objects, observed)
        for desired in resolution.objects:
            if planned.problem or planned.waiting:
                break
            _plan_object(
                desired, resolution.builders[desired.identity], observed, planned, framework.pruned, resizes=resizes
            )
        _prune(resolution.objects, observed, planned, framework.pruned)
        _find_lack_of_jobs(resolution, observed, planned)
        planned.time_to_live = _ttl_after_finished(job, runtime)
        planned.lasts = len(resolution.objects) == 1 and all(
            observed.is_workload(each.identity) and each.when is not ApplyWhen.ALWAYS for each in resolution.objects
        )
    return planned


def may_serve(plugin: str, observed: Observed, framework: Framework) -> bool:
    """Tell whether a plugin may serve a TrainJob: whether it does, or nobody can say."""
    job = observed.job
    try:
        runtime = _frozen_runtime(observed, observed.read_snapshot(), Plan(observed=observed))
        if runtime is None:
            return bool(observed.workloads)  # from what these were built is not known any more
        info = new_info(job, runtime, listers=observed.listers)
        return any(each.name == plugin for each in framework.serving(info, job.model_copy(deep=True)))
    except (SnapshotInvalid, PluginFailed, ApiTypeError, MergeError, TemplateInvalid, JobInvalid):
        return True


def seconds_to_deadline(job: TrainJob, now: datetime) -> float | None:
    """Compute the seconds until an unfinished TrainJob exceeds its deadline; zero or less: it has; None: it
    never will.
    """
    if not job.spec.active_deadline_seconds or job.spec.suspend or job.is_finished:
        return None
    suspended = job.status.condition(SUSPENDED)
    if suspended and suspended.status == "True":
        # The resume has not been noted yet: the clock starts when this reconcile notes it.
        return float(job.spec.active_deadline_seconds)
    resumed = suspended.last_transition_time if suspended else None
    limit, created = job.spec.active_deadline_seconds, job.metadata.creation_timestamp
    since_resumed = seconds_until(resumed, limit, now)
    return seconds_until(created, limit, now) if since_resumed is None else since_resumed


def time_to_live(observed: Observed) -> int | None:
    """Return how many seconds a TrainJob that was observed is kept after its end; None: for ever."""
    job = observed.job
    # Finished TrainJobs are many, and reading a runtime takes its time.
    runtime = _runtime_in_force(observed) if job.spec.ttl_seconds_after_finished is None else None
    return _ttl_after_finished(job, runtime)


def _ttl_after_finished(job: TrainJob, runtime: TrainingRuntime | ClusterTrainingRuntime | None) -> int | None:
    """Return how many seconds a TrainJob is kept after its end; None: for ever."""
    if job.spec.ttl_seconds_after_finished is not None:
        return job.spec.ttl_seconds_after_finished
    policy = runtime.spec.run_policy if runtime else None
    return policy.ttl_seconds_after_finished if policy else None


def _seconds_to_expiry(conditions: Iterable[JsonObject], ttl: int | None, now: datetime) -> float | None:
    """Compute the seconds until a finished TrainJob, kept for `ttl` of them, may go; zero or less: now; None: never."""
    if ttl is None:
        return None
    ends = [
        seconds_until(condition.get("lastTransitionTime"), ttl, now)
        for condition in conditions
        if condition.get("type") in FINAL_CONDITIONS and condition.get("status") == "True"
    ]
    return min((seconds for seconds in ends if seconds is not None), default=None)


def _find_lack_of_jobs(resolution: Resolution, observed: Observed, planned: Plan) -> None:
    jobset = observed.jobset
    if jobset is None or without_jobs(jobset):
        planned.may_lack_jobs = any(may_lack_jobs(desired.object) for desired in resolution.objects)
        planned.workload_without_jobs = jobset if planned.may_lack_jobs else None


def _end_unseen(objects: Iterable[Desired], observed: Observed) -> Problem | None:
    """Tell whether a workload of a TrainJob that ran is gone, perhaps because it had ended, and nobody knows."""
    resilience = observed.job.status.resilience
    if not _was_running(observed.job) or (resilience is not None and resilience.replaced_job_set):
        return None
    for desired in objects:
        _, kind, name = desired.identity
        if not observed.is_workload(desired.identity) or observed.deletion_seen(desired.identity):
            continue
        lifetime = (desired.object.get("spec") or {}).get("ttlSecondsAfterFinished")
        if lifetime is not None and observed.existing(*desired.identity) is None:
            # Retrying cannot help, for what is gone tells nothing any more.
            return Problem(
                "WorkloadGone",
                f'{kind} "{name}" ran and is gone, and how it ended was not seen: its ttlSecondsAfterFinished '
                f"({lifetime}) lets it be deleted after its end. It is not made again, because that would train a "
                "second time. If that is what you want, delete this TrainJob and create it again; to keep ends from "
                "being missed, set a longer ttlSecondsAfterFinished in the runtime, or set it in the TrainJob instead",
                retry=False,
            )
    return None


def _other_workload(objects: Iterable[Desired], observed: Observed) -> Problem | None:
    """Tell whether a TrainJob that has a workload would get one of another kind: its plugins have changed since."""
    wanted = [desired.identity for desired in objects if observed.is_workload(desired.identity)]
    if not wanted or not observed.workloads or any(identity in observed.workloads for identity in wanted):
        return None
    (_, old_kind, old_name), (_, kind, name) = next(iter(observed.workloads)), wanted[0]
    return Problem(
        "OtherWorkload",
        f'the TrainJob has the {old_kind} "{old_name}", but by the plugins of today it becomes the {kind} "{name}": a '
        "plugin was installed, configured or disabled since. It is left alone until it ends, since both would train. "
        "To have it built anew, delete this TrainJob and create it again",
        retry=False,
    )


def _was_running(job: TrainJob) -> bool:
    suspended = job.status.condition(SUSPENDED)
    if suspended is not None and suspended.is_true:
        return False
    return any(each.active or each.ready or each.succeeded or each.failed for each in job.status.jobs_status)


def _failed_by_manager(job: TrainJob) -> bool:
    failed = job.status.condition(FAILED)
    return failed is not None and failed.is_true and failed.reason in (DEADLINE_EXCEEDED_REASON, *POLICY_REASONS)


def replacement(observed: Observed) -> Plan:
    """Plan that the workload makes place for a new one, with all its pods."""
    leftover = _leftover_workloads(observed)
    return Plan(observed=observed, deletes=leftover, status_first=True, waits_for_dependents=True, waiting=True)


def _leftover_workloads(observed: Observed) -> list[JsonObject]:
    return [each for each in observed.workloads.values() if not each["metadata"].get("deletionTimestamp")]


def _runtime_in_force(observed: Observed) -> TrainingRuntime | ClusterTrainingRuntime | None:
    """Return the runtime of the snapshot, if there is a usable one."""
    try:
        snapshot = observed.read_snapshot()
        return None if snapshot is None else decode_snapshot(snapshot, observed.job)
    except (SnapshotInvalid, ApiTypeError):
        return None


def _frozen_runtime(
    observed: Observed, snapshot: JsonObject | None, planned: Plan
) -> TrainingRuntime | ClusterTrainingRuntime | None:
    """Return the runtime that counts for this job, from the snapshot; plan the snapshot if there is none yet."""
    job = observed.job
    if snapshot is not None:
        if is_left_by_earlier(snapshot, job.kind, job, group=GROUP):
            planned.waiting = True
            return None
        text = snapshot_text(snapshot, job)
        planned.snapshot_digest = snapshot_digest(text)
        if not _is_frozen(text, planned.snapshot_digest, observed):
            raise SnapshotChanged(job)
        return parse_snapshot_text(text, job)
    if observed.runtime is None:
        # The appearance of a runtime is an event that enqueues this job: nothing is gained by trying again before.
        denied = observed.runtime_denied
        planned.problem = Problem(RUNTIME_DENIED, denied, retry=False) if denied else _missing_runtime(job)
        return None
    text = encode_runtime_text(observed.runtime)
    planned.snapshot_digest = snapshot_digest(text)
    planned.applies.append(Apply(build_snapshot(job, text)))
    # Built from the text, not from the live object: the first build and all later ones see the same.
    return parse_snapshot_text(text, job)


def _is_frozen(text: str, digest: str, observed: Observed) -> bool:
    """Return whether a snapshot is the one that was frozen, or holds the runtime of today: that may be frozen anew."""
    job = observed.job
    if observed.snapshot_digest == digest:
        return True
    if not observed.snapshot_digest and (job.status.jobs_status or observed.workloads):
        # It was built before there were digests; a condition alone says that of a snapshot which was refused.
        return True
    live = observed.listers.body(*runtime_key(job))
    if live is None:
        return False
    try:
        return parse_snapshot_text(text, job) == parse_snapshot_text(encode_runtime_text(live), job)
    except (ApiTypeError, TemplateInvalid):
        return False


def _missing_runtime(job: TrainJob) -> Problem:
    reference = job.spec.runtime_ref
    missing = f'{reference.kind}.{GROUP} "{reference.name}" not found'
    if reference.kind == TRAINING_RUNTIME_KIND:
        message = f"TrainingRuntime specified in TrainJob is not found: {missing}"
    else:
        message = f"not found ClusterTrainingRuntime specified in TrainJob: {missing}"
    return Problem(RUNTIME_NOT_FOUND, message, retry=False)


def _prune(objects: Iterable[Desired], observed: Observed, planned: Plan, kinds: Collection[GroupVersionKind]) -> None:
    """Delete what the TrainJob consisted of, and does not any more."""
    if not kinds or planned.is_stuck:
        return
    built = {desired.identity for desired in objects}
    planned.deletes += [
        obj
        for obj in observed.listers.controlled(observed.job, kinds)
        if identity_of(obj) not in built and not obj["metadata"].get("deletionTimestamp")
    ]


def _plan_object(
    desired: Desired,
    builder: str,
    observed: Observed,
    planned: Plan,
    pruned: Collection[GroupVersionKind],
    *,
    resizes: bool,
) -> None:
    api_version, kind, name = desired.identity
    job = observed.job
    resource = observed.listers.resource(api_version, kind)
    if resource is None or not resource.namespaced:
        fault = "without declaring that kind in its watch_extension"
        if resource is not None:
            fault = "which belongs to no namespace, so that no TrainJob can own it"
        planned.problem = Problem("PluginFailed", f"plugin {builder} builds {kind} {name!r} ({api_version}), {fault}")
        return
    existing = observed.existing(api_version, kind, name)
    once = desired.when is ApplyWhen.ONCE
    if once and existing is not None and is_left_by_earlier(existing, job.kind, job, group=GROUP):
        existing = None  # of a kind that nobody reads, its end will not be seen: the server is asked
    if existing is not None and not is_controlled_by(existing, job):
        if is_left_by_earlier(existing, job.kind, job, group=GROUP):
            planned.waiting = True
        else:
            planned.problem = name_taken(kind, name, job.kind)
    elif existing is not None and (api_version, kind) in pruned and existing["metadata"].get("deletionTimestamp"):
        planned.waiting = True  # what comes after it is made for the new one
    elif existing is None:
        planned.applies.append(Apply(desired.object, create=once))
    elif resizes and observed.is_workload(desired.identity):
        planned.applies.append(Apply(desired.object, uid=existing["metadata"]["uid"], optional=True))
    elif found := _drift(desired, existing, job):
        # Most of a workload is immutable, and what is built may have changed since, but stopping it is always possible.
        runs = not (existing.get("spec") or {}).get("suspend", False)
        stops = job.spec.suspend and runs and observed.is_workload(desired.identity)
        stop = {"spec": {"suspend": True}} if stops else None
        planned.applies.append(
            Apply(desired.object, uid=existing["metadata"]["uid"], certain=found is Drift.CERTAIN, at_least=stop)
        )


def _drift(desired: Desired, existing: JsonObject, job: TrainJob) -> Drift:
    if existing["metadata"].get("deletionTimestamp") or desired.when in (ApplyWhen.MISSING, ApplyWhen.ONCE):
        return Drift.NONE
    suspended = job.spec.suspend or (existing.get("spec") or {}).get("suspend", False)
    if desired.when is ApplyWhen.SUSPENDED and not suspended:
        return Drift.NONE
    return drift(desired.object, existing, owned_fields=owned_fields(existing))
