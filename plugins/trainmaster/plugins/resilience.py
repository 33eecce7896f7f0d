"""Resilience: what a resilience policy makes of the Jobs and the JobSet, as far as these can do it themselves.

- The first pod that fails ends its Job, and the JobSet starts all pods anew: those that lose their peer fail as well,
  and that is no failure of its own. The budget of the JobSet is what is left of `maxRestarts`.
- Pods that are taken away (condition DisruptionTarget) and exit codes with a meaning fail their Job with a message that
  names the rule, by which the JobSet tells them from failures that are charged.
- What the JobSet cannot do, the manager does: see `controller.resilience`. It watches the pods by their label.
- A failure policy that the runtime has itself stays: the JobSet then restarts by that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from trainmaster.runtime.api.constants import JOBSET_KIND, NODE, RESILIENCE_ANNOTATION, RESILIENCE_LABEL
from trainmaster.runtime.api.resilience import COUNT, ResiliencePolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import JobKey, Listers, Watch
from trainmaster.runtime.resilience import (
    ANNOTATION_PATH,
    FIELD_PATH,
    PODS_BY_JOB,
    PODS_BY_NODE,
    BuiltPolicy,
    annotated_policy,
    built_policy,
    job_of_pod,
    own_failure_policy,
    policy_conflicts,
    policy_problems,
    prepare_pod,
)

_LATER: Final = (
    "does not hold for what runs already, but from the next time on that Trainmaster makes its JobSet; to have it hold "
    "now, suspend the TrainJob, delete its JobSet and resume it"
)


def _no_jobs(_pod: JsonObject) -> Iterable[JobKey]:
    return ()  # `controller.resilience` hears of pods itself


def _node_of(pod: JsonObject) -> Iterable[str]:
    node = (pod.get("spec") or {}).get("nodeName")
    return (node,) if node else ()


class Resilience:
    """Builds what a resilience policy asks of Jobs and JobSet."""

    name = "resilience"
    before = ("jobset",)

    def watch_extension(self) -> Iterable[Watch]:
        """The pods of jobs with a policy."""
        labelled, indexes = f"{RESILIENCE_LABEL}=true", {PODS_BY_NODE: _node_of, PODS_BY_JOB: job_of_pod}
        return [Watch("v1", "Pod", "pods", label_selector=labelled, jobs=_no_jobs, indexes=indexes, optional=True)]

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Check the policy of the TrainJob, and whether the runtime has one of its own that contradicts it."""
        if info.resilience_policy is None and job.status.resilience is None:
            return
        policy, own = info.resilience_policy, job.spec.resilience_policy
        annotated = annotated_policy(job.metadata.annotations)
        path = ANNOTATION_PATH if own is None and annotated is not None else FIELD_PATH
        if annotated is not None:
            yield from policy_problems(annotated, ANNOTATION_PATH)
        if own is not None:
            yield from policy_problems(own, FIELD_PATH)
        if policy is not None and (own is not None or annotated is not None):
            yield from policy_conflicts(policy, info.template, path)
        jobset = _jobset(job, listers)
        if old is not None and jobset is not None:
            built = built_policy(jobset)
            if (built and built.policy) != _in_force(info):
                yield FieldWarning(path, _LATER)

    def pre_build(self, info: Info, job: TrainJob) -> None:
        """Write the policy into Jobs, pods and the JobSet."""
        if info.resilience_policy is None and job.status.resilience is None:
            return
        jobset = _jobset(job, info.listers)
        # Most of a JobSet cannot be changed, also while it is suspended.
        built = _to_build(job, _in_force(info)) if jobset is None else built_policy(jobset)
        if built is None:
            return
        info.annotations[RESILIENCE_ANNOTATION] = built.encode()
        for pods in info.pod_sets:
            labels = pods.pod_template.setdefault("metadata", {}).setdefault("labels", {})
            labels[RESILIENCE_LABEL] = "true"
            prepare_pod(pods.pod_template, built)
            if built.policy.counts_failures:
                _end_at_first_failure(pods, built.policy, is_node=info.is_node(pods))
        if built.policy.counts_failures:
            info.template["failurePolicy"] = _failure_policy(built)


def _in_force(info: Info) -> ResiliencePolicy | None:
    """Return what of the policy holds beside what the runtime says itself of failures."""
    policy = info.resilience_policy
    if policy is None or own_failure_policy(info.template) is None:
        return policy
    return policy.model_copy(update={"max_restarts": None, "disruptions": None, "exit_codes": None})


def _to_build(job: TrainJob, policy: ResiliencePolicy | None) -> BuiltPolicy | None:
    status = job.status.resilience
    if policy is None or status is None:
        return None if policy is None else BuiltPolicy(policy)
    avoided = tuple(each.name for each in status.avoided_nodes)
    return BuiltPolicy(policy, status.charged_restarts, avoided, status.ended_attempts)


def _jobset(job: TrainJob, listers: Listers) -> JsonObject | None:
    """Return the JobSet that a TrainJob has and keeps."""
    found = (each for each in listers.workloads(job) if each["kind"] == JOBSET_KIND)
    return next((each for each in found if not each["metadata"].get("deletionTimestamp")), None)


class _Rule(NamedTuple):
    """Which pods fail their Job at once, and what the JobSet does about that."""

    name: str
    action: str
    match: JsonObject
    """A part of a rule of Jobs."""

    only_nodes: bool = False


def _rules(policy: ResiliencePolicy) -> list[_Rule]:
    """Return the rules in their order, which is the same for all Jobs: by the place of a rule a JobSet knows it."""
    uncharged, codes = "RestartJobSetAndIgnoreMaxRestarts", policy.exit_codes
    rules = []
    if policy.disruptions != COUNT:
        taken_away = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        rules.append(_Rule("Disrupted", uncharged, taken_away))
    if codes and codes.fail:
        rules.append(_Rule("FailCode", "FailJobSet", _on_exit_codes(codes.fail), only_nodes=True))
    if codes and codes.retry:
        rules.append(_Rule("RetryCode", uncharged, _on_exit_codes(codes.retry), only_nodes=True))
    return rules


def _on_exit_codes(codes: list[int]) -> JsonObject:
    return {"onExitCodes": {"containerName": NODE, "operator": "In", "values": sorted(codes)}}


def _end_at_first_failure(pods: PodSet, policy: ResiliencePolicy, *, is_node: bool) -> None:
    job_spec = pods.job_template["spec"]
    job_spec["backoffLimit"] = 0
    pods.pod_spec["restartPolicy"] = "Never"
    rules = [{"action": "FailJob", **each.match} for each in _rules(policy) if is_node or not each.only_nodes]
    if rules:
        job_spec["podFailurePolicy"] = {"rules": rules}


def _failure_policy(built: BuiltPolicy) -> JsonObject:
    policy: JsonObject = {"maxRestarts": max((built.policy.max_restarts or 0) - built.charged, 0)}
    rules = [
        {
            "name": each.name,
            "action": each.action,
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [f"matching FailJob rule at index {index}$"],
        }
        for index, each in enumerate(_rules(built.policy))
    ]
    return {**policy, "rules": rules} if rules else policy
