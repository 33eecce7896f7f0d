"""Options of plugins that change while the manager runs.

Guarantees:
- A plugin with `reloads_options` is made anew when its options change; what has begun ends with the old one. If one
  does not accept them, none of the changes takes effect. If the new one would watch something else, or have another
  place, the old one stays until the manager is restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

import structlog

from trainmaster.controller.configuration import ConfigurationInvalid
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.framework.descriptor import is_own
from trainmaster.runtime.framework.loader import OPTIONS, discover, import_plugin, make_plugin

log = structlog.get_logger(__name__)


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
