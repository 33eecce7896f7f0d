"""Resilience: what a resilience policy makes of the Jobs and the JobSet, as far as these can do it themselves.

- The first pod that fails ends its Job, and the JobSet starts all pods anew: those that lose their peer fail as well,
  and that is no failure of its own. The budget of the JobSet is what is left of `maxRestarts`.
- Pods that are taken away (condition DisruptionTarget) and exit codes with a meaning fail their Job with a message that
  names the rule, by which the JobSet tells them from failures that are charged.
- What the JobSet cannot do, the manager does: see `controller.resilience`. It watches the pods by their label.
- A failure policy that the runtime has itself stays, and a policy that contradicts it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import (
    JOBSET_API_VERSION,
    JOBSET_KIND,
    NODE,
    RESILIENCE_ANNOTATION,
    RESILIENCE_LABEL,
    RESILIENCE_POLICY_ANNOTATION,
)
from trainmaster.runtime.api.resilience import COUNT, ResiliencePolicy, duration_seconds
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import JobKey, Listers, Watch
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.resilience import ANNOTATION_PATH, FIELD_PATH, BuiltPolicy, built_policy, policy_problems

_HOSTNAME: Final = "kubernetes.io/hostname"


def _no_jobs(_pod: JsonObject) -> Iterable[JobKey]:
    return ()  # `controller.resilience` hears of pods itself


class Resilience:
    """Builds what a resilience policy asks of Jobs and JobSet."""

    name = "resilience"
    before = ("jobset",)

    def watch_extension(self) -> Iterable[Watch]:
        """The pods of jobs with a policy."""
        return [Watch("v1", "Pod", "pods", label_selector=f"{RESILIENCE_LABEL}=true", jobs=_no_jobs, optional=True)]

    def applies_to(self, info: Info, job: TrainJob) -> bool:
        """Serve jobs with a policy."""
        return info.resilience_policy is not None

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Check the policy of the TrainJob, and whether the runtime has one of its own that contradicts it."""
        policy = info.resilience_policy
        if policy is None:
            return
        path = ANNOTATION_PATH if RESILIENCE_POLICY_ANNOTATION in job.metadata.annotations else FIELD_PATH
        yield from policy_problems(policy, path)
        yield from _contradictions(info, policy, path)
        built = _built(job, listers)
        if old is not None and not job.spec.suspend and built is not None and built.policy != policy:
            yield FieldWarning(path, "holds from the next time on that Trainmaster makes all pods anew, not at once")

    def pre_build(self, info: Info, job: TrainJob) -> None:
        """Write the policy into Jobs, pods and the JobSet."""
        if info.resilience_policy is None:
            return
        status = job.status.resilience
        wanted = BuiltPolicy(
            info.resilience_policy,
            status.charged_restarts if status else 0,
            tuple(each.name for each in status.avoided_nodes) if status else (),
        )
        # Most of a JobSet cannot be changed, also while it is suspended.
        built = _built(job, info.listers) or wanted
        info.annotations[RESILIENCE_ANNOTATION] = built.encode()
        restarts = _restarts(built.policy) and not _own_policy(info)
        for pods in info.pod_sets:
            _prepare_pods(pods, built)
            if restarts:
                _end_at_first_failure(pods, built.policy, is_node=info.is_node(pods))
        if restarts:
            info.template["failurePolicy"] = _failure_policy(built)


def _built(job: TrainJob, listers: Listers) -> BuiltPolicy | None:
    jobset = listers.get(JOBSET_API_VERSION, JOBSET_KIND, job.metadata.namespace, job.metadata.name)
    if jobset is None or not is_controlled_by(jobset, job) or jobset["metadata"].get("deletionTimestamp"):
        return None
    return built_policy(jobset)


def _restarts(policy: ResiliencePolicy) -> bool:
    """Tell whether a policy says when all pods are started anew."""
    return policy.max_restarts is not None or policy.disruptions is not None or policy.exit_codes is not None


def _own_policy(info: Info) -> str | None:
    """Return the field of the runtime that says itself what happens after a failure."""
    if info.template.get("failurePolicy"):
        return "spec.template.spec.failurePolicy"
    for position, pods in enumerate(info.pod_sets):
        if pods.job_template["spec"].get("podFailurePolicy"):
            return f"spec.template.spec.replicatedJobs[{position}].template.spec.podFailurePolicy"
    return None


def _contradictions(info: Info, policy: ResiliencePolicy, path: str) -> Iterator[FieldError | FieldWarning]:
    own = _own_policy(info)
    if own is None or not _restarts(policy):
        return
    if not policy.max_restarts and policy.disruptions is None and policy.exit_codes is None:
        yield FieldWarning(f"{path}.maxRestarts", f"has no effect: {own} of the runtime says what follows a failure")
        return
    field = "maxRestarts" if policy.max_restarts else "disruptions" if policy.disruptions else "exitCodes"
    detail = f"the runtime has {own}, which stays as it is; remove one of the two"
    yield FieldError(f"{path}.{field}", detail, "Forbidden")


def _prepare_pods(pods: PodSet, built: BuiltPolicy) -> None:
    metadata = pods.pod_template.setdefault("metadata", {})
    metadata.setdefault("labels", {})[RESILIENCE_LABEL] = "true"
    if built.policy.grace_period:
        pods.pod_spec["terminationGracePeriodSeconds"] = math.ceil(duration_seconds(built.policy.grace_period))
    if built.avoided:
        _avoid(pods.pod_spec, built.avoided)


def _avoid(pod_spec: JsonObject, nodes: Iterable[str]) -> None:
    """Keep pods off nodes; terms are alternatives, so each of them gets the condition."""
    condition = {"key": _HOSTNAME, "operator": "NotIn", "values": sorted(nodes)}
    affinity = pod_spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", [{}])
    for term in terms:
        term.setdefault("matchExpressions", []).append(condition)


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
