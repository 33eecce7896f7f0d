"""Checks of what is not there: fields that may be absent, null or empty, and objects with hardly anything in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.testing.builders import KnownObjects
from trainmaster.runtime.testing.subject import REFUSALS, Problem, Subject, outcome_of, validate

_DEEPEST: Final = 14
_WHY: Final = (
    "fields of the API are optional, and labels and annotations are any text, so somebody leaves this one out or errs, "
    "and the TrainJob is blocked"
)
_ODD_MARKS: Final = {"labels": "Odd_1.x", "annotations": "{odd: [1\n"}
"""A value of each that the API server takes, and that is neither a number, nor a name, nor JSON."""

_ODD_STATUSES: Final[tuple[JsonObject, ...]] = (
    {},
    {"conditions": None},
    {"conditions": []},
    {"conditions": [{"type": "Ready"}]},
)


def stands_absent_fields(subject: Subject) -> Iterator[Problem]:
    """It makes something of a TrainJob, or rejects it, whichever field of it or of its runtime is absent."""
    framework = subject.framework()
    name, on = subject.name, subject.whole_runtime()
    told: set[str] = set()
    listers = subject.listers()
    for job in subject.whole_jobs():
        variants = [
            *((f"the TrainJob {what}", {**job, "spec": spec}, on) for what, spec in without(job["spec"], "spec")),
            *(
                (f"the TrainJob {what}", {**job, "metadata": metadata}, on)
                for what, metadata in _marked(job["metadata"])
            ),
            *((f"the runtime {what}", job, {**on, "spec": spec}) for what, spec in without(on["spec"], "spec")),
        ]
        for what, odd_job, odd_runtime in variants:
            failure = _failure(framework, odd_job, odd_runtime, listers)
            if failure is None or failure.plugin != name or str(failure) in told:
                continue
            told.add(str(failure))
            yield Problem(
                f"{what}: {failure}",
                _WHY,
                "ask with `.get(...) or {}` of JSON, compare attributes of models with None, and raise Rejected with a "
                "sentence for the user where it cannot do without",
            )


def _failure(framework: Framework, job: JsonObject, on: JsonObject, listers: Listers) -> PluginFailed | None:
    try:
        validate(framework, job, on, listers)
        outcome_of(framework, job, on, listers)
    except PluginFailed as error:
        return error
    except REFUSALS:
        return None
    return None


def without(node: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield a tree again and again: each time one field is left out, null or empty, or one item of a list is."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        for key, value in node.items():
            rest = {name: each for name, each in node.items() if name != key}
            yield f"without {path}.{key}", rest
            yield f"with {path}.{key} null", {**node, key: None}
            if value and isinstance(value, dict | list):
                yield f"with {path}.{key} empty", {**node, key: type(value)()}
            for what, changed in without(value, f"{path}.{key}", depth + 1):
                yield what, {**node, key: changed}
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield f"without {path}[{index}]", [*node[:index], *node[index + 1 :]]
            for what, changed in without(value, f"{path}[{index}]", depth + 1):
                yield what, [*node[:index], changed, *node[index + 1 :]]


def _marked(metadata: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield metadata again and again: each time one label or annotation is left out, empty or what nobody expects."""
    for field, odd in _ODD_MARKS.items():
        marks = metadata.get(field) or {}
        for key in marks:
            rest = {name: value for name, value in marks.items() if name != key}
            yield f"without metadata.{field}[{key}]", {**metadata, field: rest}
            for value in ("", odd):
                yield f"with metadata.{field}[{key}] {value!r}", {**metadata, field: {**marks, key: value}}


def stands_odd_objects(subject: Subject) -> Iterator[Problem]:
    """It maps and reads objects of others, and a workload that has no status, or an odd one."""
    plugin = subject.make()
    framework = subject.framework(plugin=plugin)
    on = subject.whole_runtime()
    for watch in subject.watches():
        metadata: JsonObject = {"name": "odd", **({"namespace": "team"} if watch.namespaced else {})}
        nothing: JsonObject = {"apiVersion": watch.api_version, "kind": watch.kind, "metadata": metadata}
        null = dict.fromkeys(("labels", "annotations", "ownerReferences"))
        odd = [
            nothing,
            {**nothing, "metadata": {**metadata, **null}, "spec": None, "data": None},
            {**nothing, "spec": {}},
        ]
        for obj in odd:
            try:
                if watch.jobs is not None:
                    watch.jobs(obj)
                for index in watch.indexes.values():
                    list(index(obj))
                for job in subject.whole_jobs():
                    outcome_of(framework, job, on, subject.listers(obj))
            except PluginFailed as error:
                if error.plugin == plugin.name:
                    yield Problem(
                        f"{watch.kind} (fields: {', '.join(obj)}): {error}",
                        "the cluster holds objects that others wrote, with nothing in them but a name",
                        "ask with `.get(...) or {}` for everything but apiVersion, kind and metadata.name",
                    )
                    break
    for job in subject.whole_jobs():
        built = [each.object for each in outcome_of(framework, job, on, subject.listers()).objects]
        for status in _ODD_STATUSES:
            try:
                listers = KnownObjects(*({**obj, "status": status} for obj in built), watches=framework.watches())
                framework.status(parse_trainjob(job), listers)
            except PluginFailed as error:
                if error.plugin == plugin.name:
                    yield Problem(
                        f"a workload whose status is {status}: {error}",
                        "a workload that was just created has no status, and the end of a TrainJob would not be seen",
                        "ask with `.get(...) or {}`, and report nothing of what is not there",
                    )
                    break
