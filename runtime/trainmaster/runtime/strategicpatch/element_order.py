"""The order of elements in a merged list, and what makes two elements the same.

Kubernetes keeps two orders at once: the elements that a patch names come in the patch's order, the others in the order
they had. Where the two leave a choice, an element that the patch does not name stays before the named one that it
preceded; new elements come as early as the patch's order allows. Merging [A', N] into [A, B] thus gives [A', N, B].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Identity: TypeAlias = tuple[bool, str | int | float]
"""What two elements of a list have in common if they are the same: a scalar, with booleans told from numbers."""


def identity_of(value: object) -> Identity | None:
    """Give the identity of a scalar; None for a value that cannot identify anything."""
    if isinstance(value, (str, int, float)):
        return isinstance(value, bool), value
    return None


def normalize_element_order(
    elements: Iterable[tuple[Identity, Any]], *, named: Sequence[Identity], before: Sequence[Identity]
) -> list[Any]:
    """Order the elements of a merged list.

    `named` is the order of the elements that the patch names, `before` that of the list before the merge.
    """
    rank = _first_places(named)
    place = _first_places(before)
    ours: list[tuple[Identity, Any]] = []
    theirs: list[tuple[Identity, Any]] = []
    for element in elements:
        (ours if element[0] in rank else theirs).append(element)
    ours.sort(key=lambda element: rank[element[0]])
    theirs.sort(key=lambda element: place.get(element[0], len(place)))

    ordered: list[Any] = []
    taken = 0
    for identity, value in ours:
        if identity in place:
            while taken < len(theirs) and place.get(theirs[taken][0], len(place)) < place[identity]:
                ordered.append(theirs[taken][1])
                taken += 1
        ordered.append(value)
    ordered.extend(value for _, value in theirs[taken:])
    return ordered


def is_in_order(elements: Iterable[Identity], order: Iterable[Identity]) -> bool:
    """Tell whether all the elements occur in `order`, one after the other."""
    remaining = iter(order)
    return all(element in remaining for element in elements)


def _first_places(identities: Iterable[Identity]) -> dict[Identity, int]:
    places: dict[Identity, int] = {}
    for place, identity in enumerate(identities):
        places.setdefault(identity, place)
    return places
