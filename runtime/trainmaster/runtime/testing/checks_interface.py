"""Checks of what a plugin says of itself: its attributes, its hooks, its options, whom it serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import PluginFailed, PluginInvalid
from trainmaster.runtime.framework.descriptor import describe
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.framework.models import ModelInvalid, customs, parse_model
from trainmaster.runtime.resolver import new_info
from trainmaster.runtime.testing.subject import Problem, Subject, first_difference, outcome_of, validate


def fits_the_interface(subject: Subject) -> Iterator[Problem]:
    """Its attributes are of the right types, its hooks are named as they are called, and it can be made."""
    try:
        plugin = subject.make()
        descriptor = describe(plugin, origin=f"plugin {subject.name!r}")
        subject.framework(plugin=plugin).watches()
    except PluginInvalid as error:
        yield Problem(
            str(error),
            "the manager does not start with it, or goes on without it, as `plugins.onLoadError` says",
            "correct what the message names",
        )
        return
    known = {point.name for point in discover()} | {descriptor.name}
    for name in (*descriptor.place.before, *descriptor.place.after, *descriptor.replaces):
        meant = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
        if name not in known and meant:
            yield Problem(
                f"before, after or replaces names {name!r}, and there is no plugin of that name",
                "a name that is not loaded is ignored, so the plugin would run in another order than was meant",
                f"write {meant[0]!r} if that is meant",
            )


def serves_its_sample(subject: Subject) -> Iterator[Problem]:
    """The TrainJobs that it is tried with are its own, and can be built."""
    plugin = subject.make()
    framework = subject.framework(plugin=plugin)
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        name = job["metadata"]["name"]
        try:
            outcome = outcome_of(framework, job, on, subject.listers())
            validate(framework, job, on, subject.listers())
            parsed = parse_trainjob(job)
            serving = outcome.refused or framework.serving(new_info(parsed, parse_runtime(on)), parsed)
        except PluginFailed as error:
            yield Problem(
                f"TrainJob {name}: {error}",
                "every TrainJob like this one would be blocked",
                "correct the hook that is named, or the sample",
            )
            continue
        if outcome.refused:
            yield Problem(
                f"TrainJob {name} cannot be built: {outcome.refused}",
                "all other checks try the plugin with it, and would check nothing",
                "give the suite a `runtime` and `jobs` that can be built",
            )
        elif plugin.name not in [each.name for each in serving if not isinstance(each, str)]:
            yield Problem(
                f"the plugin does not serve TrainJob {name}",
                "none of its hooks runs for it, so the other checks would check nothing",
                "give the suite a `runtime` with the policy that the plugin serves, or jobs that its applies_to wants",
            )


def options_make_a_round_trip(subject: Subject) -> Iterator[Problem]:
    """Its models take what they print, refuse what they do not know, and can be described to others."""
    descriptor = describe(subject.make(), origin=f"plugin {subject.name!r}")
    if descriptor.options_model is not None:
        yield from _model(descriptor.options_model, subject.options, f"plugins.options.{descriptor.name}")
    models = descriptor.custom_policies
    spec = parse_runtime(subject.whole_runtime()).spec
    for policy, custom in customs(spec.ml_policy, spec.pod_group_policy):
        if custom.name == descriptor.name and policy in models:
            yield from _model(models[policy], custom.config, f"{policy}.custom.config")


def _model(model: type[BaseModel], given: Mapping[str, Any], path: str) -> Iterator[Problem]:
    try:
        parsed = parse_model(model, dict(given), path)
    except ModelInvalid as error:
        yield Problem(
            f"{model.__name__} does not take what the suite gives: {error}",
            "the plugin would be refused with these options",
            "correct `options` or `runtime` of the suite, or the model",
        )
        return
    try:
        printed = parsed.model_dump(mode="json", by_alias=True)
        again = parse_model(model, printed, path)
        difference = first_difference(printed, again.model_dump(mode="json", by_alias=True))
    except (ModelInvalid, TypeError, ValueError, ValidationError) as error:
        difference = f"it does not take it: {error}"
    if difference:
        yield Problem(
            f"{model.__name__} makes something else of what it prints itself: {difference}",
            "what a log or a tool prints of it ends in somebody's configuration file",
            "let its validators accept what its serializers return",
        )
    unknown = "trainmaster_conformance"
    try:
        parse_model(model, {**given, unknown: True}, path)
        if model.model_config.get("extra") != "allow":
            raise AssertionError("parse_model refuses what a model does not know")
        yield Problem(
            f'{model.__name__} takes the unknown field {unknown!r}, since it has extra="allow"',
            "whoever misspells a field is told nothing, and the default holds",
            "leave `extra` alone, and give the model a field of type dict for what is free",
        )
    except ModelInvalid:
        pass
    yield from _schema(model)


def _schema(model: type[BaseModel]) -> Iterator[Problem]:
    try:
        model.model_json_schema()
    except Exception as error:
        yield Problem(
            f"{model.__name__} has no JSON schema: {type(error).__name__}: {error}",
            "`trainmaster plugins show` prints the fields of options by it",
            "use types that pydantic can describe, or give the field a `WithJsonSchema`",
        )
