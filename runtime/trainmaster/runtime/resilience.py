"""The resilience policy of a job: which one holds, what is wrong with one, and what a JobSet remembers of it. Pure.

- That of the TrainJob is laid over its annotation, and that over the runtime's, field by field. The annotation is for
  clusters with the definitions of the original, which know no such field, and for jobs of the Training Operator API.
- A policy holds from when a JobSet is made until a new one takes its place: most of a JobSet cannot be changed. So the
  JobSet has it in an annotation, together with what it was built for: failures charged before, and nodes avoided.
- Jobs of the Training Operator API have it in their annotation alone, and what it has charged in another one.
- What a runtime says itself of failures stays, and a policy that contradicts it is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import orjson

from trainmaster.runtime.api.constants import (
    ATTEMPTS_BEFORE_LABEL,
    JOBSET_LABEL,
    RESILIENCE_ANNOTATION,
    RESILIENCE_LABEL,
    RESILIENCE_POLICY_ANNOTATION,
    RESILIENCE_STATUS_ANNOTATION,
)
from trainmaster.runtime.api.decoding import ApiTypeError, parse_part
from trainmaster.runtime.api.meta import ApiModel, NullIsDefault, Schema, duration_seconds
from trainmaster.runtime.api.resilience import ResiliencePolicy, ResilienceStatus
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.elastic import elastic_limits
from trainmaster.runtime.field_errors import FieldError, FieldWarning, did_you_mean
from trainmaster.runtime.jsontree import JsonObject

ANNOTATION_PATH: Final = f"metadata.annotations[{RESILIENCE_POLICY_ANNOTATION}]"
FIELD_PATH: Final = "spec.resiliencePolicy"

_HOSTNAME: Final = "kubernetes.io/hostname"
PODS_BY_NODE: Final = "resilience-node"
PODS_BY_JOB: Final = "resilience-job"
"""The indexes of the watched pods, by which the manager finds those of a lost node, and those of a job by its key."""

_LONGEST_ANNOTATION: Final = 32 * 1024
_SHORTEST, _LONGEST = 1.0, 8760 * 3600.0
"""Seconds of a duration."""

_DURATIONS: Final = frozenset({"restart_window", "for_", "lost_after", "within", "start", "every", "grace_period"})


class PolicyInvalid(ValueError):
    """The annotation holds no policy; the text names the field."""


def policy_of_trainjob(job: TrainJob, runtime: TrainingRuntime | ClusterTrainingRuntime) -> ResiliencePolicy | None:
    """Return the policy that holds for a TrainJob.

    Raises:
        PolicyInvalid: Its annotation holds none.
    """
    of_runtime, own = runtime.spec.resilience_policy, job.spec.resilience_policy
    annotated = annotated_policy(job.metadata.annotations)
    layers = [each.to_json() for each in (of_runtime, annotated, own) if each is not None]
    is_elastic = elastic_limits(runtime.spec.ml_policy, job) is not None  # the ledger resizes it
    return ResiliencePolicy.model_validate(_laid_over(layers)) if layers or is_elastic else None


def annotated_policy(annotations: Mapping[str, str]) -> ResiliencePolicy | None:
    """Read the policy in the annotation of a job.

    Raises:
        PolicyInvalid: It holds none.
    """
    text = annotations.get(RESILIENCE_POLICY_ANNOTATION)
    if text is None:
        return None
    if len(text) > _LONGEST_ANNOTATION:
        raise PolicyInvalid(f"{ANNOTATION_PATH}: must have at most {_LONGEST_ANNOTATION} characters")
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise PolicyInvalid(
            f"{ANNOTATION_PATH}: must be a policy as JSON, as spec.resiliencePolicy is: {error}"
        ) from error
    try:
        return parse_part(ResiliencePolicy, tree, ANNOTATION_PATH)
    except ApiTypeError as error:
        raise PolicyInvalid("; ".join(error.problems)) from error


def _laid_over(layers: Sequence[JsonObject]) -> JsonObject:
    """Lay each tree over those before it: maps by field, everything else as a whole; null is as good as nothing."""
    merged: JsonObject = {}
    for layer in layers:
        for name, value in layer.items():
            if isinstance(value, dict) and isinstance(merged.get(name), dict):
                merged[name] = _laid_over([merged[name], value])
            elif value is not None:
                merged[name] = value
    return merged


def policy_problems(policy: ResiliencePolicy, path: str) -> Iterator[FieldError]:
    """Return what is wrong with a policy, also what a schema would say of it: an annotation has none.

    Args:
        path: Where it is, for instance `spec.resiliencePolicy`.
    """
    yield from _model_problems(policy, path)
    codes = policy.exit_codes
    if codes is not None:
        for code in sorted({*codes.fail, *codes.retry}):
            if not 1 <= code <= 255:
                yield FieldError(f"{path}.exitCodes", "must be between 1 and 255: 0 is no failure", value=code)
        for code in sorted({*codes.fail} & {*codes.retry}):
            yield FieldError(f"{path}.exitCodes.retry", "is in fail as well: remove it from one of them", value=code)
    names = set[str]()
    for position, rule in enumerate(policy.logs or ()):
        if rule.name in names:
            yield FieldError(f"{path}.logs[{position}].name", "", type="Duplicate", value=rule.name)
        names.add(rule.name)
        problem = pattern_problem(rule.pattern)
        if problem is not None:
            yield FieldError(f"{path}.logs[{position}].pattern", problem, value=rule.pattern)


def policy_conflicts(policy: ResiliencePolicy, template: JsonObject, path: str) -> Iterator[FieldError | FieldWarning]:
    """Return what of a whole policy does not go together, by itself and with the JobSet of the runtime.

    Args:
        policy: That of a runtime, or of a TrainJob laid over it.
    """
    if policy.max_restarts is None and policy.restart_window:
        yield FieldWarning(f"{path}.restartWindow", "has no effect without maxRestarts")
    own = own_failure_policy(template)
    if own is None or not policy.counts_failures:
        return
    if policy.max_restarts or policy.disruptions or policy.exit_codes:
        field = "maxRestarts" if policy.max_restarts else "disruptions" if policy.disruptions else "exitCodes"
        detail = f"the runtime has {own}, which stays as it is; remove one of the two"
        yield FieldError(f"{path}.{field}", detail, "Forbidden")
    else:
        yield FieldWarning(f"{path}.maxRestarts", f"has no effect: {own} of the runtime says what follows a failure")


def own_failure_policy(template: JsonObject) -> str | None:
    """Return the field of a runtime that says itself what happens after a failure; None if there is none."""
    if template.get("failurePolicy"):
        return "spec.template.spec.failurePolicy"
    for position, replicated_job in enumerate(template.get("replicatedJobs") or ()):
        if ((replicated_job.get("template") or {}).get("spec") or {}).get("podFailurePolicy"):
            return f"spec.template.spec.replicatedJobs[{position}].template.spec.podFailurePolicy"
    return None


def pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a regular expression; None: nothing."""
    try:
        compile_pattern(pattern)
    except ValueError as error:
        return str(error)
    return None


def compile_pattern(pattern: str) -> Any:
    """Compile a regular expression of RE2, which takes time in proportion to what it reads.

    Raises:
        ValueError: It is none.
    """
    import re2  # noqa: PLC0415 - only jobs with rules about their logs need it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0]
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        raise ValueError(
            f"is no regular expression of RE2, which has no lookaround and no backreferences: {said}"
        ) from error


def _model_problems(model: ApiModel, path: str) -> Iterator[FieldError]:
    """Check a model against the limits of its schema."""
    known = {field.alias or name: name for name, field in type(model).model_fields.items()}
    for unknown in model.model_extra or ():
        yield FieldError(f"{path}.{unknown}", f"is no field {did_you_mean(unknown, known)}", value=unknown)
    for alias, name in known.items():
        value, here = getattr(model, name), f"{path}.{alias}"
        for position, each in enumerate(value if isinstance(value, list) else ()):
            if isinstance(each, ApiModel):
                yield from _model_problems(each, f"{here}[{position}]")
        if isinstance(value, ApiModel):
            yield from _model_problems(value, here)
        elif value is not None:
            for schema in type(model).model_fields[name].metadata:
                if isinstance(schema, Schema):
                    yield from _schema_problems(schema.keywords, name, value, here)


def _schema_problems(limits: Mapping[str, Any], name: str, value: Any, path: str) -> Iterator[FieldError]:
    if "enum" in limits and value not in limits["enum"]:
        allowed = ", ".join(f'"{each}"' for each in limits["enum"])
        yield FieldError(path, f"supported values: {allowed}", "NotSupported", value)
    elif isinstance(value, list) and len(value) > limits.get("maxItems", len(value)):
        yield FieldError(path, f"must have at most {limits['maxItems']} items", "TooMany", len(value))
    elif isinstance(value, int) and not limits.get("minimum", value) <= value <= limits.get("maximum", value):
        yield FieldError(path, f"must be between {limits['minimum']} and {limits['maximum']}", value=value)
    elif isinstance(value, str) and not limits.get("minLength", 0) <= len(value) <= limits.get("maxLength", len(value)):
        yield FieldError(path, f"must have 1 to {limits['maxLength']} characters", value=value)
    elif name in _DURATIONS:
        try:
            fits = _SHORTEST <= duration_seconds(value) <= _LONGEST
        except ValueError as error:
            yield FieldError(path, str(error), value=value)
        else:
            if not fits:
                yield FieldError(path, "must be between 1s and 8760h", value=value)
    elif "pattern" in limits and not re.search(limits["pattern"], value):
        yield FieldError(path, f"must match {limits['pattern']}", value=value)


class BuiltPolicy(NamedTuple):
    """What a JobSet was built for, or a pod of a job of `kubeflow.org/v1` is."""

    policy: ResiliencePolicy
    charged: int = 0
    """Failures that were charged before."""

    avoided: tuple[str, ...] = ()
    """Nodes on which it does not run."""

    attempts: int = 0
    """Attempts of the job that had ended before."""

    def encode(self) -> str:
        """Return the text of the annotation."""
        tree = {**self._asdict(), "policy": self.policy.to_json()}
        return orjson.dumps(tree, option=orjson.OPT_SORT_KEYS).decode()


def built_policy(jobset: JsonObject) -> BuiltPolicy | None:
    """Read what a JobSet was built for; None if that was without a policy, or somebody has spoilt the annotation."""
    text = (jobset["metadata"].get("annotations") or {}).get(RESILIENCE_ANNOTATION)
    if text is None:
        return None
    try:
        tree = orjson.loads(text)
        policy = ResiliencePolicy.model_validate(tree["policy"])
        return BuiltPolicy(policy, int(tree["charged"]), tuple(map(str, tree["avoided"])), int(tree["attempts"]))
    except (ValueError, KeyError, TypeError):
        return None


class GroupLedger(ResilienceStatus):
    """What is written down of the attempts of a job of `kubeflow.org/v1`, in its annotation."""

    uid: Annotated[str, NullIsDefault] = ""
    """Of the job."""

    pods: Annotated[int, NullIsDefault] = 0
    """How many pods the attempt had when all were there; 0 before."""

    failure: Annotated[str, NullIsDefault] = ""
    """Why the job fails."""


def group_ledger(annotations: Mapping[str, str], uid: str) -> JsonObject:
    """Read the ledger of a job of `kubeflow.org/v1`; it is empty if there is none, or somebody has spoilt it.

    That of an earlier job counts as none: its manifest may have been saved with all annotations, and applied again.
    """
    try:
        ledger = GroupLedger.model_validate(orjson.loads(annotations.get(RESILIENCE_STATUS_ANNOTATION, "{}")))
    except ValueError:
        return {}
    return ledger.model_dump(by_alias=True, exclude_none=True) if ledger.uid == uid else {}


def group_policy(annotations: Mapping[str, str], uid: str) -> BuiltPolicy | None:
    """Return what pods of a job of `kubeflow.org/v1` are built for by now; None if it has no valid policy."""
    try:
        policy = annotated_policy(annotations)
    except PolicyInvalid:
        return None
    if policy is None or any(policy_problems(policy, ANNOTATION_PATH)):
        return None
    status = ResilienceStatus.model_validate(group_ledger(annotations, uid))
    avoided = tuple(each.name for each in status.avoided_nodes)
    return BuiltPolicy(policy, status.charged_restarts, avoided, status.ended_attempts)


def prepare_pod(pod: JsonObject, built: BuiltPolicy) -> None:
    """Write into a pod, or the template of one, what concerns it of a policy."""
    spec = pod["spec"]
    if built.attempts:
        pod.setdefault("metadata", {}).setdefault("labels", {})[ATTEMPTS_BEFORE_LABEL] = str(built.attempts)
    for container in spec.get("containers") or ():
        # What it said last tells whether it lost a peer, or failed by itself.
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    if built.policy.grace_period:
        spec["terminationGracePeriodSeconds"] = math.ceil(duration_seconds(built.policy.grace_period))
    if built.avoided:
        _avoid(spec, built.avoided)


def _avoid(pod_spec: JsonObject, nodes: Iterable[str]) -> None:
    """Keep pods off nodes; terms are alternatives, so each of them gets the condition."""
    condition = {"key": _HOSTNAME, "operator": "NotIn", "values": sorted(nodes)}
    affinity = pod_spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", [{}])
    for term in terms:
        term.setdefault("matchExpressions", []).append(condition)


def job_of_pod(pod: JsonObject) -> Iterator[str]:
    """Yield the key of the job of a pod, if that has a resilience policy."""
    labels = pod["metadata"].get("labels") or {}
    if RESILIENCE_LABEL in labels and JOBSET_LABEL in labels:
        yield f"{pod['metadata']['namespace']}/{labels[JOBSET_LABEL]}"
