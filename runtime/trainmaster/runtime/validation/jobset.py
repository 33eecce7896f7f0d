"""What JobSet and the API server would refuse of a JobSet, found before anything is built.

These are the rules that a runtime, its patches and the settings of a TrainJob can break together, and that a user
otherwise learns of from an event, after the fact:

- U3: the names of Jobs and pods follow from that of the TrainJob, and must be short enough for all of them;
- what two patches, or a patch and the runtime, give one thing twice: sources of a volume or a variable;
- names, labels, mounts, amounts, and references between ReplicatedJobs.

Only what is refused for certain is an error, and its text says what is refused: the JobSet, or only the Jobs that
JobSet's controller makes of it. What may come right is a warning.

The JobSet has been built by plugins from a template that passed the schema of runtimes; what has an odd shape is
refused as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from trainmaster.runtime.api.constants import JOBSET_KIND
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_label_1035
from trainmaster.runtime.validation.job import check_job_template, is_incomplete, number
from trainmaster.runtime.validation.problems import Consequence, Problem, check_metadata, each, unique

_LONGEST_NAME: Final = 63
_POD_SUFFIX: Final = "-abcde"
"""As long as what a Job adds to the names of its pods."""

_MAX_INT32: Final = 2**31 - 1

_REFUSED: Final = Consequence.JOBSET_REFUSED
_ODDITIES: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of reading something that has an odd shape."""


def validate_jobset(obj: JsonObject, runtime_template: JsonObject) -> Iterator[FieldError | FieldWarning]:
    """Validate a JobSet that a TrainJob becomes; other kinds pass.

    Args:
        runtime_template: The JobSetSpec that it was made from. Mounts of volumes that it lacks are its author's to
            answer for: an admission plugin of the cluster may add the volumes.
    """
    if obj["kind"] != JOBSET_KIND:
        return
    name = obj["metadata"]["name"]
    too_long: str | None = None
    with suppress(*_ODDITIES):
        too_long = _too_long(name, obj["spec"])
    if too_long is not None:
        yield FieldError("metadata.name", too_long, value=name)
    for problem in _check(obj, runtime_template):
        yield problem.report()


def may_lack_jobs(obj: JsonObject) -> bool:
    """Tell whether the Jobs of a JobSet may be refused although it was admitted itself; other kinds have none.

    It looks for nothing but what is missing, in an eighth of the time of a check: it is asked of every TrainJob.
    """
    if obj["kind"] != JOBSET_KIND:
        return False
    try:
        spec = obj["spec"]
        claimed = _claimed(spec)
        return any(is_incomplete(job["template"], claimed) for job in spec.get("replicatedJobs") or ())
    except _ODDITIES:
        return False  # what has an odd shape is not admitted


def _check(obj: JsonObject, runtime_template: JsonObject) -> list[Problem]:
    try:
        return [*check_metadata(obj, "", _REFUSED), *_check_jobset(obj["spec"], _mounted(runtime_template))]
    except _ODDITIES as error:
        odd = f"is not shaped like that of a JobSet: {type(error).__name__}: {error}"
        return [Problem("spec", odd, _REFUSED)]


def _too_long(name: str, spec: JsonObject) -> str | None:
    """Find the longest name of a Job or pod; Indexed Jobs name their pods after their indexes."""
    longest, what = "", ""
    for replicated_job in spec.get("replicatedJobs") or ():
        job_spec = replicated_job["template"]["spec"]
        job = f"{name}-{replicated_job['name']}-{max(replicated_job.get('replicas', 1) - 1, 0)}"
        pod = f"{job}-{max(number(job_spec, 'completions') - 1, 0)}{_POD_SUFFIX}"
        for candidate, kind in ((job, "Job"), (pod, "pod")):
            if len(candidate) > len(longest) and (kind == "Job" or job_spec.get("completionMode") != "NonIndexed"):
                longest, what = candidate, kind
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
    containers = [one for pod in pods for one in [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]]
    return {mount.get("name", "") for container in containers for mount in container.get("volumeMounts") or ()}


def _claimed(spec: JsonObject) -> set[str]:
    """The names of all volumes that JobSet's controller makes claims for."""
    return {
        (template.get("metadata") or {}).get("name", "")
        for policy in spec.get("volumeClaimPolicies") or ()
        for template in policy.get("templates") or ()
    }


def _check_jobset(spec: JsonObject, mounted: set[str]) -> Iterator[Problem]:
    jobs: list[JsonObject] = spec.get("replicatedJobs") or []
    names = {job["name"] for job in jobs}
    yield from unique("spec.replicatedJobs", jobs, lambda job: str(job["name"]))
    subdomain = (spec.get("network") or {}).get("subdomain")
    if subdomain:
        yield from each("spec.network.subdomain", dns_label_1035(subdomain), _REFUSED)
    for target in (spec.get("successPolicy") or {}).get("targetReplicatedJobs") or ():
        if target not in names:
            path = "spec.successPolicy.targetReplicatedJobs"
            yield Problem(path, f'there is no ReplicatedJob "{target}"', _REFUSED)
    for rule in (spec.get("failurePolicy") or {}).get("rules") or ():
        for target in rule.get("targetReplicatedJobs") or ():
            if target not in names:
                yield Problem("spec.failurePolicy.rules", f'there is no ReplicatedJob "{target}"', _REFUSED)
    claimed = _claimed(spec)
    before = set[str]()
    for position, job in enumerate(jobs):
        path = f"spec.replicatedJobs[{position}]"
        yield from _check_replicated_job(job, path, before=before)
        before.add(job["name"])
        yield from check_job_template(job["template"], f"{path}.template", mounted | claimed)


def _check_replicated_job(job: JsonObject, path: str, *, before: set[str]) -> Iterator[Problem]:
    yield from each(f"{path}.name", dns_label(job["name"]), _REFUSED)
    for dependency in job.get("dependsOn") or ():
        if dependency["name"] not in before:
            detail = f'must name a ReplicatedJob that comes earlier, and "{dependency["name"]}" does not'
            yield Problem(f"{path}.dependsOn", detail, _REFUSED)
    replicas = job.get("replicas", 1)
    if replicas < 0:
        detail = f"is {replicas}; JobSet makes no Job of a negative number, and does not tell correctly when all ended"
        yield Problem(f"{path}.replicas", detail, Consequence.ODD)
    if replicas * number(job["template"]["spec"], "parallelism") > _MAX_INT32:
        yield Problem(path, f"replicas times parallelism must not exceed {_MAX_INT32}", _REFUSED)
