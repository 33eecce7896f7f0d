"""Policies called `custom`: `mlPolicy.custom` and `podGroupPolicy.custom` of a runtime, which plugins give their
meaning.

The API server takes any `config`; the model of the plugin that the policy names says what may be in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from trainmaster.runtime.api import MLPolicy, PodGroupPolicy
from trainmaster.runtime.api.trainingruntime import CustomPolicy
from trainmaster.runtime.framework.interface import Plugin, Rejected
from trainmaster.runtime.framework.models import ModelInvalid, parse_model

_MODELS = (("mlPolicy", "ml_policy_config"), ("podGroupPolicy", "pod_group_policy_config"))
"""Each policy, and the attribute of plugins with the model of its `config`."""


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
                return parse_model(models[policy], custom.config, f"{policy}.custom.config")
            except ModelInvalid as error:
                raise Rejected(f"the runtime cannot be used: {error}") from error
    return None
