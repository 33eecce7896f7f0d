"""Loading: which plugins of a configuration run, what becomes of one that does not load, and options that change.

Guarantees:
- A plugin of Trainmaster itself that does not load is a `PluginInvalid`: it would be missed by too many. So is a name
  in the configuration that nothing installed has.
- One of others is that too, with its distribution and what to do; with `onLoadError: skip` it is left out, and so is
  one that contradicts those that were loaded before it.
- A plugin with `reloads_options` is made anew when its options change; what has begun ends with the old one. If one
  does not accept them, none of the changes takes effect. If the new one would watch something else, or have another
  place, the old one stays until the manager is restarted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

import structlog

from trainmaster.controller.configuration import ConfigurationInvalid, Plugins
from trainmaster.metrics.plugins import LOADED, publish_plugin
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.framework.descriptor import is_own
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.loader import (
    OPTIONS,
    discover,
    import_plugin,
    load_plugins,
    make_plugin,
    refuse_unknown,
)

log = structlog.get_logger(__name__)

SKIP: Final = "skip"


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """What runs, and what does not."""

    plugins: Sequence[Plugin]
    failed: Mapping[str, PluginInvalid]
    """Why plugins of others do not run that should."""

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

    def publish(self) -> None:
        """Write into metrics and log what did and what did not load, and what may be misspelt."""
        for plugin in self.plugins:
            publish_plugin(plugin.name, guarded=not is_own(plugin))
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


def load(
    settings: Plugins,
    *,
    options: Mapping[str, Mapping[str, Any]],
    features: Collection[str],
    points: Iterable[EntryPoint] | None = None,
) -> LoadedPlugins:
    """Load the plugins of a configuration.

    Args:
        options: The options of plugins: those of the section, and what others add to them.
        points: The entry points that there are; by default all that are installed.

    Raises:
        PluginInvalid: A plugin does not load that must not be left out.
    """
    found = list(discover() if points is None else points)
    installed = frozenset(point.name for point in found)
    refuse_unknown(settings.failure_policy.keys(), installed)
    failed: dict[str, PluginInvalid] = {}

    def leave_out(name: str, error: PluginInvalid) -> None:
        if settings.on_load_error != SKIP:
            raise PluginInvalid(
                f"{error}; to start without it, add {name!r} to plugins.disabled of the configuration file, or set "
                "plugins.onLoadError to skip"
            ) from error.__cause__
        failed[name] = error

    plugins = load_plugins(
        found,
        enabled=settings.enabled,
        disabled=settings.disabled,
        options=options,
        features=features,
        leave_out=leave_out,
    )
    return LoadedPlugins(plugins, failed, installed)


class PluginOptions:
    """The options of the plugins of a framework.

    Args:
        options: Their options as the manager started with them, by plugin.
        points: The entry points of the plugins; by default all that are installed.
    """

    def __init__(
        self,
        framework: Framework,
        options: Mapping[str, Mapping[str, Any]],
        *,
        points: Iterable[EntryPoint] | None = None,
    ) -> None:
        self._framework = framework
        self._options = dict(options)
        self._waiting: set[str] = set()
        self._points = points

    def reloads(self, path: str) -> bool:
        """Return whether an option, by its path in the file, takes effect in a running manager."""
        name = path.removeprefix(f"{OPTIONS}.")
        descriptor = self._framework.descriptors().get(name) if name != path else None
        return descriptor is not None and descriptor.reloads_options and name not in self._waiting

    def reload(self, options: Mapping[str, Mapping[str, Any]]) -> None:
        """Put new options in effect, of the plugins that can.

        Raises:
            ConfigurationInvalid: They do not fit; nothing has changed then.
        """
        is_own_by_name = {plugin.name: is_own(plugin) for plugin in self._framework.plugins()}
        changed = {name for name in is_own_by_name if options.get(name, {}) != self._options.get(name, {})}
        points = [
            point
            for point in (discover() if self._points is None else self._points)
            if point.name in changed and self.reloads(f"{OPTIONS}.{point.name}")
            # One of others that has the name of an own one was left out at the start.
            if is_own(point) == is_own_by_name[point.name]
        ]
        try:
            made = [make_plugin(point, import_plugin(point), options.get(point.name, {})) for point in points]
        except PluginInvalid as error:
            raise ConfigurationInvalid(str(error)) from error
        for plugin in made:
            self._options[plugin.name] = options.get(plugin.name, {})
            try:
                self._framework.replace(plugin)
            except PluginInvalid as error:
                self._waiting.add(plugin.name)
                log.warning(
                    "new options of a plugin wait for a restart of the manager; it goes on with the old ones",
                    plugin=plugin.name,
                    reason=str(error),
                )
            else:
                log.info("a plugin has new options", plugin=plugin.name)
