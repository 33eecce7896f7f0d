"""The whole of the kit: the attributes of a kind, then each sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from trainmaster.runtime.jobs.conformance.calls import unkept
from trainmaster.runtime.jobs.conformance.definitions import check_definition
from trainmaster.runtime.jobs.conformance.oddities import check_odd, oddities
from trainmaster.runtime.jobs.conformance.pods import check_objects, check_pods
from trainmaster.runtime.jobs.conformance.statuses import POLICIES, check_statuses
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.names import dns_label, dns_label_1035, dns_subdomain, label_value

_LONGEST_PORT_NAME: Final = 15
"""Characters of the name of a container's port (IANA_SVC_NAME)."""


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
        definition: Its CustomResourceDefinition.
        options: Its options of the configuration.
        cluster_domain: The domain of the cluster.

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
