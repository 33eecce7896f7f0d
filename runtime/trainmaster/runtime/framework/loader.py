"""The loader: from the entry points of installed distributions to plugins, with the options of the configuration.

Guarantee: a plugin that does not load, or that does not fit the interface, is a `PluginInvalid` that names it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from trainmaster.runtime.framework import interface
from trainmaster.runtime.framework.interface import (
    API_VERSION,
    ENTRY_POINT_GROUP,
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


_COLLECTING = frozenset({"build", "watch_extension", "validate"})
"""The phases that may be generators."""


class PluginInvalid(Exception):
    """A plugin cannot be used: it does not load, does not fit the interface, or contradicts another one."""


def check_plugin(plugin: interface.Plugin, *, origin: str) -> None:
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
    _check_policies(plugin, origin)
    for name in PHASES:
        value = getattr(plugin, name, None)
        if value is not None and not callable(value):
            raise PluginInvalid(
                f"{origin}: its attribute {name} is {value!r:.80}, but {name} is an extension point, and those are "
                "methods; give the attribute another name"
            )
    points = [name for name in PHASES if implements(plugin, name)]
    if not points:
        raise PluginInvalid(f"{origin} implements no extension point; it needs at least one of: {', '.join(PHASES)}")
    for name in points:
        _check_method(name, getattr(plugin, name), origin)


def implements(plugin: interface.Plugin, phase: str) -> bool:
    """Tell whether a plugin has an extension point; None in the place of an inherited one takes that away."""
    return callable(getattr(plugin, phase, None))


def _check_method(name: str, method: Callable[..., Any], origin: str) -> None:
    expected = list(inspect.signature(getattr(PHASES[name], name)).parameters)[1:]
    try:
        actual = inspect.signature(method)
    except (TypeError, ValueError) as error:
        raise PluginInvalid(f"{origin}: {name} does not tell its arguments: {error}; make it a plain method") from error
    if not _takes(actual, expected):
        written = ", ".join(_parameter(each) for each in actual.parameters.values())
        raise PluginInvalid(f"{origin}: {name}({written}) must be {name}({', '.join(expected)})")
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise PluginInvalid(f"{origin}: {name} must be a plain function, not async: plugins decide, they do no I/O")
    if inspect.isgeneratorfunction(method) and name not in _COLLECTING:
        raise PluginInvalid(
            f"{origin}: {name} must be a plain function: nothing of it would run because of its `yield`"
        )


def _takes(signature: inspect.Signature, expected: list[str]) -> bool:
    """Tell whether a method takes arguments of these names, in this order, and needs no others.

    More of them may follow that have defaults, and so may `*args` and `**kwargs`: they stay as they are.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [each.name for each in signature.parameters.values() if each.kind in kinds]
    try:
        signature.bind(*expected)
    except TypeError:
        return False
    return named[: len(expected)] == expected


def _parameter(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name


def _check_policies(plugin: interface.Plugin, origin: str) -> None:
    policies = getattr(plugin, "policies", ())
    if not isinstance(policies, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in policies):
        raise PluginInvalid(
            f'{origin}: policies must be a list or tuple of names, for instance ("torch",), not {policies!r}'
        )


def _check_place(plugin: interface.Plugin, origin: str) -> None:
    priority = getattr(plugin, "priority", 0)
    if not isinstance(priority, int):
        raise PluginInvalid(f"{origin}: priority must be a whole number, not {priority!r}")
    for side in ("before", "after"):
        names = getattr(plugin, side, ())
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise PluginInvalid(f"{origin}: {side} must be a list or tuple of plugin names, not {names!r}")


def discover(group: str = ENTRY_POINT_GROUP) -> list[EntryPoint]:
    """List the plugins that installed distributions offer, by name."""
    return sorted(entry_points(group=group), key=lambda point: point.name)


def load_plugins(
    points: Iterable[EntryPoint] | None = None,
    *,
    disabled: frozenset[str] = frozenset(),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    features: frozenset[str] = frozenset(),
) -> list[interface.Plugin]:
    """Load and construct plugins.

    Args:
        points: The entry points to load; default is everything installed.
        disabled: Plugins that are left out without being imported, by name, which is that of the entry point.
        options: Keyword arguments of plugins, by plugin name.
        features: The feature gates that are open; a plugin behind another one is left out.

    Raises:
        PluginInvalid: A plugin does not load, or the names do not add up.
    """
    options = dict(options or {})
    plugins: dict[str, interface.Plugin] = {}
    known: dict[str, str] = {}
    for point in discover() if points is None else points:
        source = f"{point.value}, from {_name_of(point.dist)}"
        if point.name in disabled:
            known[point.name] = source
            continue
        origin = f"plugin {point.name!r} ({source})"
        if point.name in known:
            raise PluginInvalid(
                f"{origin} has the same name as another plugin ({known[point.name]}); uninstall one of the two, or add "
                f"{point.name!r} to plugins.disabled of the configuration file, which leaves out both"
            )
        known[point.name] = source
        make = _import(point, origin)
        gate = getattr(make, "feature_gate", None)
        if gate is not None and gate not in features:
            continue
        place = f"plugins.options.{point.name} of the configuration file"
        plugin = _construct(make, options.get(point.name, {}), origin=origin, place=place)
        if plugin.name != point.name:
            raise PluginInvalid(
                f"{origin} calls itself {plugin.name!r}, but a plugin has one name everywhere, that of its entry "
                f"point: give its class the `name` {point.name!r}, or rename the entry point; to start without it, add "
                f"{point.name!r} to plugins.disabled of the configuration file"
            )
        plugins[point.name] = plugin
    unknown = sorted((disabled | options.keys()) - known.keys())
    if unknown:
        raise PluginInvalid(
            f"the configuration names unknown plugins: {', '.join(unknown)}; installed are: {', '.join(sorted(known))}"
        )
    return list(plugins.values())


@functools.cache
def _name_of(distribution: Distribution | None) -> str:
    """Return the name of a distribution, which parses all of its metadata each time that it is read."""
    return distribution.name if distribution else "an unknown distribution"


def _import(point: EntryPoint, origin: str) -> Callable[..., interface.Plugin]:
    try:
        make: Callable[..., interface.Plugin] = point.load()
    except BaseException as error:
        raise _unloadable(origin, error) from error
    return make


def _construct(
    make: Callable[..., interface.Plugin], options: Mapping[str, Any], *, origin: str, place: str
) -> interface.Plugin:
    """Make a plugin and check it; `place` is where whoever wrote the options finds them."""
    _check_options(make, options, origin=origin, place=place)
    try:
        plugin = make(**options)
    except BaseException as error:
        if options and isinstance(error, TypeError | ValueError):
            raise PluginInvalid(f"{origin} does not accept its options: {error}; correct {place}") from error
        raise _unloadable(origin, error) from error
    check_plugin(plugin, origin=origin)
    return plugin


def _check_options(
    make: Callable[..., interface.Plugin], options: Mapping[str, Any], *, origin: str, place: str
) -> None:
    """Refuse options that a plugin does not have, and their absence where it needs them."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # a function of C may not say
        return
    named = {each.name: each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    unknown = sorted(options.keys() - named.keys())
    if unknown and not takes_any:
        # Functions are for tests and for code that embeds us; no file can hold one.
        offered = sorted(
            name for name, each in named.items() if each.default is each.empty or not callable(each.default)
        )
        wrong = f"{origin} has no option {unknown[0]!r}"
        if not offered:
            raise PluginInvalid(f"{wrong}, nor any other; remove {place}")
        raise PluginInvalid(f"{wrong}; it has: {', '.join(offered)}; correct {place}")
    for name, each in named.items():
        if each.default is each.empty and name not in options:
            raise PluginInvalid(f"{origin} needs the option {name!r}; set it in {place}")


def _unloadable(origin: str, error: BaseException) -> PluginInvalid:
    return PluginInvalid(f"{origin} cannot be loaded: {type(error).__name__}: {error}")
