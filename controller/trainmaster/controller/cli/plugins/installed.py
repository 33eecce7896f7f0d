"""What is installed, and what becomes of it under a configuration.

Guarantee: a plugin that is broken costs its own line only, which says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any

from trainmaster.controller.cli.configured import plugin_options_in_effect
from trainmaster.controller.configuration import EffectiveConfiguration
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.descriptor import Descriptor, describe
from trainmaster.runtime.framework.framework import SCHEDULERS
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.loader import describe_point, discover, import_plugin, is_wanted, make_plugin
from trainmaster.runtime.framework.ordering import order_plugins

LOADED, DISABLED, NOT_ENABLED, GATED, BROKEN = "loaded", "disabled", "not enabled", "gate closed", "broken"
QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that a distribution offers."""

    point: EntryPoint
    state: str
    reason: str
    """Why it is not loaded; empty if it is."""

    descriptor: Descriptor | None
    """What it says of itself; None if that cannot be read."""

    plugin: Plugin | None
    """The plugin itself, if it is loaded."""

    error: PluginInvalid | None = None
    """What keeps it from being loaded; its cause is what the plugin raised."""

    position: int | None = None
    """Its place in the order of all that are loaded, from 1 on."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.point.name

    @property
    def distribution(self) -> str:
        """The distribution that offers it."""
        return self.point.dist.name if self.point.dist else "unknown"

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return self.point.dist.version if self.point.dist else ""

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        descriptor = self.descriptor
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "class": self.point.value,
            "state": self.state,
            "reason": self.reason,
            "order": self.position,
            "apiVersion": descriptor.api_version if descriptor else None,
            "maturity": descriptor.maturity if descriptor else None,
            "extensionPoints": list(descriptor.extension_points) if descriptor else [],
            "policies": served_policies(descriptor),
        }


def served_policies(descriptor: Descriptor | None) -> list[str]:
    """Return the policies that a plugin serves, as people write them; none: it serves all TrainJobs."""
    if descriptor is None:
        return []
    parts = (f"{'podGroupPolicy' if name in SCHEDULERS else 'mlPolicy'}.{name}" for name in descriptor.policies)
    return [*parts, *(f"{policy}.custom" for policy in descriptor.custom_policies)]


def installed_plugins(effective: EffectiveConfiguration) -> list[InstalledPlugin]:
    """List what is installed: first what is loaded, in its order, then the rest by name."""
    found = list(_look(effective))
    loaded = {each.plugin.name: each for each in found if each.plugin is not None}
    try:
        order = [plugin.name for plugin in order_plugins([each.plugin for each in loaded.values() if each.plugin])]
    except PluginInvalid:
        order = sorted(loaded)  # `plugins check` tells why there is none
    placed = [replace(loaded[name], position=position) for position, name in enumerate(order, 1)]
    return [*placed, *(each for each in found if each.plugin is None)]


def with_quarantine(plugins: Iterable[InstalledPlugin], quarantined: Mapping[str, str]) -> Iterator[InstalledPlugin]:
    """Say which plugins a manager does not call for now, and why."""
    for each in plugins:
        reason = quarantined.get(each.name)
        yield each if reason is None else replace(each, state=QUARANTINED, reason=reason)


def _look(effective: EffectiveConfiguration) -> Iterator[InstalledPlugin]:
    given, options = effective.configuration.plugins, plugin_options_in_effect(effective)
    points = discover()
    names = [point.name for point in points]
    for point in points:
        if point.name in given.disabled:
            yield _left_out(point, DISABLED, "plugins.disabled of the configuration names it")
        elif not is_wanted(point, enabled=given.enabled, disabled=given.disabled):
            yield _left_out(point, NOT_ENABLED, "plugins.enabled of the configuration does not name it")
        elif names.count(point.name) > 1:
            yield _left_out(point, BROKEN, "several distributions offer a plugin of this name; uninstall all but one")
        else:
            yield _tried(point, options.get(point.name, {}), effective)


def _tried(point: EntryPoint, options: Any, effective: EffectiveConfiguration) -> InstalledPlugin:
    try:
        make = import_plugin(point)
        gate = getattr(make, "feature_gate", None)
        if gate is not None and not effective.features.get(gate):
            return _left_out(point, GATED, f"the feature gate {gate} is off")
        plugin = make_plugin(point, make, options)
        return InstalledPlugin(point, LOADED, "", describe(plugin, origin=f"plugin {point.name!r}"), plugin)
    except PluginInvalid as error:
        return InstalledPlugin(point, BROKEN, str(error), None, None, error)


def _left_out(point: EntryPoint, state: str, reason: str) -> InstalledPlugin:
    """One that is not loaded; what it says of itself is read if that is possible without it."""
    try:
        descriptor = describe_point(point) if state == GATED else None
    except PluginInvalid:
        descriptor = None
    return InstalledPlugin(point, state, reason, descriptor, None)
