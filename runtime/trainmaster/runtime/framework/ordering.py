"""The order of plugins within each phase: `before` and `after` first, then priority (higher first), then name.

Guarantee: the order is the same in every process. `Framework.order` prints it.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from trainmaster.runtime.framework.descriptor import place_of
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.signatures import PluginInvalid


def order_plugins(plugins: Sequence[Plugin]) -> list[Plugin]:
    """Sort plugins; names that are not loaded do not matter.

    Raises:
        PluginInvalid: `before` and `after` contradict each other.
    """
    by_name = {plugin.name: plugin for plugin in plugins}
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_name, ()))
    for plugin in plugins:
        place = place_of(plugin)
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
    ordered: list[Plugin] = []
    ready: list[str] = []
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        ready.sort(key=lambda name: (-place_of(by_name[name]).priority, name))
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
    return ordered
