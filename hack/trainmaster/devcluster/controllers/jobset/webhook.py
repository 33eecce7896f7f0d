"""What JobSet's two admission webhooks do, as a hook of the API: defaults, then validation.

Defaults come before validation (a rule needs a name, and gets one here), so nothing can be taken for granted about the
shape of the object: what is not an object or a list where one belongs is left for validation to refuse.

The rules of JobSet's validating webhook, and those CEL rules of its schema that do more than compare with the past.

The objects have passed the schema: types, enumerations and bounds are not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError, StatusError
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Operation
from trainmaster.devcluster.apiserver.resources import JOBSETS
from trainmaster.devcluster.controllers.jobset.children import (
    claim_name,
    claim_templates,
    coordinator_endpoint,
    job_name,
    replicas_of,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.names import dns_label_1035, dns_subdomain, label_value

_WEBHOOK = "vjobset.kb.io"

_MAX_INT32 = 2**31 - 1
_LABEL_LIMIT = 63
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_RULE_NAME_LIMIT = 128
_FAILURE_REASONS = (
    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy",
)  # fmt: skip
_SCHEDULING_METADATA = ("labels", "annotations")
_SCHEDULING_SPEC = ("nodeSelector", "tolerations", "schedulingGates")


def jobset_webhook(registry: Registry, *, elastic: bool = False) -> AdmissionHook:
    """Return the hook.

    Args:
        registry: Has the schema of the JobSets that are served at the time of a request.
        elastic: Whether JobSets may change their size.
    """

    def admit(operation: Operation, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        set_defaults(obj)
        schema = registry.get(JOBSETS).schema
        if "spec" not in obj or (schema is not None and schema.validate(obj)):
            return obj  # malformed: the API refuses it next, and says what is wrong better than the rules below could
        problems = (
            validate_create(obj) if operation == "CREATE" or old is None else validate_update(obj, old, elastic=elastic)
        )
        if problems:
            refusal = errors.invalid(JOBSETS.group, "JobSet", obj["metadata"].get("name", ""), problems)
            message = f'admission webhook "{_WEBHOOK}" denied the request: {refusal.message}'
            raise StatusError(refusal.code, refusal.reason, message, details=refusal.details)
        return obj

    return admit


def set_defaults(jobset: JsonObject) -> None:
    """Fill in, in place, what the author of a JobSet left open, beyond the defaults of the schema."""
    spec = jobset.get("spec")
    if not isinstance(spec, dict):
        return
    _object_at(spec, "successPolicy").setdefault("operator", "All")
    _object_at(spec, "startupPolicy").setdefault("startupPolicyOrder", "AnyOrder")
    network = _object_at(spec, "network")
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated_job in _objects(spec.get("replicatedJobs")):
        if "template" in replicated_job:
            job = _object_at(_object_at(replicated_job, "template"), "spec")
            job.setdefault("completionMode", "Indexed")
            pod = _object_at(_object_at(job, "template"), "spec")
            pod["restartPolicy"] = pod.get("restartPolicy") or "OnFailure"
    if "failurePolicy" in spec:
        for number, rule in enumerate(_objects(_object_at(spec, "failurePolicy").get("rules"))):
            rule["name"] = rule.get("name") or f"failurePolicyRule{number}"


def _object_at(holder: JsonObject, field: str) -> JsonObject:
    """Return the object in a field, a new one if the field is absent; something else in its place is not touched."""
    value = holder.setdefault(field, {})
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def validate_create(jobset: JsonObject) -> list[FieldError]:
    """Return what is wrong with a new JobSet."""
    checks: tuple[Callable[[JsonObject], Iterator[FieldError]], ...] = (
        _check_startup, _check_network, _check_manager, _check_names, _check_dependencies, _check_targets,
        _check_rules, _check_gates, _check_coordinator, _check_claims,
    )  # fmt: skip
    return [error for check in checks for error in check(jobset)]


def validate_update(jobset: JsonObject, old: JsonObject, *, elastic: bool = False) -> list[FieldError]:
    """Return what is wrong with a change: only where pods run may change, and only while the JobSet is suspended.

    An elastic one may change its size as well, but nothing else at the same time.
    """
    errors = list[FieldError]()
    new_jobs, old_jobs = jobset["spec"].get("replicatedJobs") or [], old["spec"].get("replicatedJobs") or []
    if elastic and new_jobs != old_jobs and list(map(_unsized, new_jobs)) == list(map(_unsized, old_jobs)):
        errors += _check_sizes(new_jobs, old_jobs, ended=bool((old.get("status") or {}).get("terminalState")))
        new_jobs = old_jobs
    if jobset["spec"].get("suspend") or old["spec"].get("suspend"):
        known = {each["name"] for each in old_jobs}
        new_jobs = [_masked(each) if each["name"] in known else each for each in new_jobs]
        old_jobs = [_masked(each) for each in old_jobs]
    if new_jobs != old_jobs:
        errors.append(FieldError("spec.replicatedJobs", "Invalid", new_jobs, "field is immutable"))
    if jobset["spec"].get("managedBy") != old["spec"].get("managedBy"):
        errors.append(FieldError("spec.managedBy", "Invalid", jobset["spec"].get("managedBy"), "field is immutable"))
    return errors


def _unsized(replicated_job: JsonObject) -> JsonObject:
    unsized: JsonObject = copy_tree(replicated_job)
    spec = unsized["template"]["spec"]
    if spec.get("completionMode") == "Indexed":
        spec.pop("parallelism", None)
        spec.pop("completions", None)
    return unsized


def _check_sizes(new_jobs: list[JsonObject], old_jobs: list[JsonObject], *, ended: bool) -> Iterator[FieldError]:
    """Check new sizes; as JobSet does, this takes one without completions."""
    for position, (new, old) in enumerate(zip(new_jobs, old_jobs, strict=True)):
        path, spec = f"spec.replicatedJobs[{position}].template.spec", new["template"]["spec"]
        if new == old:
            continue
        if ended:
            detail = "Cannot mutate parallelism or completions when JobSet is in a terminal state (Completed or Failed)"
            yield FieldError(path, "Forbidden", detail=detail)
            continue
        for name in ("parallelism", "completions"):
            if spec.get(name, 1) < 1:
                yield FieldError(f"{path}.{name}", "Invalid", spec[name], f"{name} must be >= 1")
        if spec.get("completions") is not None and spec["completions"] != spec.get("parallelism", 1):
            detail = "completions must be equal to parallelism for Elastic Indexed Jobs"
            yield FieldError(f"{path}.completions", "Invalid", spec["completions"], detail)


def _masked(replicated_job: JsonObject) -> JsonObject:
    masked: JsonObject = copy_tree(replicated_job)
    template = masked["template"]["spec"]["template"]
    metadata = template.get("metadata") or {}
    template["metadata"] = {field: value for field, value in metadata.items() if field not in _SCHEDULING_METADATA}
    template["spec"] = {field: value for field, value in template["spec"].items() if field not in _SCHEDULING_SPEC}
    return masked


def _plain(message: str) -> FieldError:
    """Wrap an error that JobSet reports about the object as a whole."""
    return FieldError("", "InternalError", None, message)


def _replicated_jobs(jobset: JsonObject) -> list[JsonObject]:
    every: list[JsonObject] = jobset["spec"].get("replicatedJobs") or []
    return every


def _check_startup(jobset: JsonObject) -> Iterator[FieldError]:
    in_order = jobset["spec"]["startupPolicy"].get("startupPolicyOrder") == "InOrder"
    if in_order and any("dependsOn" in each for each in _replicated_jobs(jobset)):
        yield FieldError("spec", "Invalid", OMITTED, "StartupPolicy and DependsOn APIs are mutually exclusive")


def _check_network(jobset: JsonObject) -> Iterator[FieldError]:
    subdomain = jobset["spec"]["network"].get("subdomain")
    if not subdomain:
        return
    if len(subdomain) > _LABEL_LIMIT:
        yield _plain(".spec.network.subdomain is too long, must be less than 63 characters")
        return
    for problem in [*dns_subdomain(subdomain), *dns_label_1035(subdomain)]:
        yield FieldError("spec.network.subdomain", "Invalid", subdomain, problem)


def _check_manager(jobset: JsonObject) -> Iterator[FieldError]:
    manager = jobset["spec"].get("managedBy")
    if manager is None:
        return
    domain, slash, path = manager.partition("/")
    if not slash or not path or dns_subdomain(domain):
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield FieldError("spec.managedBy", "Invalid", manager, detail)
    if len(manager) > _LABEL_LIMIT:
        yield FieldError("spec.managedBy", "TooLong", manager, f"may not be more than {_LABEL_LIMIT} bytes")


def _check_names(jobset: JsonObject) -> Iterator[FieldError]:
    """Check the longest names that follow from the JobSet, and its size."""
    for replicated_job in _replicated_jobs(jobset):
        spec, replicas = replicated_job["template"]["spec"], replicas_of(replicated_job)
        if replicas * spec.get("parallelism", 1) > _MAX_INT32:
            yield _plain(
                f"the product of replicas and parallelism must not exceed {_MAX_INT32} "
                f"for replicatedJob '{replicated_job['name']}'"
            )
        group = replicated_job.get("groupName", "default")
        for problem in dns_label_1035(group):
            yield FieldError("spec.replicatedJobs.groupName", "Invalid", group, problem)
        longest = job_name(jobset["metadata"].get("name", ""), replicated_job["name"], max(replicas - 1, 0))
        yield from _check_generated(longest, "job")
        if spec.get("completionMode") == "Indexed" and spec.get("completions") is not None:
            yield from _check_generated(f"{longest}-{max(spec['completions'] - 1, 0)}-abcde", "pod")


def _check_generated(name: str, what: str) -> Iterator[FieldError]:
    problems = dns_label_1035(name)
    if len(name) > _LABEL_LIMIT:
        yield _plain(f"JobSet name is too long, {what} names generated for this JobSet will exceed 63 characters")
    elif problems:
        yield _plain(f"{what} name {name!r} generated for this JobSet is not valid: {problems[0]}")


def _check_dependencies(jobset: JsonObject) -> Iterator[FieldError]:
    """Check that dependencies point backwards, so that there is no circle; a self-dependency would be one, too."""
    seen: set[str] = set()
    for position, replicated_job in enumerate(_replicated_jobs(jobset)):
        dependencies = replicated_job.get("dependsOn") or ()
        if position == 0 and dependencies:
            yield _plain("DependsOn can't be set for the first ReplicatedJob")
        else:
            for dependency in dependencies:
                if dependency["name"] not in seen:
                    yield _plain(
                        f"replicatedJob: {replicated_job['name']} cannot depend on replicatedJob: {dependency['name']}"
                    )
        seen.add(replicated_job["name"])


def _check_targets(jobset: JsonObject) -> Iterator[FieldError]:
    known = {each["name"] for each in _replicated_jobs(jobset)}
    for target in jobset["spec"]["successPolicy"].get("targetReplicatedJobs") or ():
        if target not in known:
            yield _plain(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs")
    for rule in _rules(jobset):
        for target in rule.get("targetReplicatedJobs") or ():
            if target not in known:
                yield _plain(
                    f"invalid replicatedJob name '{target}' in failure policy does not appear in .spec.ReplicatedJobs"
                )


def _rules(jobset: JsonObject) -> list[JsonObject]:
    rules: list[JsonObject] = (jobset["spec"].get("failurePolicy") or {}).get("rules") or []
    return rules


def _check_rules(jobset: JsonObject) -> Iterator[FieldError]:
    seen: set[str] = set()
    for number, rule in enumerate(_rules(jobset)):
        path, name = f"spec.failurePolicy.rules[{number}]", rule.get("name", "")
        if not 1 <= len(name) <= _RULE_NAME_LIMIT:
            yield FieldError(f"{path}.name", "Invalid", name, f"must have between 1 and {_RULE_NAME_LIMIT} characters")
        elif not _RULE_NAME.fullmatch(name):
            yield FieldError(f"{path}.name", "Invalid", name, f"must match '^{_RULE_NAME.pattern}$'")
        if name in seen:
            yield FieldError(f"{path}.name", "Duplicate", name)
        seen.add(name)
        for reason in rule.get("onJobFailureReasons") or ():
            if reason not in _FAILURE_REASONS:
                detail = f"supported values: {', '.join(_FAILURE_REASONS)}"
                yield FieldError(f"{path}.onJobFailureReasons", "NotSupported", reason, detail)
        for pattern in rule.get("onJobFailureMessagePatterns") or ():
            try:
                re.compile(pattern)
            except re.error as error:
                detail = f"not a regular expression: {error}"
                yield FieldError(f"{path}.onJobFailureMessagePatterns", "Invalid", pattern, detail)


def _check_gates(jobset: JsonObject) -> Iterator[FieldError]:
    """Refuse what JobSet has behind feature gates that are off by default."""
    policy = jobset["spec"].get("failurePolicy") or {}
    if policy.get("restartStrategy") == "InPlaceRestart":
        yield _plain(
            "failure policy restart strategy InPlaceRestart needs the feature gate InPlaceRestart, which is off"
        )
    for rule in _rules(jobset):
        if rule["action"].startswith("RestartJob") and not rule["action"].startswith("RestartJobSet"):
            yield _plain(f"failure policy action {rule['action']} needs the feature gate RestartJob, which is off")


def _check_coordinator(jobset: JsonObject) -> Iterator[FieldError]:
    coordinator = jobset["spec"].get("coordinator")
    if coordinator is None:
        return
    name = coordinator.get("replicatedJob", "")
    replicated_job = next((each for each in _replicated_jobs(jobset) if each["name"] == name), None)
    if replicated_job is None:
        yield _plain(f"coordinator replicatedJob {name} does not exist")
        return
    spec = replicated_job["template"]["spec"]
    if not 0 <= coordinator.get("jobIndex", 0) < replicas_of(replicated_job):
        yield _plain(f"coordinator job index {coordinator.get('jobIndex', 0)} is invalid for replicatedJob {name}")
    if spec.get("completionMode") != "Indexed" or spec.get("completions") is None:
        yield _plain(f"coordinator replicatedJob {name} must be Indexed and set completions")
    elif not 0 <= coordinator.get("podIndex", 0) < spec["completions"]:
        yield _plain(f"coordinator pod index {coordinator.get('podIndex', 0)} is invalid for replicatedJob {name}")
    endpoint = coordinator_endpoint(jobset)
    for problem in label_value(endpoint):
        yield FieldError("spec.coordinator", "Invalid", endpoint, problem)


def _check_claims(jobset: JsonObject) -> Iterator[FieldError]:
    pods = [each["template"]["spec"]["template"]["spec"] for each in _replicated_jobs(jobset)]
    containers = [each for pod in pods for each in [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    volumes = {volume["name"] for pod in pods for volume in pod.get("volumes") or ()}
    seen: set[str] = set()
    path = "spec.volumeClaimPolicies"
    for template, _ in claim_templates(jobset):
        metadata = template.get("metadata") or {}
        name = metadata.get("name", "")
        if metadata.get("namespace"):
            yield FieldError(path, "Invalid", OMITTED, "namespace cannot be set for VolumeClaimPolicies templates")
        if not name:
            yield FieldError(
                f"{path}.templates.metadata.name", "Required", detail="a volume claim template needs a name"
            )
            continue
        if name in seen:
            yield FieldError(f"{path}.templates.metadata.name", "Duplicate", name)
        seen.add(name)
        if len(claim_name(jobset, template)) > _LABEL_LIMIT:
            detail = f"the claim {claim_name(jobset, template)} would exceed {_LABEL_LIMIT} characters"
            yield FieldError(f"{path}.templates.metadata.name", "Invalid", name, detail)
        if name not in mounted:
            yield FieldError(f"{path}.templates.metadata.name", "Invalid", name, "no container mounts this volume")
        if name in volumes:
            yield FieldError(f"{path}.templates.metadata.name", "Invalid", name, "a volume of this name exists already")
