"""Odd jobs, made of a sample: a kind refuses them, or makes something of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainmaster.runtime.jobs.conformance.pods import built
from trainmaster.runtime.jobs.conformance.statuses import alike_states, pods_in
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.pods import build_service
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import NO_LISTERS

_ODD_VALUES: Final[tuple[Any, ...]] = (None, "", "odd", -1, 0, 1.5, True, [], {}, [None], [{}], {"odd": "odd"})


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
