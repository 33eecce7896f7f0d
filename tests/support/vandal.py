"""A plugin that breaks whatever it is given, as deep down as it can reach."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

from trainmaster.runtime.api import ApiModel
from trainmaster.runtime.framework.signatures import PHASES

EXTENSION_POINTS = [
    (phase, argument)
    for phase, point in PHASES.items()
    for argument in list(inspect.signature(getattr(point, phase)).parameters)[1:]
]
"""Every argument of every extension point."""


def vandal(phase: str, argument: str, reads: Iterable[tuple[str, str, str | None, str]] = ()) -> Any:
    """Make a plugin that breaks one argument of one extension point.

    Args:
        phase: The extension point.
        argument: The name of its argument.
        reads: What it gets from listers: API version, kind, namespace and name.
    """
    signature = inspect.signature(getattr(PHASES[phase], phase))

    def run(self: Any, **given: Any) -> Any:
        wreck(given[argument], list(reads))
        self.ran = True
        return {"status": None, "applies_to": True}.get(phase, ())

    run.__signature__ = signature  # type: ignore[attr-defined] # what `inspect.signature` looks for
    nothing = lambda self: ()  # noqa: E731 - what a plugin needs at least
    attributes = {"name": "vandal", "priority": 1000, "ran": False, "watch_extension": nothing, phase: run}
    return type("Vandal", (), attributes)()


def wreck(node: Any, reads: list[tuple[str, str, str | None, str]], seen: set[int] | None = None) -> None:
    """Change everything that can be reached from an object by public names, frozen or not."""
    seen = set() if seen is None else seen
    if node is None or isinstance(node, str | bytes | int | float | tuple) or id(node) in seen:
        return
    seen.add(id(node))
    for each in _below(node, reads):
        wreck(each, reads, seen)
    if isinstance(node, dict):
        for key in node:
            node[key] = "broken"
        node["vandal"] = "was here"
    elif isinstance(node, list):
        node[:] = ["vandal"]
    elif isinstance(node, set):
        node.clear()
    elif dataclasses.is_dataclass(node):
        for name in _public_fields(node):
            with contextlib.suppress(AttributeError):
                setattr(node, name, "broken")


def _below(node: Any, reads: list[tuple[str, str, str | None, str]]) -> list[Any]:
    match node:
        case dict():
            return list(node.values())
        case list() | set():
            return list(node)
        case ApiModel():
            return [node.__dict__, node.__pydantic_extra__, node.__pydantic_fields_set__]
    if dataclasses.is_dataclass(node):
        properties = [name for name, each in inspect.getmembers(type(node)) if isinstance(each, property)]
        below = []
        for name in (*_public_fields(node), *properties):
            with contextlib.suppress(AttributeError, KeyError, TypeError):  # what it rests on may be broken already
                below.append(getattr(node, name))
        return below
    found = [node.get(*each) for each in reads]
    return [*found, *(list(node.list(*each[:3])) for each in reads)]


def _public_fields(node: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(node) if not field.name.startswith("_")]
