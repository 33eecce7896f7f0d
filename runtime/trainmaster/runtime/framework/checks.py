"""The checks of a plugin: whether it fits the interface."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from trainmaster.runtime import extension
from trainmaster.runtime.extension import (
    API_VERSION,
    Build,
    EnforceMLPolicy,
    EnforcePodGroup,
    EnforcePodSpec,
    PreBuild,
    Status,
    Validate,
    WatchExtension,
)

PHASES: Mapping[str, type] = {
    "enforce_ml_policy": EnforceMLPolicy,
    "enforce_pod_group": EnforcePodGroup,
    "enforce_pod_spec": EnforcePodSpec,
    "pre_build": PreBuild,
    "build": Build,
    "watch_extension": WatchExtension,
    "validate": Validate,
    "status": Status,
}


class PluginInvalid(Exception):
    """A plugin cannot be used: it does not load, does not fit the interface, or contradicts another one."""


def check_plugin(plugin: extension.Plugin, *, origin: str) -> None:
    """Check that an object fits the interface.

    Raises:
        PluginInvalid: It does not; the message says what to change.
    """
    if not isinstance(getattr(plugin, "name", None), str) or not plugin.name:
        raise PluginInvalid(f"{origin} has no name: give its class a `name`")
    wanted = str(getattr(plugin, "api_version", f"{API_VERSION[0]}.0"))
    major, _, minor = wanted.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise PluginInvalid(f'{origin} states api_version {wanted!r}; write it as major.minor, for instance "1.0"')
    if int(major) != API_VERSION[0] or int(minor) > API_VERSION[1]:
        offered = ".".join(map(str, API_VERSION))
        raise PluginInvalid(
            f"{origin} needs plugin API {wanted}, this Trainmaster offers {offered}: install matching versions"
        )
    _check_place(plugin, origin)
    points = [name for name in PHASES if callable(getattr(plugin, name, None))]
    if not points:
        raise PluginInvalid(f"{origin} implements no extension point; it needs at least one of: {', '.join(PHASES)}")
    for name in points:
        expected = list(inspect.signature(getattr(PHASES[name], name)).parameters)[1:]
        actual = list(inspect.signature(getattr(plugin, name)).parameters)
        if actual != expected:
            raise PluginInvalid(f"{origin}: {name}({', '.join(actual)}) must be {name}({', '.join(expected)})")
        method = getattr(plugin, name)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise PluginInvalid(f"{origin}: {name} must be a plain function, not async: plugins decide, they do no I/O")


def _check_place(plugin: extension.Plugin, origin: str) -> None:
    priority = getattr(plugin, "priority", 0)
    if not isinstance(priority, int):
        raise PluginInvalid(f"{origin}: priority must be a whole number, not {priority!r}")
    for side in ("before", "after"):
        names = getattr(plugin, side, ())
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise PluginInvalid(f"{origin}: {side} must be a list or tuple of plugin names, not {names!r}")
