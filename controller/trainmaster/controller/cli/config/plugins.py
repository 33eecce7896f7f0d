"""What is wrong with the plugins of a configuration, all at once; a manager would tell of the first one and end."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

from trainmaster.controller.cli.configured import plugin_options_in_effect
from trainmaster.controller.configuration import EffectiveConfiguration, Plugins, Problem
from trainmaster.controller.plugins.loading import SKIP
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.descriptor import is_own
from trainmaster.runtime.framework.loader import ALL, discover, is_wanted, load_plugin
from trainmaster.runtime.framework.models import ModelInvalid


def plugin_problems(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Try to make every plugin that would run, with its options; say which names are unknown."""
    given, options = effective.configuration.plugins, plugin_options_in_effect(effective)
    names = [point.name for point in discover()]
    yield from _unknown_names(given, names)
    broken = False
    for point, error in _broken(effective):
        broken = True
        if is_own(point) or given.on_load_error != SKIP:
            yield from _problems_of(error, point.name, given)
    if not broken:  # each for itself is in order: what remains is what they say of each other
        wanted = _wanted(given)
        own_options = {point.name: options[point.name] for point in wanted if point.name in options}
        try:
            Framework(load_plugins(wanted, options=own_options, features=effective.open_features))
        except PluginInvalid as error:
            yield Problem("plugins", str(error))


def _broken(effective: EffectiveConfiguration) -> Iterator[tuple[EntryPoint, PluginInvalid]]:
    """Return the plugins that are wanted and do not load."""
    options = plugin_options_in_effect(effective)
    for point in _wanted(effective.configuration.plugins):
        try:
            load_plugin(point, options.get(point.name, {}), effective.open_features)
        except PluginInvalid as error:
            yield point, error


def _wanted(given: Plugins) -> list[EntryPoint]:
    return [point for point in discover() if is_wanted(point, enabled=given.enabled, disabled=given.disabled)]


def _unknown_names(given: Plugins, names: list[str]) -> Iterator[Problem]:
    for option, listed in (("enabled", given.enabled), ("disabled", given.disabled)):
        for index, name in enumerate(listed):
            if name not in names and not (option == "enabled" and name == ALL):
                yield Problem(f"plugins.{option}[{index}]", _unknown(name, names))
    for option, mapping in (("options", given.options), ("failurePolicy", given.failure_policy)):
        for name in mapping:
            if name not in names:
                yield Problem(f"plugins.{option}.{name}", _unknown(name, names))


def _problems_of(error: PluginInvalid, name: str, given: Plugins) -> Iterator[Problem]:
    """Say each field of its options that is wrong, if it is that, with its own place."""
    if isinstance(error.__cause__, ModelInvalid):
        yield from (Problem(each.path, each.text) for each in error.__cause__.problems)
    else:
        yield Problem(f"plugins.options.{name}" if name in given.options else "plugins", str(error))


def plugin_notices(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Say which plugins do not run that are not disabled, and which options are of such."""
    given = effective.configuration.plugins
    if given.on_load_error == SKIP:
        for point, error in _broken(effective):
            if not is_own(point):
                yield Problem("plugins", f"{error}; the manager runs without it, as plugins.onLoadError says")
    wanted = _wanted(given)
    for point in discover():
        if point.name in given.disabled or point.name not in given.options:
            continue
        if point not in wanted:
            yield Problem(f"plugins.options.{point.name}", "no effect: plugins.enabled does not name the plugin")
            continue
        try:
            gate = getattr(point.load(), "feature_gate", None)
        except Exception:  # noqa: S112 - told as a problem
            continue
        if gate is not None and not effective.features.get(gate):
            yield Problem(f"plugins.options.{point.name}", f"no effect: the feature gate {gate} is off")


def _unknown(name: str, names: list[str]) -> str:
    return f"no such plugin is installed here {did_you_mean(name, names)}"
