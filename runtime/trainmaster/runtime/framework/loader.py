"""The loader: from the entry points of installed distributions to plugins, with the options of the configuration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from trainmaster.runtime import extension
from trainmaster.runtime.extension import ENTRY_POINT_GROUP
from trainmaster.runtime.framework.checks import PluginInvalid, check_plugin


def discover(group: str = ENTRY_POINT_GROUP) -> list[EntryPoint]:
    """List the plugins that installed distributions offer, by name."""
    return sorted(entry_points(group=group), key=lambda point: point.name)


def load_plugins(
    points: Iterable[EntryPoint] | None = None,
    *,
    disabled: frozenset[str] = frozenset(),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    features: frozenset[str] = frozenset(),
) -> list[extension.Plugin]:
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
    plugins: dict[str, extension.Plugin] = {}
    known: set[str] = set()
    for point in discover() if points is None else points:
        known.add(point.name)
        if point.name in disabled:
            continue
        origin = f"plugin {point.name!r} ({point.value}, from {_name_of(point.dist)})"
        if point.name in plugins:
            raise PluginInvalid(f"{origin} has the same name as another plugin; uninstall one of the two")
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
    unknown = sorted((disabled | options.keys()) - known)
    if unknown:
        raise PluginInvalid(
            f"the configuration names unknown plugins: {', '.join(unknown)}; installed are: {', '.join(sorted(known))}"
        )
    return list(plugins.values())


@functools.cache
def _name_of(distribution: Distribution | None) -> str:
    """Return the name of a distribution, which parses all of its metadata each time that it is read."""
    return distribution.name if distribution else "an unknown distribution"


def _import(point: EntryPoint, origin: str) -> Callable[..., extension.Plugin]:
    try:
        make: Callable[..., extension.Plugin] = point.load()
    except Exception as error:
        raise _unloadable(origin, error) from error
    return make


def _construct(
    make: Callable[..., extension.Plugin], options: Mapping[str, Any], *, origin: str, place: str
) -> extension.Plugin:
    """Make a plugin and check it; `place` is where whoever wrote the options finds them."""
    _check_options(make, options, origin=origin, place=place)
    try:
        plugin = make(**options)
    except Exception as error:
        if options and isinstance(error, TypeError | ValueError):
            raise PluginInvalid(f"{origin} does not accept its options: {error}; correct {place}") from error
        raise _unloadable(origin, error) from error
    check_plugin(plugin, origin=origin)
    return plugin


def _check_options(
    make: Callable[..., extension.Plugin], options: Mapping[str, Any], *, origin: str, place: str
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


def _unloadable(origin: str, error: Exception) -> PluginInvalid:
    return PluginInvalid(f"{origin} cannot be loaded: {type(error).__name__}: {error}")
