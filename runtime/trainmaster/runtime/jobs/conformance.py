"""The conformance kit of job kinds: what a kind has to keep to, checked as the manager will meet it.

For the tests of kinds, ours and others':

    def test_my_kind() -> None:
        check_job_kind("myjob", [load("small.yaml"), load("everything.yaml")])

The samples are jobs as their authors write them, all of which can be admitted. From each, many odd ones are made: a
kind has to say what is wrong with them, or to make something of them, but never to raise. What is checked:

- it loads by its entry point, its attributes are such that the API server takes what is named by them, and its
  definition agrees with them;
- samples are admitted; reading a job again that was defaulted changes nothing;
- every method returns the same for the same, and changes nothing but what it is given to change;
- pods have names of their own, and keep the labels, the owner and the restart policy that they are given; the API
  server would take them, and their Services;
- what `build` returns is of kinds that `watches` has;
- whatever state replicas are in, the conditions make sense of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from trainmaster.runtime.jobs.constants import (
    ALWAYS,
    EXIT_CODE,
    FAILED,
    JOB_ROLE_LABEL,
    NEVER,
    ON_FAILURE,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
)
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job, JobKind
from trainmaster.runtime.jobs.labels import owner_reference, replica_labels
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.pods import build_pod, build_service
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.names import dns_label, dns_label_1035, dns_subdomain, label_value
from trainmaster.runtime.testing.subject import first_difference

_ODD_VALUES: Final[tuple[Any, ...]] = (None, "", "odd", -1, 0, 1.5, True, [], {}, [None], [{}], {"odd": "odd"})

MOST_PODS: Final = 3
"""Pods of a type that are built: there may be thousands."""

POLICIES: Final = (NEVER, ON_FAILURE, ALWAYS, EXIT_CODE)
_CONDITIONS: Final = (RUNNING, RESTARTING, SUCCEEDED, FAILED)
_STATES: Final = 6  # that `_states` returns

_LONGEST_PORT_NAME: Final = 15
"""Characters of the name of a container's port (IANA_SVC_NAME)."""


def unkept(job: Job, method: str, call: Callable[[], Any]) -> Iterator[str]:
    """Call a method twice: nothing of the job may change, and what comes back has to be the same."""
    before = _everything(job)
    first, second = call(), call()
    if first != second:
        yield f"{method} makes something else of the same each time"
    difference = first_difference(before, _everything(job))
    if difference:
        yield f"{method} changes the job, which others use at the same time: {difference}"


def _everything(job: Job) -> Any:
    templates = {name: spec.template for name, spec in job.replica_specs.items()}
    return copy_tree({"templates": templates, "spec": job.spec, "status": job.status, "raw": job.raw})


def check_definition(kind: JobKind, definition: JsonObject) -> Iterator[str]:
    """Return in what a definition is at odds with a kind."""
    spec, (version, place) = definition.get("spec") or {}, _version(kind, definition)
    names = spec.get("names") or {}
    for path, found, wanted in (
        ("metadata.name", (definition.get("metadata") or {}).get("name"), f"{kind.plural}.{kind.group}"),
        ("spec.group", spec.get("group"), kind.group),
        ("spec.scope", spec.get("scope"), "Namespaced"),
        ("spec.names.kind", names.get("kind"), kind.kind),
        ("spec.names.plural", names.get("plural"), kind.plural),
    ):
        yield from _unlike(path, found, wanted)
    if version is None:
        yield f"the definition has no version {kind.version} that is served and stored"
        return
    subresources = version.get("subresources") or {}
    if "status" not in subresources:
        yield f"{place}.subresources of the definition lacks status: {{}}, so nothing can be told of a job"
    for name, path in _scale(kind).items():
        yield from _unlike(f"{place}.subresources.scale.{name}", (subresources.get("scale") or {}).get(name), path)
    if "scale" in subresources and not kind.scale_type:
        yield f"{place}.subresources of the definition has scale, but the class has no scale_type"
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    for field in (("spec", kind.replica_specs_field), ("status", "conditions"), ("status", "replicaStatuses")):
        if not _has(schema, field):
            yield f"{place}.schema of the definition lacks {'.'.join(field)}, which would be dropped"


def _version(kind: JobKind, definition: JsonObject) -> tuple[JsonObject | None, str]:
    for index, version in enumerate((definition.get("spec") or {}).get("versions") or []):
        if version.get("name") == kind.version and version.get("served") and version.get("storage"):
            return version, f"spec.versions[{index}]"
    return None, ""


def _scale(kind: JobKind) -> dict[str, str]:
    if not kind.scale_type:
        return {}
    return {
        "specReplicasPath": f".spec.{kind.replica_specs_field}.{kind.scale_type}.replicas",
        "statusReplicasPath": f".status.replicaStatuses.{kind.scale_type}.active",
        "labelSelectorPath": f".status.replicaStatuses.{kind.scale_type}.selector",
    }


def _unlike(path: str, found: Any, wanted: str) -> Iterator[str]:
    if found != wanted:
        yield f"{path} of the definition is {found!r}, but the class says {wanted!r}"


def _has(schema: JsonObject, path: Sequence[str]) -> bool:
    """Tell whether a field is kept: it is described, or what is above it keeps all fields."""
    if not path or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    name, *rest = path
    below = (schema.get("properties") or {}).get(name)
    return below is not None and _has(below, rest)


def oddities(kind: JobKind, sample: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Return jobs of which one field is missing or odd: all of the spec but for templates and the run policy."""
    field = kind.replica_specs_field
    given = sample["spec"].get(field) or {}
    for what, replicas in (("without replicas", {}), ("with replicas of null", dict.fromkeys(given))):
        yield what, {**sample, "spec": {**sample["spec"], field: replicas}}
    for replica_type, value in given.items():
        rest = {name: other for name, other in given.items() if name != replica_type}
        yield f"without {replica_type}", {**sample, "spec": {**sample["spec"], field: rest}}
        lower = {**rest, replica_type.lower(): value}
        yield f"with {replica_type.lower()}", {**sample, "spec": {**sample["spec"], field: lower}}
        for count in (None, -1, 0, 1, 2):
            changed = {**given, replica_type: {**value, "replicas": count}}
            yield f"with {count} replicas of {replica_type}", {**sample, "spec": {**sample["spec"], field: changed}}
    own = {name: value for name, value in sample["spec"].items() if name not in (field, "runPolicy")}
    for path, changed in _changed(own):
        rest = {name: sample["spec"][name] for name in (field, "runPolicy") if name in sample["spec"]}
        yield path, {**sample, "spec": {**changed, **rest}}


def _changed(node: Any, path: str = "spec") -> Iterator[tuple[str, Any]]:
    """Return a tree again and again, each time without a field, or with another value of it."""
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        rest = {other: each for other, each in node.items() if other != name}
        yield f"without {path}.{name}", rest
        for odd in _ODD_VALUES:
            yield f"with {path}.{name} {odd!r}", {**rest, name: odd}
        for what, changed in _changed(value, f"{path}.{name}"):
            yield what, {**node, name: changed}


def check_odd(kind: JobKind, obj: JsonObject) -> Iterator[str]:
    """Admit an odd job, and make everything of it that the manager would if it is admitted."""
    stored = copy_tree(obj)
    try:
        result = validate_job(kind, obj, None)
        if obj != stored:
            yield "validate or default changes the object that was given"
        if not result.allowed:
            return
        job = parse_job(kind, obj)
        for replica_type, index, _ in built(job):
            if kind.has_services:
                build_service(job, replica_type, index)
        pods = [pod for _, _, pod in built(job)]
        list(kind.build(job, pods, NO_LISTERS))
        for counts in alike_states(job):
            by_type = {each: list(pods_in(job, each, status)) for each, status in counts.items()}
            list(kind.update_job_status(job, kind.replica_statuses(job, counts), by_type))
    except Exception as error:
        yield f"raises {type(error).__name__}: {error}; refuse it in validate, or make something of it"


def built(job: Job) -> Iterator[tuple[str, int, JsonObject]]:
    """Build the pods of a job, the first ones of each type: each with its type and index."""
    for replica_type, spec in job.replica_specs.items():
        for index in range(min(spec.replicas, MOST_PODS)):
            yield replica_type, index, build_pod(job, replica_type, index)


def check_pods(job: Job) -> Iterator[str]:
    """Return what is wrong with the pods and Services of a job."""
    yield from unkept(job, "set_cluster_spec", lambda: list(built(job)))
    names: dict[str, str] = {}
    for replica_type, index, pod in built(job):
        metadata, place = pod.get("metadata") or {}, f"the pod {index} of {replica_type}"
        name = metadata.get("name")
        if name != job.kind.pod_name(job, replica_type, index):
            yield f"set_cluster_spec changes the name of {place}; give it by pod_name"
            continue
        if name in names:
            yield f"pod_name gives {place} the name of {names[name]}, {name!r}"
        names[name] = place
        yield from (f"pod_name of {place}, {name!r}: {problem}" for problem in dns_label(name))
        if metadata.get("namespace") != job.namespace or metadata.get("ownerReferences") != [owner_reference(job)]:
            yield f"set_cluster_spec changes namespace or owner of {place}"
        labels = replica_labels(job, replica_type, index)
        if {key: value for key, value in (metadata.get("labels") or {}).items() if key in labels} != labels:
            yield f"set_cluster_spec changes labels of {place} by which it is found"
        yield from _pod_spec(job, replica_type, pod["spec"], place)
        if job.kind.has_services:
            yield from _service(build_service(job, replica_type, index), place)
    leading = [pod for _, _, pod in built(job) if JOB_ROLE_LABEL in pod["metadata"]["labels"]]
    if not leading and job.kind.leading_type(job) == job.kind.leading_types[0]:
        yield "is_master_role is true of no pod, so nobody knows whose log tells of the job"


def _pod_spec(job: Job, replica_type: str, spec: JsonObject, place: str) -> Iterator[str]:
    replica = job.replica_specs[replica_type]
    if spec.get("restartPolicy") != (NEVER if replica.restart_policy == EXIT_CODE else replica.restart_policy):
        yield f"set_cluster_spec changes the restart policy of {place}"
    template = replica.template.get("spec") or {}
    for given, made in zip(template.get("containers") or [], spec.get("containers") or [], strict=False):
        if (given["name"], given.get("image")) != (made.get("name"), made.get("image")):
            yield f"set_cluster_spec changes name or image of the container {given['name']!r} of {place}"
    if len(spec.get("containers") or []) < len(template.get("containers") or []):
        yield f"set_cluster_spec takes containers from {place}"


def _service(service: JsonObject, place: str) -> Iterator[str]:
    for port in service["spec"]["ports"]:
        yield from (f"the Service of {place}, port {port['name']!r}: {each}" for each in dns_label(port["name"]))
    yield from (f"the Service of {place}: {each}" for each in dns_label_1035(service["metadata"]["name"]))


def check_objects(job: Job) -> Iterator[str]:
    """Return what is wrong with the other objects of a job."""
    watches = {(each.api_version, each.kind): each for each in job.kind.watches()}
    pods = [pod for _, _, pod in built(job)]

    def objects() -> list[JsonObject]:
        built = job.kind.build(job, pods, NO_LISTERS)
        # What is created and never changed may be random.
        return [each for each in built if not _is_created_only(each)]

    def _is_created_only(obj: JsonObject) -> bool:
        watch = watches.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        return watch is not None and watch.creates_only

    yield from unkept(job, "build", objects)
    for obj in job.kind.build(job, pods, NO_LISTERS):
        what = f"{obj.get('apiVersion')} {obj.get('kind')}"
        watch = watches.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        if watch is None or not watch.writes:
            yield f"build returns a {what}: watches must have it, with writes=True"
        elif watch.namespaced:
            yield from (f"build names a {what}: {each}" for each in dns_subdomain(obj["metadata"].get("name", "")))
        try:
            json.dumps(obj, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"build returns a {what} that is no JSON: {error}"


def check_statuses(job: Job) -> Iterator[str]:
    """Return what is wrong with the conditions of a job, under each restart policy."""
    for policy, counts in itertools.product(POLICIES, _mixed_states(job)):
        yield from _status(_under(job, policy), counts)


def _under(job: Job, policy: str) -> Job:
    raw = copy_tree(job.raw)
    for replica in raw["spec"][job.kind.replica_specs_field].values():
        replica["restartPolicy"] = policy
    return parse_job(job.kind, raw)


def alike_states(job: Job) -> Iterator[Mapping[str, ReplicaStatus]]:
    """Return states of the replicas: those of all types are in the same."""
    states = {replica_type: _states(spec.replicas) for replica_type, spec in job.replica_specs.items()}
    for place in range(_STATES):
        yield {each: state[place] for each, state in states.items()}


def _mixed_states(job: Job) -> Iterator[Mapping[str, ReplicaStatus]]:
    """Return states of the replicas: those of all types are in the same, but for one type."""
    states = {replica_type: _states(spec.replicas) for replica_type, spec in job.replica_specs.items()}
    seen = set()
    for common, other, replica_type in itertools.product(range(_STATES), range(_STATES), states):
        counts = {each: state[other if each == replica_type else common] for each, state in states.items()}
        if (key := tuple(counts.values())) not in seen:
            seen.add(key)
            yield counts


def _states(replicas: int) -> list[ReplicaStatus]:
    """Return the states that replicas of a type may be in: all alike, or one of them otherwise."""
    return [
        ReplicaStatus(),
        ReplicaStatus(active=replicas),
        ReplicaStatus(succeeded=replicas),
        ReplicaStatus(failed=replicas),
        ReplicaStatus(active=max(replicas - 1, 0), failed=min(replicas, 1)),
        ReplicaStatus(active=max(replicas - 1, 0), succeeded=min(replicas, 1)),
    ]


def _status(job: Job, counts: Mapping[str, ReplicaStatus]) -> Iterator[str]:
    kind = job.kind
    replicas = kind.replica_statuses(job, counts)
    pods = {each: list(pods_in(job, each, status)) for each, status in counts.items()}
    updates: list[ConditionUpdate] = []

    def call() -> list[ConditionUpdate]:
        updates[:] = kind.update_job_status(job, replicas, pods)
        return list(updates)

    shown = ", ".join(
        f"{each}: {status.active} active, {status.succeeded} succeeded, {status.failed} failed"
        for each, status in counts.items()
    )
    place = f"update_job_status ({shown})"
    yield from unkept(job, place, call)
    types = [each.type for each in updates]
    yield from (
        f"{place} sets {each!r}, which is none of {', '.join(_CONDITIONS)}" for each in {*types} - {*_CONDITIONS}
    )
    yield from (f"{place} sets {each.type} without a message" for each in updates if not each.message)
    if SUCCEEDED in types and FAILED in types:
        yield f"{place} sets Succeeded and Failed"
    known = [status for each, status in counts.items() if each in kind.replica_types]
    if types and not any(status.active or status.succeeded or status.failed for status in known) and job.total_replicas:
        yield f"{place} sets {', '.join(types)} before anything runs"
    wanted = {each: job.replicas(each) for each in counts if each in kind.replica_types}
    is_done = any(wanted.values()) and all(counts[each].succeeded == count for each, count in wanted.items())
    if is_done and SUCCEEDED not in types:
        yield f"{place} does not set Succeeded, though all replicas have"


def pods_in(job: Job, replica_type: str, status: ReplicaStatus) -> Iterator[JsonObject]:
    """Build pods of a type that are in the given state."""
    phases = ["Succeeded"] * status.succeeded + ["Failed"] * status.failed + ["Running"] * status.active
    for index, phase in enumerate(phases[:MOST_PODS]):
        code = {"Succeeded": 0, "Failed": 1}.get(phase)
        state: JsonObject = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        pod = build_pod(job, replica_type, index)
        statuses = [{"name": each["name"], "state": state} for each in pod["spec"]["containers"]]
        yield {**pod, "status": {"phase": phase, "containerStatuses": statuses}}


def check_job_kind(
    name: str,
    samples: Iterable[JsonObject],
    *,
    definition: JsonObject | None = None,
    options: Mapping[str, Any] | None = None,
    cluster_domain: str = "",
) -> JobKind:
    """Check a kind, and return it, as it was loaded.

    Args:
        name: The name of its entry point, for instance `pytorchjob`.
        samples: Jobs that can be admitted, one at least, each with another part of what the kind can do.

    Raises:
        AssertionError: It does not keep to the interface; the message has all that was found.
        PluginInvalid: It cannot be loaded.
    """
    (kind,) = load_job_kinds(enabled=[name], options={name: options or {}}, cluster_domain=cluster_domain)
    problems = nonconformities(kind, samples, definition)
    if problems:
        raise AssertionError("\n".join([f"{kind.kind} does not conform:", *problems]))
    return kind


def nonconformities(kind: JobKind, samples: Iterable[JsonObject], definition: JsonObject | None = None) -> list[str]:
    """Return all that keeps a kind from being used, with the same samples: a line for each problem; none is fine."""
    problems = _problems(kind, [copy_tree(sample) for sample in samples])
    if definition is not None:
        problems = chain(check_definition(kind, definition), problems)
    return list(dict.fromkeys(problems))


def _problems(kind: JobKind, samples: Sequence[JsonObject]) -> Iterator[str]:
    yield from _attributes(kind)
    if not samples:
        yield "there are no samples"
    for number, sample in enumerate(samples):
        place = f"sample {number} ({(sample.get('metadata') or {}).get('name', 'without a name')})"
        sample.setdefault("metadata", {}).setdefault("uid", "00000000-0000-0000-0000-000000000000")
        sample["metadata"].setdefault("namespace", "default")
        refused = _refusal(kind, sample, place)
        if refused:
            yield refused
            continue
        yield from (f"{place}: {problem}" for problem in _sample(kind, sample))
        for what, odd in oddities(kind, sample):
            yield from (f"{place}, {what}: {problem}" for problem in check_odd(kind, odd))


def _attributes(kind: JobKind) -> Iterator[str]:
    for attribute, value, problems in (
        ("plural", kind.plural, dns_label_1035(kind.plural)),
        ("group", kind.group, dns_subdomain(kind.group)),
        ("version", kind.version, dns_label_1035(kind.version)),
        ("controller_name", kind.controller_name, label_value(kind.controller_name)),
        ("container_name", kind.container_name, dns_label(kind.container_name)),
    ):
        yield from (f"{attribute} {value!r}: {problem}" for problem in problems)
    if kind.port_name and (len(kind.port_name) > _LONGEST_PORT_NAME or dns_label(kind.port_name)):
        yield f"port_name {kind.port_name!r}: must be a label of at most {_LONGEST_PORT_NAME} characters"
    if kind.port_name and not 1 <= kind.port <= 65535:
        yield f"port {kind.port}: must be between 1 and 65535"
    lower = [each.lower() for each in kind.replica_types]
    if len(set(lower)) < len(lower):
        yield f"replica_types {kind.replica_types}: must differ in more than case, of which pods' names know nothing"
    if kind.default_restart_policy not in POLICIES:
        yield f"default_restart_policy {kind.default_restart_policy!r}: must be one of {', '.join(POLICIES)}"


def _refusal(kind: JobKind, sample: JsonObject, place: str) -> str:
    if sample.get("kind") != kind.kind or sample.get("apiVersion") != kind.api_version:
        return f"{place}: must be of kind {kind.kind} of {kind.api_version}"
    result = validate_job(kind, copy_tree(sample), None)
    return "" if result.allowed else f"{place}: is not admitted: {result.message}"


def _sample(kind: JobKind, sample: JsonObject) -> Iterator[str]:
    stored = copy_tree(sample)
    job = parse_job(kind, sample)
    if sample != stored:
        yield "default changes the object that was given; it may change job.spec only"
    again = parse_job(kind, {**sample, "spec": {**sample["spec"], **job.spec}})
    if again.spec != job.spec:
        yield f"default changes what it has made itself, from {job.spec} to {again.spec}"
    yield from unkept(job, "validate", lambda: [str(each) for each in kind.validate(job, job)])
    yield from check_pods(job)
    yield from check_objects(job)
    yield from check_statuses(job)
