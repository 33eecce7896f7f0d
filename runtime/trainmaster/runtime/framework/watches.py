"""What plugins declare to watch: checked one by one, and against each other.

Guarantee: what the caches could only serve by ignoring a part of it is refused at start, naming the plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainmaster.runtime.framework.signatures import PluginInvalid
from trainmaster.runtime.listers import Watch


def declared_watches(plugin: Any) -> list[Watch]:
    """Ask a plugin what it watches.

    Raises:
        PluginInvalid: It cannot say.
    """
    try:
        declared = list(plugin.watch_extension())
    except BaseException as error:
        raise PluginInvalid(f"plugin {plugin.name}: watch_extension failed: {type(error).__name__}: {error}") from error
    for watch in declared:
        fault = _fault_of(watch)
        if fault:
            raise PluginInvalid(f"plugin {plugin.name}: watch_extension must return Watch objects, {fault}")
    return declared


def _fault_of(watch: Any) -> str | None:
    if not isinstance(watch, Watch):
        return f"not {type(watch).__name__}"
    for field in ("api_version", "kind", "plural"):
        value = getattr(watch, field)
        if not (isinstance(value, str) and value):
            return f"and their {field} a text, not {value!r}"
    if watch.label_selector is not None and not isinstance(watch.label_selector, str):
        return f'and their label_selector a text like "app=web", not {watch.label_selector!r}'
    if watch.jobs is not None and not callable(watch.jobs):
        return f"and their jobs a function, not {watch.jobs!r}"
    return None


def refuse_contradictions(watches: Iterable[Watch]) -> None:
    """Refuse Watches that cannot all be right: of one kind with two plurals, say.

    Raises:
        PluginInvalid: Two contradict each other; the message names the plugins.
    """
    seen: dict[tuple[str, str, str], tuple[Watch, str]] = {}
    for watch in watches:
        for what, said in _statements(watch):
            other, before = seen.setdefault((watch.api_version, *what), (watch, said))
            if before != said:
                raise PluginInvalid(
                    f"plugins contradict each other about {what[1]} ({watch.api_version}) in watch_extension: "
                    f"{other.declared_by} says {before}, {watch.declared_by} says {said}; correct one of them, or "
                    "disable it"
                )


def _statements(watch: Watch) -> Iterator[tuple[tuple[str, str], str]]:
    """What a Watch says about its kind, and about its plural."""
    scope = "namespaced" if watch.namespaced else "cluster-scoped"
    yield ("kind", watch.kind), f"that its plural is {watch.plural!r} and that it is {scope}"
    yield ("plural", watch.plural), f"that its kind is {watch.kind!r}"
