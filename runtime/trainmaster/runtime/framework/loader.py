"""The loader: from the entry points of installed distributions to plugins, with the options of the configuration.

Guarantee: a plugin that does not load, or that does not fit the interface, is a `PluginInvalid` that names it together
with its distribution. What it says of itself is checked before it is made.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework.descriptor import Descriptor, describe
from trainmaster.runtime.framework.interface import ENTRY_POINT_GROUP, Plugin
from trainmaster.runtime.framework.models import ModelInvalid, parse_model
from trainmaster.runtime.framework.signatures import PluginInvalid

ALL = "*"
"""In the place of a name in `plugins.enabled`: all that is installed."""

_OWN_DISTRIBUTION = "trainmaster"

OPTIONS = "plugins.options"
"""Where the options of plugins stand in the configuration file."""


def discover(group: str = ENTRY_POINT_GROUP) -> list[EntryPoint]:
    """List the plugins that installed distributions offer, by name."""
    return sorted(entry_points(group=group), key=lambda point: point.name)


def load_plugins(
    points: Iterable[EntryPoint] | None = None,
    *,
    enabled: Collection[str] = (ALL,),
    disabled: Collection[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    features: Collection[str] = (),
) -> list[Plugin]:
    """Load and construct plugins.

    Args:
        points: The entry points to load; default is everything installed.
        enabled: The plugins that are wanted, by name, which is that of the entry point; `*` stands for all.
        disabled: Plugins that are left out all the same. What is left out is not imported.
        options: Options of plugins, by plugin name.
        features: The feature gates that are open; a plugin behind another one is left out.

    Raises:
        PluginInvalid: A plugin does not load, or the configuration names unknown plugins.
    """
    options = dict(options or {})
    found = list(discover() if points is None else points)
    refuse_unknown({*enabled, *disabled, *options} - {ALL}, {point.name for point in found})
    sources: dict[str, list[EntryPoint]] = {}
    for point in found:
        if point.name not in disabled and (ALL in enabled or point.name in enabled):
            sources.setdefault(point.name, []).append(point)
    plugins = (_load(same, options.get(name, {}), features) for name, same in sources.items())
    return [plugin for plugin in plugins if plugin is not None]


def describe_point(point: EntryPoint) -> Descriptor:
    """Import a plugin, and read what its class says of itself, without making one.

    Raises:
        PluginInvalid: It does not load, or does not fit the interface.
    """
    origin = origin_of(point)
    descriptor = describe(import_plugin(point), origin=origin)
    _check_name(descriptor.name, point, origin)
    return descriptor


def import_plugin(point: EntryPoint) -> Callable[..., Plugin]:
    """Import the class of a plugin.

    Raises:
        PluginInvalid: It cannot be imported, whatever it raises.
    """
    try:
        make: Callable[..., Plugin] = point.load()
    except BaseException as error:
        raise _unloadable(origin_of(point), error) from error
    return make


def make_plugin(point: EntryPoint, make: Callable[..., Plugin], options: Mapping[str, Any]) -> Plugin:
    """Make a plugin and check it.

    Raises:
        PluginInvalid: It does not fit the interface, does not accept its options, or fails.
    """
    origin, place = origin_of(point), f"{OPTIONS}.{point.name}"
    if isinstance(getattr(make, "name", None), str):
        _check_name(make.name, point, origin)  # type: ignore[attr-defined]  # just seen
        describe(make, origin=origin)
    model = getattr(make, "options_model", None)
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = options
    if model is not None:
        try:
            arguments, keywords = (parse_model(model, options, place),), {}
        except ModelInvalid as error:
            raise PluginInvalid(f"{origin} does not accept its options: {error}") from error
    else:
        _check_options(make, options, origin=origin, place=f"{place} of the configuration file")
    try:
        plugin = make(*arguments, **keywords)
    except BaseException as error:
        if options and isinstance(error, TypeError | ValueError):
            raise PluginInvalid(
                f"{origin} does not accept its options: {error}; correct {place} of the configuration file"
            ) from error
        raise _unloadable(origin, error) from error
    describe(plugin, origin=origin)
    _check_name(plugin.name, point, origin)
    return plugin


def is_built_in(point: EntryPoint) -> bool:
    """Tell whether a plugin is one of Trainmaster itself."""
    return point.dist is not None and _name_of(point.dist) == _OWN_DISTRIBUTION


def origin_of(point: EntryPoint) -> str:
    """Name a plugin with where it comes from, for messages."""
    return f"plugin {point.name!r} ({source_of(point)})"


def source_of(point: EntryPoint) -> str:
    """Say where a plugin comes from: its class, and the distribution."""
    return f"{point.value}, from {_name_of(point.dist)}"


def _load(same: list[EntryPoint], options: Mapping[str, Any], features: Collection[str]) -> Plugin | None:
    point, *others = same
    if others:
        raise PluginInvalid(
            f"{origin_of(others[0])} has the same name as another plugin ({source_of(point)}); uninstall one of the "
            f"two, or add {point.name!r} to plugins.disabled of the configuration file, which leaves out both"
        )
    make = import_plugin(point)
    gate = getattr(make, "feature_gate", None)
    if gate is not None and gate not in features:
        return None
    return make_plugin(point, make, options)


def refuse_unknown(named: set[str], known: set[str]) -> None:
    """Refuse names of plugins that are not installed.

    Raises:
        PluginInvalid: There are some; the message says which are installed.
    """
    unknown = sorted(named - known)
    if unknown:
        suggestion = f" {did_you_mean(unknown[0], sorted(known))}" if len(unknown) == 1 else ""
        raise PluginInvalid(
            f"the configuration names unknown plugins: {', '.join(unknown)}{suggestion}; installed are: "
            f"{', '.join(sorted(known))}"
        )


def _check_name(name: str, point: EntryPoint, origin: str) -> None:
    if name != point.name:
        raise PluginInvalid(
            f"{origin} calls itself {name!r}, but a plugin has one name everywhere, that of its entry point: give its "
            f"class the `name` {point.name!r}, or rename the entry point; to start without it, add {point.name!r} to "
            "plugins.disabled of the configuration file"
        )


@functools.cache
def _name_of(distribution: Distribution | None) -> str:
    """Return the name of a distribution, which parses all of its metadata each time that it is read."""
    return distribution.name if distribution else "an unknown distribution"


def _check_options(make: Callable[..., Plugin], options: Mapping[str, Any], *, origin: str, place: str) -> None:
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
            hint = " (or its class, if that is to be a model, an options_model)" if name == "options" else ""
            raise PluginInvalid(f"{origin} needs the option {name!r}{hint}; set it in {place}")


def _unloadable(origin: str, error: BaseException) -> PluginInvalid:
    return PluginInvalid(f"{origin} cannot be loaded: {type(error).__name__}: {error}")
