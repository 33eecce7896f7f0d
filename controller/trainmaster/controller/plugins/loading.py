"""Loading: which plugins of a configuration run, and what becomes of one that does not load.

Guarantees:
- A plugin of Trainmaster itself that does not load is a `PluginInvalid`: it would be missed by too many. So is a name
  in the configuration that nothing installed has.
- One of others is that too, with its distribution and what to do; with `onLoadError: skip` it is left out, and so is
  one that contradicts those that were loaded before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final

import structlog

from trainmaster.controller.configuration import Plugins
from trainmaster.metrics.plugins import LOADED, publish_plugin
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.descriptor import is_own
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.loader import discover, load_plugins, refuse_unknown, unknown_names

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
        for text in unknown_names(self.plugins, self.installed):
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
        points: By default all entry points that are installed.

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
