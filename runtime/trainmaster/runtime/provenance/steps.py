"""Who set what in a tree: a tree of the same shape, with the name of a step in the place of each leaf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, TypeAlias

Steps: TypeAlias = "str | dict[str, Steps] | list[Steps]"

Path: TypeAlias = tuple[str | int, ...]

_KEYS: Final = ("name", "mountPath", "containerPort")
"""By what the elements of lists are told apart, where all of them have it and no two the same: of Kubernetes' merge
keys those that are in the templates of pods.
"""

_MOST_COMPARED: Final = 1_000_000
"""Pairs of elements of two lists; to find what they have in common takes a second or so for as many."""


def set_by(step: str, tree: Any) -> Steps:
    """Return the steps of a tree that one step has set."""
    if isinstance(tree, dict) and tree:
        return {key: set_by(step, value) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and tree:
        return [set_by(step, value) for value in tree]
    return step


def carried(before: Any, steps: Steps, now: Any, step: str) -> Steps:
    """Return the steps of a tree after a step: of what it has changed, or added, that step; of the rest the old ones.

    Args:
        before: The tree before.
        steps: Its steps.
        now: The tree now.
        step: What has happened in between.
    """
    if now and isinstance(now, dict) and isinstance(before, dict) and isinstance(steps, dict):
        return {
            key: carried(before[key], steps[key], value, step) if key in before else set_by(step, value)
            for key, value in now.items()
        }
    if now and isinstance(now, list | tuple) and isinstance(before, list | tuple) and isinstance(steps, list):
        return [
            set_by(step, value) if place is None else carried(before[place], steps[place], value, step)
            for value, place in zip(now, _places(before, now), strict=True)
        ]
    if isinstance(steps, str) and type(before) is type(now) and before == now:
        return steps
    return set_by(step, now)


def settled(steps: Steps, tree: Any, other: str) -> Steps:
    """Return the steps of a tree of which some are known: a step in the place of a tree is that of all of it.

    Args:
        steps: The known ones.
        tree: The tree.
        other: The step of all else.
    """
    if isinstance(steps, str):
        return set_by(steps, tree)
    if tree and isinstance(tree, dict) and isinstance(steps, dict):
        return {
            key: settled(steps[key], value, other) if key in steps else set_by(other, value)
            for key, value in tree.items()
        }
    if tree and isinstance(tree, list) and isinstance(steps, list) and len(tree) == len(steps):
        return [settled(known, value, other) for known, value in zip(steps, tree, strict=True)]
    return set_by(other, tree)


def put(steps: Steps, path: Path, old: str, new: Steps) -> None:
    """Put other steps in the place of one of them, below a path.

    Args:
        steps: What is changed.
        path: It leads somewhere.
        old: The step that others take the place of; the rest below the path stays.
        new: A step, or a tree of steps of the shape that there is.
    """
    *above, last = path
    holder: Any = steps
    for part in above:
        holder = holder[part]
    holder[last] = _put(holder[last], old, new)


def _put(steps: Steps, old: str, new: Steps) -> Steps:
    if isinstance(steps, dict):
        return {key: _put(value, old, new[key] if isinstance(new, dict) else new) for key, value in steps.items()}
    if isinstance(steps, list):
        return [_put(value, old, new[index] if isinstance(new, list) else new) for index, value in enumerate(steps)]
    return new if steps == old else steps


def value_at(tree: Any, path: Path) -> Any:
    """Follow a path; None where it leads nowhere."""
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def leaves(tree: Any, steps: Steps, path: Path = ()) -> Iterator[tuple[Path, Any, str]]:
    """Iterate over the leaves of a tree with their paths and their steps."""
    if isinstance(steps, dict):
        for key, value in steps.items():
            yield from leaves(tree[key], value, (*path, key))
    elif isinstance(steps, list):
        for index, value in enumerate(steps):
            yield from leaves(tree[index], value, (*path, index))
    else:
        yield path, tree, steps


def _places(before: Sequence[Any], now: Sequence[Any]) -> list[int | None]:
    """Return for each element of a list where it was before, if it was."""
    if before == now:  # as most lists are after most steps
        return list(range(len(now)))
    for key in _KEYS:
        old, new = _names(before, key), _names(now, key)
        if old is not None and new is not None:
            places = {name: place for place, name in enumerate(old)}
            return [places.get(name) for name in new]
    found: list[int | None] = [None] * len(now)
    if len(before) * len(now) > _MOST_COMPARED:
        found[: len(before)] = range(min(len(before), len(now)))
        return found
    matcher = SequenceMatcher(None, list(map(repr, before)), list(map(repr, now)), autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag in ("equal", "replace"):  # what has been replaced may be so in part
            for offset in range(min(end - start, new_end - new_start)):
                found[new_start + offset] = start + offset
    return found


def _names(elements: Sequence[Any], key: str) -> list[Any] | None:
    names = [element.get(key) if isinstance(element, dict) else None for element in elements]
    if any(not isinstance(name, str | int) for name in names) or len(set(names)) < len(names):
        return None
    return names
