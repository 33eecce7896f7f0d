"""Checks of what a plugin makes of a TrainJob: the same each time, whatever happened before, of inputs left alone."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import encode_runtime
from trainmaster.runtime.testing.builders import KnownObjects
from trainmaster.runtime.testing.subject import Problem, Subject, first_difference, outcome_of, validate
from trainmaster.runtime.yamltext import load_plain_yaml

_SETTLES = (
    "the manager compares what is built with what the cluster has, and writes whenever the two differ, so each "
    "reconcile would write again, and pods might be restarted"
)


def is_deterministic(subject: Subject) -> Iterator[Problem]:
    """The same TrainJob becomes the same, from one plugin twice, and from another one after a restart."""
    first, second = subject.framework(), subject.framework()
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        made = outcome_of(first, job, on, subject.listers()).settled()
        for who, framework in (("the same plugin", first), ("a plugin that was made anew", second)):
            difference = first_difference(made, outcome_of(framework, job, on, subject.listers()).settled())
            if difference:
                yield Problem(
                    f"TrainJob {job['metadata']['name']} becomes something else when {who} resolves it again: "
                    f"{difference}",
                    _SETTLES,
                    "use no time, no random number, no counter and no order of a set; keep nothing between two calls; "
                    "what has to be random, a key for instance, belongs in an object with ApplyWhen.ONCE",
                )
                break


def is_idempotent(subject: Subject) -> Iterator[Problem]:
    """What it has built changes nothing about what it builds."""
    framework = subject.framework()
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        built = outcome_of(framework, job, on, subject.listers())
        there = subject.listers(*(each.object for each in built.objects))
        again = outcome_of(framework, job, on, there)
        before, after = built.rewritten(), again.rewritten()
        for what, obj in after.items():
            difference = first_difference(before[what], obj) if what in before else "it is new"
            known = [" ".join(each.identity) for each in built.objects]
            if difference and (what in before or what not in known):
                yield Problem(
                    f"TrainJob {job['metadata']['name']}: {what} is built in another way once all objects exist: "
                    f"{difference}",
                    _SETTLES,
                    "build from the TrainJob and its runtime; what listers return of your own objects must not come "
                    "back in what you build",
                )
        if again.refused and not built.refused:
            yield Problem(
                f"TrainJob {job['metadata']['name']} cannot be built once its objects exist: {again.refused}",
                "it would be blocked as soon as it runs",
                "expect your own objects in what listers return",
            )


def leaves_inputs_alone(subject: Subject) -> Iterator[Problem]:
    """It changes neither the TrainJob nor the policy that it is given, and Infos only where that is its task."""
    found: dict[str, Problem] = {}

    def around(phase: str, call: Callable[[], Any], arguments: dict[str, Any]) -> Any:
        kept = {
            name: _tree(value)
            for name, value in arguments.items()
            if name in ("job", "old", "config") or (name == "info" and phase == "applies_to")
        }
        result = call()
        for name, before in kept.items():
            difference = first_difference(before, _tree(arguments[name]))
            if difference:
                found[f"{phase} {name}"] = Problem(
                    f"{phase} changes `{name}`: {difference}",
                    "all plugins of a resolution are given the same one, so the others see a TrainJob that nobody "
                    "wrote, and what you change there changes nothing in the cluster",
                    "change `info` in the enforcing phases; copy what you need to change otherwise",
                )
        return result

    framework = subject.framework(around)
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        outcome_of(framework, job, on, subject.listers())
        validate(framework, job, on, subject.listers())
    yield from found.values()


def _tree(value: Any) -> Any:
    """Return something that a plugin is given as a tree that it has no hold of."""
    if value is None:
        return None
    if isinstance(value, Info):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.name != "listers"}
        fields["pod_sets"] = [
            {each.name: getattr(pods, each.name) for each in dataclasses.fields(pods) if each.name != "endpoints"}
            for pods in value.pod_sets
        ]
        fields |= {name: _tree(fields[name]) for name in ("ml_policy", "pod_group_policy")}
        return copy.deepcopy(fields)
    return copy.deepcopy(value.model_dump())


def survives_suspension(subject: Subject) -> Iterator[Problem]:
    """A job that was suspended and resumed becomes what it would have become without."""
    framework = subject.framework()
    on = subject.whole_runtime()
    workloads = {(watch.api_version, watch.kind) for watch in subject.watches() if watch.workload}
    for job in subject.whole_jobs():
        name = job["metadata"]["name"]
        suspended_job = {**job, "spec": {**job["spec"], "suspend": True}}
        try:
            fresh = outcome_of(framework, job, on, subject.listers())
            suspended = outcome_of(framework, suspended_job, on, subject.listers())
            resumed = outcome_of(framework, job, on, subject.listers(*(each.object for each in suspended.objects)))
        except PluginFailed as error:
            yield Problem(
                f"TrainJob {name}, suspended or resumed: {error}",
                "whoever uses a queue creates TrainJobs suspended: they would be blocked",
                "expect `job.spec.suspend` to be True, and what was built meanwhile in what listers return",
            )
            continue
        if fresh.refused:
            continue
        before, after = fresh.rewritten(), resumed.rewritten()
        difference = suspended.refused or resumed.refused or first_difference(before, {**before, **after})
        if difference:
            yield Problem(
                f"TrainJob {name} becomes something else if it was suspended before: {difference}",
                "a job that waited in a queue would train otherwise than one that did not",
                "build from what the TrainJob says now",
            )
        for each in fresh.objects:
            same = [other for other in suspended.objects if other.identity == each.identity]
            if each.identity[:2] in workloads and same and same[0].object == each.object:
                yield Problem(
                    f"TrainJob {name}: the workload {' '.join(each.identity)} is the same whether spec.suspend is set "
                    "or not",
                    "a suspended TrainJob would run, and take the room that a queue has given to another one",
                    "set what stops your workload, for instance `suspend: true`, if `job.spec.suspend` is True",
                )


def survives_the_snapshot(subject: Subject) -> Iterator[Problem]:
    """It makes the same of a runtime that was written down and read again."""
    framework = subject.framework()
    on = subject.whole_runtime()
    frozen: JsonObject = load_plain_yaml(encode_runtime(on))
    for job in subject.whole_jobs():
        difference = first_difference(
            outcome_of(framework, job, on, subject.listers()).settled(),
            outcome_of(framework, job, frozen, subject.listers()).settled(),
        )
        if difference:
            yield Problem(
                f"TrainJob {job['metadata']['name']} becomes something else of its runtime's snapshot: {difference}",
                "a TrainJob is built from a snapshot, a YAML text, from its second reconcile on: it would be rewritten",
                "take from the runtime what YAML keeps: no order of fields, no difference between 1 and 1.0",
            )


def works_without_a_cluster(subject: Subject) -> Iterator[Problem]:
    """It makes something of a TrainJob, or rejects it, whatever the cluster lacks."""
    framework = subject.framework()
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        uid = parse_trainjob(job).metadata.uid
        for what, listers in (
            ("in an empty cluster", KnownObjects(watches=framework.watches())),
            ("beside objects of a TrainJob of the same name that was deleted", _left_over(subject, job)),
        ):
            try:
                outcome_of(framework, job, on, listers)
                validate(framework, job, on, listers)
                framework.status(parse_trainjob(job), listers)
            except PluginFailed as error:
                yield Problem(
                    f"TrainJob {job['metadata']['name']} ({uid}) {what}: {error}",
                    "that is how it is offline (`trainmaster render`), before a kind is installed, and after a "
                    "namespace was cleared",
                    "expect `listers.get` to return None, and compare owners with `is_controlled_by`",
                )


def _left_over(subject: Subject, job: JsonObject) -> KnownObjects:
    earlier = {**job, "metadata": {**job["metadata"], "uid": "uid-of-an-earlier-one"}}
    framework = subject.framework()
    built = outcome_of(framework, earlier, subject.whole_runtime(), subject.listers())
    return KnownObjects(*subject.objects, *(each.object for each in built.objects), watches=framework.watches())
