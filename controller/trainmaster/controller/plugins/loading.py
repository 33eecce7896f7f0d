"""Loading: which plugins of a configuration run, and what becomes of one that does not load.

Guarantees:
- A plugin of ours that does not load is a `PluginInvalid`: it would be missed by too many. So is a name in the
  configuration that nothing installed has.
- One of another distribution is that too, with its distribution and what to do; with `onLoadError: skip` it is left
  out, and so is one that contradicts those that were loaded before it.
- Nobody takes the place of a plugin of ours by its name; for that there is `replaces`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

import structlog

from trainmaster.controller.configuration import Plugins
from trainmaster.metrics.plugins import LOADED
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.loader import ALL, discover, is_built_in, origin_of, refuse_unknown, source_of

log = structlog.get_logger(__name__)

SKIP: Final = "skip"


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """What runs, and what does not."""

    plugins: Sequence[Plugin]
    others: frozenset[str]
    """Those that are not ours."""

    failed: Mapping[str, PluginInvalid]
    """Why others do not run that should."""

    installed: frozenset[str]
    """The names of all that are installed, whether they run or not."""

    def unknown_names(self) -> Iterator[str]:
        """Say which plugins name others that are not installed: most likely somebody has misspelt them."""
        for plugin in self.plugins:
            for attribute in ("before", "after", "replaces"):
                for name in getattr(plugin, attribute, ()):
                    if name not in self.installed:
                        yield (
                            f"{plugin.name} has {name!r} in its `{attribute}`, but no plugin of that name is installed "
                            f"{did_you_mean(name, sorted(self.installed))}"
                        )

    def tell(self) -> None:
        """Write what did not load into log and metrics, and what may be misspelt."""
        for plugin in self.plugins:
            LOADED.labels(plugin.name).set(1)
        for name, error in self.failed.items():
            LOADED.labels(name).set(0)
            log.error(
                "a plugin did not load and is left out",
                plugin=name,
                error=str(error),
                hint="correct it and restart the manager, or add it to plugins.disabled of the configuration; "
                "TrainJobs whose runtimes ask for what it serves are blocked",
                exc_info=error.__cause__,
            )
        for text in self.unknown_names():
            log.warning("a plugin names another one that is not installed", reason=text)

    def detail(self) -> str | None:
        """Say which plugins did not load, to everybody who reads probes."""
        return f"{', '.join(self.failed)} did not load" if self.failed else None


def load(
    settings: Plugins,
    *,
    options: Mapping[str, Mapping[str, Any]],
    features: Collection[str],
    points: Iterable[EntryPoint] | None = None,
) -> LoadedPlugins:
    """Load the plugins of a configuration.

    Args:
        settings: Its section.
        options: The options of plugins: those of the section, and what others add to them.
        features: The feature gates that are open.
        points: The entry points that there are; by default all that are installed.

    Raises:
        PluginInvalid: A plugin does not load that must not be left out.
    """
    found = list(discover() if points is None else points)
    installed = {point.name for point in found}
    named = {*settings.enabled, *settings.disabled, *settings.options, *settings.failure_policy} - {ALL}
    refuse_unknown(named, installed)
    ours = {point.name: point for point in found if is_built_in(point)}
    failed: dict[str, PluginInvalid] = {}

    def leave_out(name: str, error: PluginInvalid) -> None:
        if settings.on_load_error != SKIP:
            raise PluginInvalid(
                f"{error}; to start without it, add {name!r} to plugins.disabled of the configuration file, or set "
                "plugins.onLoadError to skip"
            ) from error.__cause__
        failed[name] = error

    foreign: dict[str, list[EntryPoint]] = {}
    for point in found:
        if is_built_in(point) or not is_wanted(point, settings):
            continue
        if point.name in ours:
            leave_out(point.name, _name_taken(point, ours[point.name]))
        else:
            foreign.setdefault(point.name, []).append(point)
    wanted = [point for point in ours.values() if is_wanted(point, settings)]
    plugins = load_points(wanted, options=options, features=features)
    for name, same in foreign.items():
        try:
            more = load_points(same, options=options, features=features)
            if more and settings.on_load_error == SKIP:
                # Otherwise whoever makes a framework of all is told.
                Framework([*plugins, *more]).watches()
        except PluginInvalid as error:
            leave_out(name, error)
        else:
            plugins += more
    loaded = frozenset(plugin.name for plugin in plugins)
    return LoadedPlugins(plugins, loaded - ours.keys(), failed, frozenset(installed))


def is_wanted(point: EntryPoint, settings: Plugins) -> bool:
    """Tell whether a configuration wants a plugin."""
    enabled = is_built_in(point) or ALL in settings.enabled or point.name in settings.enabled
    return enabled and point.name not in settings.disabled


def load_points(
    points: Collection[EntryPoint], *, options: Mapping[str, Mapping[str, Any]], features: Collection[str]
) -> list[Plugin]:
    """Load just these plugins, each with its own of the options of all.

    Raises:
        PluginInvalid: One of them does not load.
    """
    names = {point.name for point in points}
    own = {name: values for name, values in options.items() if name in names}
    return load_plugins(points, options=own, features=features)


def _name_taken(point: EntryPoint, own: EntryPoint) -> PluginInvalid:
    return PluginInvalid(
        f"{origin_of(point)} has the name of a plugin of Trainmaster itself ({source_of(own)}): give its entry point "
        f"another name, and its class `replaces = ({point.name!r},)` if it is to run instead; until then uninstall it"
    )
