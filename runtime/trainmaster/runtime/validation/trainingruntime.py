"""Validation of TrainingRuntimes and ClusterTrainingRuntimes.

- B33: both kinds are validated alike, on creation and on update, and both are warned about when they are deprecated.
- What the definitions of the original lack of the rules of our schema is said here too.
- What is in a policy `custom` is judged by the plugin that it names, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.api.constants import (
    ANCESTORS,
    MAIN_CONTAINER_OF_ANCESTOR,
    SCHEDULING_GATE,
    SUPPORT_DEPRECATED,
    SUPPORT_LABEL,
)
from trainmaster.runtime.api.decoding import ApiTypeError, parse_runtime
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, MLPolicy, TrainingRuntime
from trainmaster.runtime.canonical import TemplateInvalid, canonicalize_template, without_blanks
from trainmaster.runtime.field_errors import FieldError, FieldWarning, ValidationResult
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.info import ancestor_of
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.multislice import check_replicas
from trainmaster.runtime.resilience import FIELD_PATH, policy_conflicts, policy_problems
from trainmaster.runtime.scheduling import PATH as SCHEDULING_PATH
from trainmaster.runtime.scheduling import scheduling_problems
from trainmaster.runtime.validation.limits import runtime_limits
from trainmaster.runtime.validation.trainjob import deprecation

_REPLICATED_JOBS = "spec.template.spec.replicatedJobs"


def validate_runtime(obj: JsonObject, old: JsonObject | None, *, framework: Framework) -> ValidationResult:
    """Validate a runtime that has passed the rules of its schema.

    Args:
        old: The one that is stored, when it is an update.
        framework: The plugins, of which some may serve its policies.
    """
    if old is not None and obj.get("spec") == old.get("spec"):
        # One that was stored before the rules can still be labelled, released and deleted.
        return ValidationResult()
    exceeded = list(runtime_limits(obj))
    if exceeded:
        return ValidationResult(exceeded)
    try:
        runtime = parse_runtime(obj)
        if runtime.spec.template:
            canonicalize_template(without_blanks(obj["spec"]["template"]))
    except ApiTypeError as error:
        return ValidationResult(refusal=f"the runtime cannot be read: {'; '.join(error.problems)}")
    except TemplateInvalid as error:
        return ValidationResult([FieldError("spec.template.spec", str(error), type="Forbidden")])
    warnings = list(_warnings(runtime)) if old is None else []
    errors = list(_check(runtime))
    of_plugins = framework.policy_problems(runtime.spec.ml_policy, runtime.spec.pod_group_policy)
    for found in (*of_plugins, *_check_resilience(runtime), *_check_scheduling(runtime, framework)):
        if isinstance(found, FieldError):
            errors.append(found)
        else:
            warnings.append(str(found))
    return ValidationResult(errors, warnings)


def _check(runtime: TrainingRuntime | ClusterTrainingRuntime) -> Iterator[FieldError]:
    nodes = runtime.spec.ml_policy.num_nodes if runtime.spec.ml_policy else None
    if nodes is not None and nodes < 1:
        yield FieldError("spec.mlPolicy.numNodes", "must be greater than or equal to 1", value=nodes)
    yield from _check_processes(runtime.spec.ml_policy)
    template = runtime.spec.template.spec if runtime.spec.template else {}
    for position, policy in enumerate(template.get("volumeClaimPolicies") or []):
        if "templates" not in policy:
            yield FieldError(f"spec.template.spec.volumeClaimPolicies[{position}].templates", "", type="Required")
    mpi = runtime.spec.ml_policy is not None and runtime.spec.ml_policy.mpi is not None
    for position, replicated_job in enumerate(template.get("replicatedJobs") or []):
        ancestor, replicas = ancestor_of(replicated_job), replicated_job.get("replicas", 1)
        path = f"{_REPLICATED_JOBS}[{position}]"
        problem = check_replicas(replicated_job["name"], ancestor, replicas, mpi=mpi)
        if problem is not None:
            yield FieldError(f"{path}.replicas", problem, value=replicas)
        if ancestor in ANCESTORS:
            yield from _check_containers(replicated_job, ancestor, path)


def _check_resilience(runtime: TrainingRuntime | ClusterTrainingRuntime) -> Iterator[FieldError | FieldWarning]:
    policy = runtime.spec.resilience_policy
    if policy is not None:
        yield from policy_problems(policy, FIELD_PATH)
        yield from policy_conflicts(policy, runtime.spec.template.spec if runtime.spec.template else {}, FIELD_PATH)


def _check_scheduling(runtime: TrainingRuntime | ClusterTrainingRuntime, framework: Framework) -> Iterator[FieldError]:
    spec = runtime.spec
    if spec.scheduling is None:
        return
    if not framework.serves_scheduling:
        detail = f"takes the feature gate {SCHEDULING_GATE}, which is off"
        yield FieldError(SCHEDULING_PATH, detail, type="Forbidden")
    template = spec.template.spec if spec.template else {}
    yield from scheduling_problems(spec.scheduling, spec.pod_group_policy, template)


def _check_processes(policy: MLPolicy | None) -> Iterator[FieldError]:
    mpi = policy.mpi if policy else None
    if mpi is not None and mpi.num_proc_per_node < 1:
        detail = "NumProcPerNode in mpiPolicy must be >= 1"
        yield FieldError("spec.mlPolicy.mpi.numProcPerNode", detail, value=mpi.num_proc_per_node)


def _check_containers(replicated_job: JsonObject, ancestor: str, path: str) -> Iterator[FieldError]:
    """Check that a step of TrainJobs has the container that their settings go to."""
    pod_template = ((replicated_job.get("template") or {}).get("spec") or {}).get("template") or {}
    containers = (pod_template.get("spec") or {}).get("containers") or []
    name = MAIN_CONTAINER_OF_ANCESTOR[ancestor]
    if name not in [container["name"] for container in containers]:
        yield FieldError(
            f"{path}.template.spec.template.spec.containers",
            f'must contain the required container for the ancestor: {ancestor}; call it "{name}"',
            value=[{**container, "resources": container.get("resources") or {}} for container in containers],
        )


def _warnings(runtime: TrainingRuntime | ClusterTrainingRuntime) -> Iterator[str]:
    if runtime.metadata.labels.get(SUPPORT_LABEL) == SUPPORT_DEPRECATED:
        yield deprecation(runtime.kind, runtime.metadata.name)
    gang = runtime.spec.pod_group_policy
    if gang and gang.coscheduling and gang.volcano:
        yield (
            "spec.podGroupPolicy: coscheduling and volcano are both set, but a pod has one scheduler; "
            "keep the policy of the scheduler that the pods name"
        )
