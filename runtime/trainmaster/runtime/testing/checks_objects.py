"""Checks of what a plugin builds, reads and declares: objects that the API server takes, and rights that are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from trainmaster.runtime.api.constants import (
    CLUSTER_TRAINING_RUNTIME_KIND,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
)
from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.framework.interface import ApplyWhen, Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.names import dns_label_1035, dns_subdomain, label_value, qualified_name
from trainmaster.runtime.testing.subject import Problem, Subject, outcome_of, validate

_LONG_NAME: Final = "a" * 63
"""The longest name of a TrainJob whose pods can have host names."""

_READ_ANYHOW: Final = frozenset({TRAINJOB_KIND, TRAINING_RUNTIME_KIND, CLUSTER_TRAINING_RUNTIME_KIND})
"""Kinds that the manager caches for itself."""

_Kind = tuple[str, str]


class _Calls:
    """What a plugin builds and reads while it is tried."""

    def __init__(self) -> None:
        self.built: list[Desired] = []
        self.read: set[_Kind] = set()

    def around(self, phase: str, call: Callable[[], Any], arguments: dict[str, Any]) -> Any:
        """Take note of what a call reads and returns."""
        if "listers" in arguments:
            arguments["listers"] = _RecordingListers(arguments["listers"], self.read)
        info = arguments.get("info")
        if info is not None and not isinstance(info.listers, _RecordingListers):
            before, info.listers = info.listers, _RecordingListers(info.listers, self.read)
            try:
                result = call()
            finally:
                info.listers = before
        else:
            result = call()
        if phase == "build":
            result = list(result)
            self.built += [each for each in result if isinstance(each, Desired)]
        return result


class _RecordingListers:
    def __init__(self, listers: Listers, read: set[_Kind]) -> None:
        self._listers = listers
        self._read = read

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        self._read.add((api_version, kind))
        return self._listers.get(api_version, kind, namespace, name)

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Any:
        self._read.add((api_version, kind))
        return self._listers.list(api_version, kind, namespace)

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Any:
        self._read.add((api_version, kind))
        return self._listers.by_index(api_version, kind, index, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listers, name)


def _tried(subject: Subject) -> _Calls:
    """Try a plugin with all of its samples, new, suspended and running, and with what it maps to TrainJobs."""
    calls = _Calls()
    framework = subject.framework(calls.around)
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        for spec in (job["spec"], {**job["spec"], "suspend": True}):
            one = {**job, "spec": spec}
            outcome = outcome_of(framework, one, on, subject.listers())
            there = subject.listers(*(each.object for each in outcome.objects))
            outcome_of(framework, one, on, there)
            validate(framework, one, on, there)
    listers = _RecordingListers(subject.listers(), calls.read)
    for watch in subject.watches():
        for obj in subject.objects:
            if watch.jobs is not None and (obj["apiVersion"], obj["kind"]) == (watch.api_version, watch.kind):
                watch.jobs(obj, listers)
    return calls


def declares_what_it_uses(subject: Subject) -> Iterator[Problem]:
    """What it builds and reads is declared, and what it declares is used."""
    calls = _tried(subject)
    declared: dict[_Kind, list[Watch]] = {}
    for watch in subject.watches():
        declared.setdefault((watch.api_version, watch.kind), []).append(watch)
    built: dict[_Kind, list[Desired]] = {}
    for desired in calls.built:
        built.setdefault(desired.identity[:2], []).append(desired)
    for kind, objects in built.items():
        of_kind = declared.get(kind, [])
        if not any(watch.writes for watch in of_kind):
            yield Problem(
                f"build returns {kind[1]} ({kind[0]}), which watch_extension does not declare with writes=True",
                "the manager has no right to write it, and keeps no cache by which it would see who changes it",
                f'yield Watch("{kind[0]}", "{kind[1]}", "<plural>", writes=True) from watch_extension',
            )
        elif all(watch.creates_only for watch in of_kind if watch.writes) and any(
            each.when is not ApplyWhen.ONCE for each in objects
        ):
            yield Problem(
                f"{kind[1]} ({kind[0]}) is declared with creates_only=True, but not built with ApplyWhen.ONCE",
                "the manager gets the right to create and no other, so its apply is refused",
                "build it with ApplyWhen.ONCE, or leave out creates_only",
            )
        elif all(each.when is ApplyWhen.ONCE for each in objects) and not any(watch.creates_only for watch in of_kind):
            yield Problem(
                f"{kind[1]} ({kind[0]}) is only built with ApplyWhen.ONCE, but its Watch lacks creates_only=True",
                "the manager asks every cluster for the right to change all objects of the kind, and never uses it",
                "add creates_only=True to the Watch",
            )
    yield from _undeclared_reads(calls.read, declared)
    yield from _unused(calls.read, built, declared)


def _undeclared_reads(read: set[_Kind], declared: dict[_Kind, list[Watch]]) -> Iterator[Problem]:
    for api_version, kind in sorted(read - declared.keys()):
        if kind not in _READ_ANYHOW:
            yield Problem(
                f"it asks listers for {kind} ({api_version}), which watch_extension does not declare",
                "no cache holds the kind, so it reads as if there were no objects, for ever",
                f'yield Watch("{api_version}", "{kind}", "<plural>") from watch_extension',
            )


def _unused(
    read: set[_Kind], built: dict[_Kind, list[Desired]], declared: dict[_Kind, list[Watch]]
) -> Iterator[Problem]:
    for kind, watches in declared.items():
        for watch in watches:
            if watch.writes and kind not in built:
                yield Problem(
                    f"watch_extension declares {watch.kind} ({watch.api_version}) with writes=True, but no sample has "
                    "one built",
                    "the manager asks every cluster for the right to create and change all objects of the kind",
                    "leave it out, or give the suite `jobs` and `objects` for which the plugin builds one",
                )
            elif not (watch.writes or watch.workload or watch.jobs is not None or kind in read):
                yield Problem(
                    f"watch_extension declares {watch.kind} ({watch.api_version}), but no sample has it read, built or "
                    "mapped",
                    "the manager asks every cluster for the right to read all objects of the kind, and caches them",
                    "leave it out, or give the suite `jobs` and `objects` for which the plugin reads it",
                )


def builds_valid_objects(subject: Subject) -> Iterator[Problem]:
    """Names, labels and annotations of what it builds, and of pods, are such that the API server takes them."""
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        for name in (job["metadata"]["name"], _LONG_NAME):
            one = {**job, "metadata": {**job["metadata"], "name": name}}
            calls = _Calls()
            try:
                outcome = outcome_of(subject.framework(calls.around), one, on, subject.listers())
            except PluginFailed as error:
                yield Problem(
                    f"a TrainJob with a name of {len(name)} characters: {error}",
                    "the TrainJob is blocked",
                    "build complete objects with names of their own, in the namespace of the TrainJob",
                )
                continue
            for desired in calls.built:
                yield from _object(desired.object)
            if not outcome.refused:
                for path, metadata in _pod_metadata(outcome.state["template"]):
                    yield from _metadata(path, metadata)
                    yield from _environment(path, outcome.state["template"])


def _object(obj: JsonObject) -> Iterator[Problem]:
    what = f"{obj['kind']} {obj['metadata']['name']}"
    rule = dns_label_1035 if obj["kind"] == "Service" else dns_subdomain
    for problem in rule(obj["metadata"]["name"]):
        yield Problem(
            f"{what}: its name {problem}",
            "the API server refuses it, and the TrainJob never gets any further",
            "derive the name from that of the TrainJob, which has up to 63 characters: cut it, with a digest of what "
            "was cut, or raise Rejected with a sentence that says how long the name may be",
        )
    if obj["metadata"].get("generateName") or "status" in obj:
        yield Problem(
            f"{what} has metadata.generateName or status",
            "it would be another object each time, and a status is written by whoever observes the object",
            "leave them out",
        )
    yield from _metadata(what, obj["metadata"])


def _metadata(what: str, metadata: JsonObject) -> Iterator[Problem]:
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            faults = [f"its key {fault}" for fault in qualified_name(str(key))]
            if not isinstance(value, str):
                faults.append(f"its value must be a text, not {value!r:.40}")
            elif field == "labels":
                faults += [f"its value {fault}" for fault in label_value(value)]
            for fault in faults[:1]:
                yield Problem(
                    f"{what}: {field[:-1]} {key!r}: {fault}",
                    "the API server refuses the object, and the TrainJob never gets any further",
                    "write values as texts; what may be long, the name of a TrainJob for instance, belongs in an "
                    "annotation, or is cut with a digest of what was cut",
                )


def _pod_metadata(template: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for job in template.get("replicatedJobs") or []:
        pod = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
        yield f"pods of {job.get('name')}", pod.get("metadata") or {}


def _environment(what: str, template: JsonObject) -> Iterator[Problem]:
    for job in template.get("replicatedJobs") or []:
        if what != f"pods of {job.get('name')}":
            continue
        for container in job["template"]["spec"]["template"]["spec"].get("containers") or []:
            for variable in container.get("env") or []:
                value = variable.get("value")
                if not isinstance(variable.get("name"), str) or not isinstance(value, str | None):
                    yield Problem(
                        f"{what}: the variable {variable.get('name')!r} of container {container.get('name')} is "
                        f"{value!r:.40}",
                        "values of variables are texts: the API server refuses the pods",
                        "use `env_value`, which makes a text of it",
                    )
