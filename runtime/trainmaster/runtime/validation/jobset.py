"""What JobSet, Job and Pod validation would refuse of a JobSet, found before anything is built.

These are the rules that a runtime, its patches and the settings of a TrainJob can break together, and that a user
otherwise learns of from an event, after the fact:

- U3: the names of Jobs and pods follow from that of the TrainJob, and must be short enough for all of them;
- what two patches, or a patch and the runtime, give one thing twice: sources of a volume or a variable;
- names, labels, mounts, amounts, and references between ReplicatedJobs.

The JobSet has been built by plugins from a template that passed the schema of runtimes; what has an odd shape is
refused as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from trainmaster.runtime.api.constants import JOBSET_KIND
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_label_1035, label_value, qualified_name
from trainmaster.runtime.quantity import Quantity, QuantityError

_LONGEST_NAME: Final = 63
_POD_SUFFIX: Final = "-abcde"
"""As long as what a Job adds to the names of its pods."""

_MOST_PODS: Final = 100_000  # of an Indexed Job
_LARGEST_PORT: Final = 65_535
_MAX_INT32: Final = 2**31 - 1
_OVERCOMMITTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container may request less than its limit."""

_VARIABLE_NAME: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)

Problem = tuple[str, str]
"""A path below the JobSet, and what is wrong there."""


def validate_jobset(obj: JsonObject, runtime_template: JsonObject) -> Iterator[FieldError]:
    """Validate a JobSet that a TrainJob becomes; other kinds pass.

    Args:
        obj: The JobSet.
        runtime_template: The JobSetSpec that it was made from. Mounts of volumes that it lacks are its author's to
            answer for: an admission plugin of the cluster may add the volumes.
    """
    if obj["kind"] != JOBSET_KIND:
        return
    name, too_long = obj["metadata"]["name"], None
    try:
        too_long = _too_long(name, obj["spec"])
        problems = [*_check_metadata(obj, ""), *_check_jobset(obj["spec"], _mounted(runtime_template))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problems = [("spec", f"is not shaped like that of a JobSet: {type(error).__name__}: {error}")]
    if too_long is not None:
        yield FieldError("metadata.name", too_long, value=name)
    for path, problem in problems:
        detail = f"the JobSet that this TrainJob becomes would be refused: {path}: {problem}"
        yield FieldError("spec", detail, type="Forbidden")


def _too_long(name: str, spec: JsonObject) -> str | None:
    """Find the longest name of a Job or pod; Indexed Jobs name their pods after their indexes."""
    longest, what = "", ""
    for replicated_job in spec.get("replicatedJobs") or ():
        job_spec = replicated_job["template"]["spec"]
        job = f"{name}-{replicated_job['name']}-{max(replicated_job.get('replicas', 1) - 1, 0)}"
        pod = f"{job}-{max(_number(job_spec, 'completions') - 1, 0)}{_POD_SUFFIX}"
        for each, kind in ((job, "Job"), (pod, "pod")):
            if len(each) > len(longest) and (kind == "Job" or job_spec.get("completionMode") != "NonIndexed"):
                longest, what = each, kind
    excess = len(longest) - _LONGEST_NAME
    if excess <= 0:
        return None
    return (
        f"the name of a {what}, for instance {longest}, would have {len(longest)} characters, and {_LONGEST_NAME} are "
        f"possible; make the name of the TrainJob at least {excess} characters shorter"
    )


def _mounted(template: JsonObject) -> set[str]:
    """The names of all volumes that a runtime mounts."""
    pods = [job["template"]["spec"]["template"]["spec"] for job in template.get("replicatedJobs") or ()]
    containers = [each for pod in pods for each in [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]]
    return {mount.get("name", "") for container in containers for mount in container.get("volumeMounts") or ()}


def _number(holder: JsonObject, field: str) -> int:
    value = holder.get(field, 1)
    return value if isinstance(value, int) else 1


def _check_jobset(spec: JsonObject, mounted: set[str]) -> Iterator[Problem]:
    jobs: list[JsonObject] = spec.get("replicatedJobs") or []
    names = [job["name"] for job in jobs]
    yield from _unique("spec.replicatedJobs", jobs, _name)
    subdomain = (spec.get("network") or {}).get("subdomain")
    if subdomain:
        yield from _each("spec.network.subdomain", dns_label_1035(subdomain))
    for target in (spec.get("successPolicy") or {}).get("targetReplicatedJobs") or ():
        if target not in names:
            yield "spec.successPolicy.targetReplicatedJobs", f'there is no ReplicatedJob "{target}"'
    for rule in (spec.get("failurePolicy") or {}).get("rules") or ():
        for target in rule.get("targetReplicatedJobs") or ():
            if target not in names:
                yield "spec.failurePolicy.rules", f'there is no ReplicatedJob "{target}"'
    claimed = {
        (template.get("metadata") or {}).get("name", "")
        for policy in spec.get("volumeClaimPolicies") or ()
        for template in policy.get("templates") or ()
    }
    mountable = mounted | claimed
    for position, job in enumerate(jobs):
        path = f"spec.replicatedJobs[{position}]"
        yield from _check_replicated_job(job, path, before=names[:position])
        yield from _check_pod(job["template"]["spec"]["template"], f"{path}.template.spec.template", mountable)


def _check_replicated_job(job: JsonObject, path: str, *, before: list[str]) -> Iterator[Problem]:
    for problem in dns_label(job["name"]):
        yield f"{path}.name", problem
    for dependency in job.get("dependsOn") or ():
        if dependency["name"] not in before:
            yield (
                f"{path}.dependsOn",
                f'must name a ReplicatedJob that comes earlier, and "{dependency["name"]}" does not',
            )
    replicas, job_spec = job.get("replicas", 1), job["template"]["spec"]
    if replicas < 0:
        yield f"{path}.replicas", "must be greater than or equal to 0"
    parallelism = _number(job_spec, "parallelism")
    if parallelism > _MOST_PODS and job_spec.get("completionMode") != "NonIndexed":
        yield (
            f"{path}.template.spec.parallelism",
            f"must be less than or equal to {_MOST_PODS} when completionMode is Indexed",
        )
    if replicas * parallelism > _MAX_INT32:
        yield path, f"replicas times parallelism must not exceed {_MAX_INT32}"
    yield from _check_metadata(job["template"], f"{path}.template")


def _check_pod(template: JsonObject, path: str, mountable: set[str]) -> Iterator[Problem]:
    yield from _check_metadata(template, path)
    spec, path = template["spec"], f"{path}.spec"
    containers: list[JsonObject] = spec.get("containers") or []
    init_containers: list[JsonObject] = spec.get("initContainers") or []
    volumes: list[JsonObject] = spec.get("volumes") or []
    if not containers:
        yield f"{path}.containers", "Required value"
    if spec.get("restartPolicy", "Never") not in ("Never", "OnFailure"):
        yield f"{path}.restartPolicy", "must be Never or OnFailure"
    yield from _labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from _unique(f"{path}.containers", [*containers, *init_containers], _name)
    yield from _unique(f"{path}.volumes", volumes, _name)
    for position, volume in enumerate(volumes):
        yield from _check_volume(volume, f"{path}.volumes[{position}]")
    mountable = mountable | {volume["name"] for volume in volumes}
    for field, members in (("initContainers", init_containers), ("containers", containers)):
        for position, container in enumerate(members):
            yield from _check_container(container, f"{path}.{field}[{position}]", mountable)


def _check_volume(volume: JsonObject, path: str) -> Iterator[Problem]:
    yield from _each(f"{path}.name", dns_label(volume["name"]))
    sources = sorted(volume.keys() - {"name"})
    if len(sources) > 1:
        yield path, f"may not specify more than 1 volume type, and has {', '.join(sources)}"
    # Without any source it is an emptyDir.


def _check_container(container: JsonObject, path: str, mountable: set[str]) -> Iterator[Problem]:
    yield from _each(f"{path}.name", dns_label(container["name"]))
    if not container.get("image"):
        yield f"{path}.image", "Required value"
    mounts: list[JsonObject] = container.get("volumeMounts") or []
    for position, mount in enumerate(mounts):
        if not mount.get("mountPath"):
            yield f"{path}.volumeMounts[{position}].mountPath", "Required value"
        if mount.get("name") not in mountable:
            yield f"{path}.volumeMounts[{position}].name", f'Not found: "{mount.get("name")}"'
    yield from _unique(f"{path}.volumeMounts", mounts, lambda mount: mount.get("mountPath"))
    yield from _check_env(container.get("env") or [], f"{path}.env")
    ports: list[JsonObject] = container.get("ports") or []
    for position, port in enumerate(ports):
        if not 1 <= port.get("containerPort", 0) <= _LARGEST_PORT:
            yield f"{path}.ports[{position}].containerPort", f"must be between 1 and {_LARGEST_PORT}"
    yield from _unique(f"{path}.ports", ports, lambda port: (port.get("containerPort"), port.get("protocol", "TCP")))
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_env(env: list[JsonObject], path: str) -> Iterator[Problem]:
    yield from _unique(path, env, _name)
    for position, variable in enumerate(env):
        name = variable["name"]
        if not name or "=" in name or not all(" " <= character <= "~" for character in name):
            yield f"{path}[{position}].name", _VARIABLE_NAME
        if variable.get("value") and variable.get("valueFrom"):
            yield f"{path}[{position}].valueFrom", "may not be specified when `value` is not empty"


def _check_resources(resources: JsonObject, path: str) -> Iterator[Problem]:
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if "/" not in name and name not in _OVERCOMMITTED and not name.startswith("hugepages-"):
                yield f"{path}.{part}[{name}]", "must be a standard resource for containers"
            if amount.nano < 0:
                yield f"{path}.{part}[{name}]", "must be greater than or equal to 0"
    for name, requested in requests.items():
        limit = limits.get(name)
        if limit is not None and requested > limit:
            yield f"{path}.requests", f"{requested} must be less than or equal to {name} limit of {limit}"
        elif limit is not None and requested != limit and not _may_differ(name):
            yield f"{path}.requests", f"{requested} must be equal to {name} limit of {limit}"
        elif limit is None and not _may_differ(name):
            yield f"{path}.limits", f"Limit must be set for non overcommitable resources: {name}"


def _amounts(resources: JsonObject, part: str) -> dict[str, Quantity]:
    try:
        return {name: Quantity.parse(value) for name, value in (resources.get(part) or {}).items()}
    except QuantityError as error:
        raise ValueError(str(error)) from error


def _may_differ(name: str) -> bool:
    return name in _OVERCOMMITTED


def _check_metadata(holder: JsonObject, path: str) -> Iterator[Problem]:
    prefix = f"{path}.metadata".removeprefix(".")
    metadata = holder.get("metadata") or {}
    yield from _labels(metadata.get("labels") or {}, f"{prefix}.labels")
    for key in metadata.get("annotations") or {}:
        yield from _each(f"{prefix}.annotations", (f"{key!r}: {problem}" for problem in qualified_name(key.lower())))


def _labels(labels: JsonObject, path: str) -> Iterator[Problem]:
    for key, value in labels.items():
        yield from _each(path, (f"{key!r}: {problem}" for problem in qualified_name(key)))
        yield from _each(path, (f"{value!r}: {problem}" for problem in label_value(value)))


def _each(path: str, problems: Iterable[str]) -> Iterator[Problem]:
    return ((path, problem) for problem in problems)


def _name(item: JsonObject) -> Any:
    return item["name"]


def _unique(path: str, items: Iterable[JsonObject], key: Callable[[JsonObject], Any]) -> Iterator[Problem]:
    seen = set()
    for item in items:
        identity = key(item)
        if identity in seen:
            yield path, f"Duplicate value: {identity!r}"
        seen.add(identity)
