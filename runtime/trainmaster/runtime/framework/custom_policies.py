"""Policies called `custom`: `mlPolicy.custom` and `podGroupPolicy.custom` of a runtime, which plugins give their
meaning.

The API server takes any `config`; the model of the plugin that the policy names says what may be in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel

from trainmaster.runtime.api import MLPolicy, PodGroupPolicy
from trainmaster.runtime.api.trainingruntime import CustomPolicy
from trainmaster.runtime.field_errors import FieldError, did_you_mean
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.framework.models import ModelInvalid, parse_model

CONFIG_PHASE: Final = "config"
"""What reading the `config` of a runtime is called in messages and metrics, where calls of plugins have their phase."""


def customs(ml_policy: MLPolicy | None, pod_group_policy: PodGroupPolicy | None) -> list[tuple[str, CustomPolicy]]:
    """Return the policies `custom` of a runtime, by the field that they are in."""
    found = []
    if ml_policy is not None and ml_policy.custom is not None:
        found.append(("mlPolicy", ml_policy.custom))
    if pod_group_policy is not None and pod_group_policy.custom is not None:
        found.append(("podGroupPolicy", pod_group_policy.custom))
    return found


def config_of(model: type[BaseModel], policy: str, custom: CustomPolicy) -> Any:
    """Return the `config` that a runtime has for a plugin as the plugin's model.

    Raises:
        Rejected: It does not fit the model.
    """
    try:
        return parse_model(model, custom.config, f"spec.{policy}.custom.config")
    except ModelInvalid as error:
        raise Rejected(f"the runtime cannot be used: {error}") from error


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
