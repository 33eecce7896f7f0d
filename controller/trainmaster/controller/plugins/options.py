"""Options of plugins that change while the manager runs.

Guarantees:
- A plugin that says that it can (`reloads_options`) is made anew with its new options, and takes the place of the old
  one at once: what has begun ends with the old one.
- Where it cannot be made, because its options do not fit, none of the changes takes effect, and the old ones stay.
- Where the new one would watch something else, or have another place, the old one stays until the manager is restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

import structlog

from trainmaster.controller.configuration import ConfigurationInvalid
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.loader import discover, import_plugin, make_plugin

log = structlog.get_logger(__name__)

_PATH: Final = "plugins.options."


class PluginOptions:
    """The options of the plugins of a framework.

    Args:
        framework: The plugins.
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
        """Tell whether an option, by its path in the file, takes effect in a running manager."""
        name = path.removeprefix(_PATH)
        descriptor = self._framework.descriptors().get(name) if name != path else None
        return descriptor is not None and descriptor.reloads_options and name not in self._waiting

    def reload(self, options: Mapping[str, Mapping[str, Any]]) -> None:
        """Put new options in effect, of the plugins that can.

        Raises:
            ConfigurationInvalid: They do not fit; nothing has changed then.
        """
        changed = [
            name
            for name in self._framework.names()
            if self.reloads(f"{_PATH}{name}") and options.get(name, {}) != self._options.get(name, {})
        ]
        made = [self._made(name, options.get(name, {})) for name in changed]
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

    def _made(self, name: str, options: Mapping[str, Any]) -> Plugin:
        points = {point.name: point for point in (discover() if self._points is None else self._points)}
        try:
            return make_plugin(points[name], import_plugin(points[name]), options)
        except PluginInvalid as error:
            raise ConfigurationInvalid(str(error)) from error
