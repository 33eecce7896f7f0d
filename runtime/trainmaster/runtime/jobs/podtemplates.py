"""What the API server would refuse, or do otherwise than its author thinks, of the pods and Services of a job.

One pod of each type is built, and judged as those of TrainJobs are. A contradiction is refused for certain; what is
merely missing may be added by an admission plugin of the cluster, and is a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label_1035
from trainmaster.runtime.validation.job import check_pod_template
from trainmaster.runtime.validation.problems import Consequence

_LONGEST_NAME: Final = 63
"""Characters of the name of a Service."""

_FEW: Final = 10
_MOST_TYPES: Final = 20
"""Of replicas that are looked at; no kind has so many, but one may admit types that it does not know."""

_REPEATABLE: Final = (".env", ".ports")
"""Lists of a container whose elements may repeat; JobSet refuses that, and pods do not."""


def check_names(job: Job) -> Iterator[FieldError]:
    """Check the names of the Services of each type: the longest, for its length, and what the type makes of it."""
    if not job.kind.has_services:
        return
    names = {
        replica_type: job.kind.pod_name(job, replica_type, max(replica.replicas - 1, 0))
        for replica_type, replica in job.replica_specs.items()
    }
    longest = max(names, key=lambda each: len(names[each]))
    if len(names[longest]) > _LONGEST_NAME:
        most = len(job.name) - len(names[longest]) + _LONGEST_NAME
        detail = (
            f"must be no more than {most} characters: the Service of the last {longest} would be called "
            f'"{names[longest]}", and a Service has a name of at most {_LONGEST_NAME}'
        )
        yield FieldError("metadata.name", detail, value=job.name)
        return
    for replica_type, name in names.items() if job.kind.other_types else ():
        problems = dns_label_1035(name)
        if problems:
            detail = f'its pods and Services would be called "{name}": {", ".join(problems)}'
            yield FieldError(f"spec.{job.kind.replica_specs_field}[{replica_type}]", detail, value=replica_type)


def check_pods(job: Job) -> Iterator[FieldError | FieldWarning]:
    """Check one pod of each type, with all that the operator adds to it.

    They are those of a small job: the environment of a pod may name all others, which takes as long as there are many,
    and no rule is about their number.
    """
    few = replace(
        job,
        replica_specs={
            replica_type: replace(replica, replicas=min(replica.replicas, _FEW))
            for replica_type, replica in islice(job.replica_specs.items(), _MOST_TYPES)
        },
    )
    for replica_type, replica in few.replica_specs.items():
        path = f"spec.{job.kind.replica_specs_field}[{replica_type}].template"
        try:
            pod = build_pod(few, replica_type, 0)
        except ApiTypeError as error:
            yield FieldError(path, f"no pods can be made of it: {error}", "Forbidden")
            continue
        yield from _check_pod(pod, path)
        yield from _overridden(replica.template, pod, path)


def _check_pod(pod: JsonObject, path: str) -> Iterator[FieldError | FieldWarning]:
    metadata = {name: pod["metadata"].get(name) for name in ("labels", "annotations")}
    # The policy is judged as that of the replicas, with values that a Job does not know.
    spec = {name: value for name, value in pod["spec"].items() if name != "restartPolicy"}
    try:
        problems = list(check_pod_template({"metadata": metadata, "spec": spec}, path, set()))
    except ValueError as error:
        yield FieldError(f"{path}.spec.containers", f"an amount of resources cannot be read: {error}", "Forbidden")
        return
    for problem in problems:
        if problem.consequence is Consequence.JOBSET_REFUSED and problem.path.endswith(_REPEATABLE):
            continue
        if problem.consequence is Consequence.JOB_INCOMPLETE:
            detail = "the pods will be refused, unless an admission plugin of the cluster adds what is missing"
            yield FieldWarning(problem.path, f"{detail}: {problem.detail}")
        elif problem.consequence is not Consequence.ODD:
            yield FieldError(problem.path, f"the pods would be refused: {problem.detail}", "Forbidden")
    for place, container in _containers(spec, f"{path}.spec"):
        yield from _port_names(container, place)


def _port_names(container: JsonObject, path: str) -> Iterator[FieldError]:
    names = Counter(port["name"] for port in container.get("ports") or [] if port.get("name"))
    for name in sorted(name for name, count in names.items() if count > 1):
        yield FieldError(f"{path}.ports", f'the pods would be refused: Duplicate value: "{name}"', "Forbidden")


def _overridden(template: JsonObject, pod: JsonObject, path: str) -> Iterator[FieldWarning]:
    """Find variables of the author's in whose place the operator puts its own (V1-B38)."""
    built = dict(_containers(pod["spec"], f"{path}.spec"))
    for place, container in _containers(template.get("spec") or {}, f"{path}.spec"):
        effective = {variable["name"]: variable for variable in built.get(place, {}).get("env") or []}
        variables = container.get("env") or []
        last = {variable["name"]: index for index, variable in enumerate(variables)}
        for index, variable in enumerate(variables):
            name = variable["name"]
            if effective.get(name) != variable and index == last[name]:  # else a later one of the author's counts
                yield FieldWarning(f"{place}.env[{index}]", f"{name} has no effect: the operator sets it")


def _containers(spec: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            yield f"{path}.{field}[{index}]", container
