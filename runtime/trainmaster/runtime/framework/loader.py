"""The loader: from the entry points of installed distributions to plugins, with the options of the configuration.

Guarantees:
- A plugin that does not load, or that does not fit the interface, is a `PluginInvalid` that names it together with its
  distribution. What it says of itself is checked before it is made.
- Nobody takes the place of a plugin of Trainmaster by its name; for that there is `replaces`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework.descriptor import Descriptor, describe, is_own
from trainmaster.runtime.framework.framework import Framework
from trainmaster.runtime.framework.interface import ENTRY_POINT_GROUP, Plugin
from trainmaster.runtime.framework.models import ModelInvalid, parse_model
from trainmaster.runtime.framework.signatures import PluginInvalid

ALL = "*"
"""In the place of a name in `plugins.enabled`: all that is installed."""

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
    leave_out: Callable[[str, PluginInvalid], object] | None = None,
) -> list[Plugin]:
    """Load and construct plugins, those of Trainmaster itself first.

    Args:
        points: The entry points to load; default is everything installed.
        enabled: The plugins of others that are wanted, by name, which is that of the entry point; `*` stands for all.
        disabled: Plugins that are left out all the same. What is left out is not imported.
        features: The feature gates that are open; a plugin behind another one is left out.
        leave_out: Called for each plugin of others that does not load, or contradicts those before it, with its name
            and the reason. By default the reason is raised; contradictions are left to the framework of all then.

    Raises:
        PluginInvalid: A plugin does not load, or the configuration names unknown plugins.
    """
    options = dict(options or {})
    found = list(discover() if points is None else points)
    refuse_unknown({*enabled, *disabled, *options} - {ALL}, {point.name for point in found})
    wanted = [point for point in found if is_wanted(point, enabled=enabled, disabled=disabled)]
    own = {point.name: point for point in wanted if is_own(point)}
    loaded = (load_plugin(point, options.get(name, {}), features) for name, point in own.items())
    plugins = [plugin for plugin in loaded if plugin is not None]
    others: dict[str, list[EntryPoint]] = {}
    for point in wanted:
        if not is_own(point):
            others.setdefault(point.name, []).append(point)
    for name, (point, *same) in others.items():
        try:
            _refuse_second(point, own.get(name), same)
            plugin = load_plugin(point, options.get(name, {}), features)
            more = [] if plugin is None else [plugin]
            if leave_out is not None:
                Framework([*plugins, *more]).watches()
        except PluginInvalid as error:
            if leave_out is None:
                raise
            leave_out(name, error)
        else:
            plugins += more
    return plugins


def unknown_names(plugins: Iterable[Plugin], installed: Collection[str]) -> Iterator[str]:
    """Say which plugins name others that are not installed: most likely somebody has misspelt them."""
    for plugin in plugins:
        for attribute in ("before", "after", "replaces"):
            for name in getattr(plugin, attribute, ()):
                if name not in installed:
                    yield (
                        f"{plugin.name} has {name!r} in its `{attribute}`, but no plugin of that name is installed "
                        f"{did_you_mean(name, sorted(installed))}"
                    )


def is_wanted(point: EntryPoint, *, enabled: Collection[str], disabled: Collection[str]) -> bool:
    """Return whether a configuration wants a plugin: one of Trainmaster itself need not be enabled."""
    return point.name not in disabled and (is_own(point) or ALL in enabled or point.name in enabled)


def load_plugin(point: EntryPoint, options: Mapping[str, Any], features: Collection[str]) -> Plugin | None:
    """Load and construct a plugin; None if its feature gate is not open.

    Raises:
        PluginInvalid: It does not load.
    """
    make = import_plugin(point)
    gate = getattr(make, "feature_gate", None)
    return None if gate is not None and gate not in features else make_plugin(point, make, options)


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


def origin_of(point: EntryPoint) -> str:
    """Name a plugin with where it comes from, for messages."""
    return f"plugin {point.name!r} ({source_of(point)})"


def source_of(point: EntryPoint) -> str:
    """Say where a plugin comes from: its class, and the distribution."""
    return f"{point.value}, from {_name_of(point.dist)}"


def _refuse_second(point: EntryPoint, own: EntryPoint | None, same: Sequence[EntryPoint]) -> None:
    """Refuse a plugin of others whose name one of Trainmaster itself has, or another one."""
    if own is not None:
        raise PluginInvalid(
            f"{origin_of(point)} has the name of a plugin of Trainmaster itself ({source_of(own)}): give its entry "
            f"point another name, and its class `replaces = ({point.name!r},)` if it is to run instead; until then "
            "uninstall it"
        )
    if same:
        raise PluginInvalid(
            f"{origin_of(same[0])} has the same name as another plugin ({source_of(point)}); uninstall one of the "
            f"two, or add {point.name!r} to plugins.disabled of the configuration file, which leaves out both"
        )


def refuse_unknown(named: Collection[str], known: Collection[str]) -> None:
    """Refuse names of plugins that are not installed.

    Raises:
        PluginInvalid: There are some; the message says which are installed.
    """
    unknown = sorted(set(named).difference(known))
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
