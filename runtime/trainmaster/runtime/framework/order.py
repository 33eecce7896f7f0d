"""The order of plugins, the same in every process: by `before` and `after`, then priority (higher first), then name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from trainmaster.runtime import extension
from trainmaster.runtime.framework.checks import PluginInvalid


@dataclass(frozen=True, slots=True)
class _Place:
    priority: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def _place(plugin: extension.Plugin) -> _Place:
    return _Place(
        priority=getattr(plugin, "priority", 0),
        before=tuple(getattr(plugin, "before", ())),
        after=tuple(getattr(plugin, "after", ())),
    )


def order_plugins(plugins: Sequence[extension.Plugin]) -> list[extension.Plugin]:
    """Sort plugins: `before` and `after` first (names that are not loaded do not matter), then priority, then name.

    Raises:
        PluginInvalid: `before` and `after` contradict each other.
    """
    by_name = {plugin.name: plugin for plugin in plugins}
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_name, ()))
    for plugin in plugins:
        place = _place(plugin)
        for name in place.after:
            if name in by_name:
                sorter.add(plugin.name, name)
        for name in place.before:
            if name in by_name:
                sorter.add(name, plugin.name)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " before ".join(error.args[1])
        raise PluginInvalid(
            f"the order of plugins contradicts itself: {cycle}; change their `before` and `after`"
        ) from error
    ordered: list[extension.Plugin] = []
    ready: list[str] = []
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        ready.sort(key=lambda name: (-_place(by_name[name]).priority, name))
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
    return ordered
