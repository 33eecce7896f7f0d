"""What plugins declare to watch: checked one by one, and against each other.

Guarantee: what the caches could only serve by ignoring a part of it is refused at start, naming the plugins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    if watch.jobs is not None:
        if not callable(watch.jobs):
            return f"and their jobs a function, not {watch.jobs!r}"
        if not (_fits(watch.jobs) or takes_listers(watch.jobs)):
            return "and their jobs a function that takes (obj) or (obj, listers)"
    if not watch.reads and (not watch.creates_only or watch.jobs is not None or watch.indexes or watch.label_selector):
        return f"and {watch.kind} is not read: it needs creates_only=True, and has no jobs, indexes or label_selector"
    if watch.prunes and (not watch.writes or watch.workload or not watch.namespaced):
        return f"and what is pruned is built, in namespaces, and no workload: {watch.kind} needs writes=True"
    return _fault_of_indexes(watch.indexes) or _fault_of_namespaces(watch) or _fault_of_workload(watch)


def _fault_of_indexes(indexes: Any) -> str | None:
    if not isinstance(indexes, Mapping):
        return f'and their indexes a mapping of names to functions, for instance {{"acme-queue": ...}}, not {indexes!r}'
    for name, function in indexes.items():
        if not (isinstance(name, str) and name):
            return f"and the names of their indexes texts, not {name!r}"
        if not callable(function) or not _fits(function):
            return f"and their index {name!r} a function that takes (obj), not {function!r}"
    return None


def _fault_of_namespaces(watch: Watch) -> str | None:
    names: Any = watch.namespaces
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        return f'and their namespaces a tuple of names, for instance ("team-a",), not {names!r}'
    if names and not watch.namespaced:
        return f"and {watch.kind} is said to belong to no namespace, so it has no namespaces to choose"
    if names and watch.writes:
        return (
            f"and {watch.kind} is said to be built, which happens wherever there are TrainJobs; declare what is read "
            "of some namespaces by a Watch of its own, without writes"
        )
    return None


def _fault_of_workload(watch: Watch) -> str | None:
    if not watch.workload:
        return None
    if not watch.writes or watch.creates_only:
        return f"and a workload is built and stopped: {watch.kind} needs writes=True, and not creates_only"
    if watch.metadata_only or not watch.namespaced:
        return f"and a workload is read whole, in the namespace of its TrainJob: {watch.kind} cannot be one"
    return None


def takes_listers(jobs: Callable[..., Any]) -> bool:
    """Tell whether a `Watch.jobs` takes listers beside the object: it has an argument of that name."""
    try:
        return "listers" in inspect.signature(jobs).parameters and _fits(jobs, listers=None)
    except (TypeError, ValueError):
        return False  # it says nothing of itself, as some functions that are written in C


def _fits(function: Callable[..., Any], **more: Any) -> bool:
    try:
        inspect.signature(function).bind(None, **more)
    except TypeError:
        return False
    except ValueError:
        return True  # as above: nobody knows
    return True


def refuse_contradictions(watches: Iterable[Watch]) -> None:
    """Refuse Watches that cannot all be right: of one kind with two plurals, or two indexes of one name, say.

    Raises:
        PluginInvalid: Two contradict each other; the message names the plugins.
    """
    seen: dict[tuple[str, str, str], tuple[Watch, str]] = {}
    indexes: dict[tuple[str, str, str], Watch] = {}
    for watch in watches:
        for index in watch.indexes:
            first = indexes.setdefault((watch.api_version, watch.kind, index), watch)
            if first is not watch:
                raise PluginInvalid(
                    f"there are two indexes {index!r} of {watch.kind} ({watch.api_version}) in watch_extension, of "
                    f"{first.declared_by} and of {watch.declared_by}; give one of them another name, which begins with "
                    "that of its plugin for instance"
                )
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
