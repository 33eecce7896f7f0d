"""Policies called `custom`: `mlPolicy.custom` and `podGroupPolicy.custom` of a runtime, which plugins give their
meaning.

The API server takes any `config`; the model of the plugin that the policy names says what may be in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from trainmaster.runtime.api import MLPolicy, PodGroupPolicy
from trainmaster.runtime.api.trainingruntime import CustomPolicy
from trainmaster.runtime.field_errors import FieldError, did_you_mean
from trainmaster.runtime.framework.interface import Plugin, Rejected
from trainmaster.runtime.framework.models import ModelInvalid, parse_model

_MODELS = (("mlPolicy", "ml_policy_config"), ("podGroupPolicy", "pod_group_policy_config"))
"""Each policy, and the attribute of plugins with the model of its `config`."""


CONFIG_PHASE: Final = "config"
"""What reading the `config` of a runtime is called in messages and metrics, where calls of plugins have their phase."""


def served_policies(plugin: Plugin) -> list[tuple[str, type[BaseModel]]]:
    """Return the policies whose `custom` a plugin serves, each with the model of its `config`."""
    models = ((policy, getattr(plugin, attribute, None)) for policy, attribute in _MODELS)
    return [(policy, model) for policy, model in models if model is not None]


def customs(ml_policy: MLPolicy | None, pod_group_policy: PodGroupPolicy | None) -> Iterator[tuple[str, CustomPolicy]]:
    """Return the policies `custom` of a runtime, by the field that they are in."""
    for field, policy in zip(("mlPolicy", "podGroupPolicy"), (ml_policy, pod_group_policy), strict=True):
        if policy is not None and policy.custom is not None:
            yield field, policy.custom


def config_of(plugin: Plugin, ml_policy: MLPolicy | None, pod_group_policy: PodGroupPolicy | None) -> Any:
    """Return the `config` that a runtime has for a plugin as the plugin's model; None if it has none.

    Raises:
        Rejected: It does not fit the model.
    """
    models = dict(served_policies(plugin))
    for policy, custom in customs(ml_policy, pod_group_policy):
        if custom.name == plugin.name and policy in models:
            try:
                return parse_model(models[policy], custom.config, f"spec.{policy}.custom.config")
            except ModelInvalid as error:
                raise Rejected(f"the runtime cannot be used: {error}") from error
    return None


def config_problems(model: type[BaseModel], policy: str, custom: CustomPolicy) -> list[FieldError]:
    """Return what is wrong with the `config` that a runtime has for a plugin, field by field."""
    try:
        parse_model(model, custom.config, f"{policy}.custom.config")
    except ModelInvalid as error:
        return [problem.at("spec.") for problem in error.problems]
    return []


def unserved_text(
    policy: str, name: str, serving: Mapping[str, Collection[str]], *, not_loaded: Collection[str] = ()
) -> str:
    """Say that no plugin serves the policy `custom` of a name.

    Args:
        policy: `mlPolicy` or `podGroupPolicy`.
        name: The plugin that it names.
        serving: The plugins that are loaded, each with the policies whose `custom` it serves.
        not_loaded: Those that could not be loaded.
    """
    if name in not_loaded:
        return f"the plugin {name!r} did not load: the log of the manager says what to do"
    others = [served for served in serving.get(name, ()) if served != policy]
    if others:
        return f"the plugin {name!r} serves {others[0]}.custom, not {policy}.custom"
    if name in serving:
        return f"the plugin {name!r} is loaded, but serves no {policy}.custom"
    names = [each for each, policies in serving.items() if policy in policies]
    hint = f" {did_you_mean(name, names)}" if names else ""
    return f"no plugin of the name {name!r} is loaded{hint}"
