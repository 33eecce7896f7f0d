"""What is wrong with the plugins of a configuration, all at once; a manager would tell of the first one and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.controller.cli.options import UNKNOWN_AUTHORITY
from trainmaster.controller.configuration import EffectiveConfiguration, Problem
from trainmaster.controller.statusserver.server import plugin_options
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.loader import discover


def plugin_problems(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Try to make every plugin that would run, with its options; say which names are unknown."""
    given = effective.configuration.plugins
    points, options = discover(), plugin_options_in_effect(effective)
    names = [point.name for point in points]
    for index, name in enumerate(given.disabled):
        if name not in names:
            yield Problem(f"plugins.disabled[{index}]", _unknown(name, names))
    for name in given.options:
        if name not in names:
            yield Problem(f"plugins.options.{name}", _unknown(name, names))
    disabled = frozenset(given.disabled) & set(names)
    features = frozenset(name for name, is_open in effective.features.items() if is_open)
    broken = False
    for point in points:
        if point.name in disabled:
            continue
        own = {point.name: options[point.name]} if point.name in options else {}
        try:
            load_plugins([point], options=own, features=features)
        except PluginInvalid as error:
            broken = True
            yield Problem(f"plugins.options.{point.name}" if point.name in given.options else "plugins", str(error))
    if not broken:  # each for itself is in order: what remains is what they say of each other
        known = {name: values for name, values in options.items() if name in names}
        try:
            Framework(load_plugins(points, disabled=disabled, options=known, features=features))
        except PluginInvalid as error:
            yield Problem("plugins", str(error))


def plugin_notices(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Say which options are of plugins that do not run."""
    given = effective.configuration.plugins
    for point in discover():
        if point.name in given.disabled or point.name not in given.options:
            continue
        try:
            gate = getattr(point.load(), "feature_gate", None)
        except Exception:  # noqa: S112 - told as a problem
            continue
        if gate is not None and not effective.features.get(gate):
            yield Problem(f"plugins.options.{point.name}", f"no effect: the feature gate {gate} is off")


def _unknown(name: str, names: list[str]) -> str:
    return f"no such plugin is installed here {did_you_mean(name, names)}"


def plugin_options_in_effect(effective: EffectiveConfiguration) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of all plugins, with those that the controller itself gives to one of ours."""
    if not effective.features[TRAIN_JOB_STATUS_GATE]:
        return effective.configuration.plugins.options
    return plugin_options(effective.configuration, authority=lambda: UNKNOWN_AUTHORITY)
