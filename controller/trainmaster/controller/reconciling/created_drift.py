"""The drift of what was just created: whether the server made something else of it than we wanted.

A server fills in the same defaults each time that it creates an object of a kind. So what it filled in last is taken
out of what it has created now, and the rest is compared as a whole, several times as fast as a search for all that
differs (`drift_of_created`), which is for what differs otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from trainmaster.controller.reconciling.drift import Drift, drift_of_created
from trainmaster.runtime.jsontree import JsonObject

_Place: TypeAlias = tuple[Any, ...]
"""The names and positions that lead to a field."""

_MOST_PLACES: Final = 256
"""What is filled in at more places is not remembered."""


class CreatedDrift:
    """Compares created objects with what was wanted, and remembers what servers fill in, by kind."""

    def __init__(self) -> None:
        self._filled_in: dict[tuple[str, str], tuple[_Place, ...]] = {}

    def of(self, desired: JsonObject, created: JsonObject) -> Drift:
        """Return what `drift_of_created` returns.

        Args:
            desired: The object as it was applied.
            created: The object as the server returned it, without managedFields.
        """
        kind = desired["apiVersion"], desired["kind"]
        places = self._filled_in.get(kind)
        if places is not None and (found := _drift_apart_from(places, desired, created)) is not None:
            return found
        found = drift_of_created(desired, created)
        if found is not Drift.CERTAIN:
            places = tuple(islice(_places_filled_in(desired, created), _MOST_PLACES + 1))
            if len(places) <= _MOST_PLACES:
                self._filled_in[kind] = places
        return found


def _drift_apart_from(places: Iterable[_Place], desired: JsonObject, created: JsonObject) -> Drift | None:
    """Return the drift if the server filled in fields at these places and did nothing else; None if it did."""
    worst = drift_of_created(desired["metadata"], created["metadata"])
    if worst is Drift.CERTAIN:
        return None
    taken: list[tuple[JsonObject, str, Any]] = []
    try:
        for *steps, name in places:
            wanted: Any = desired
            there: Any = created
            for step in steps:
                if type(wanted) is list and not all(type(item) is dict and "name" in item for item in wanted):
                    worst = Drift.POSSIBLE
                wanted, there = wanted[step], there[step]
            if name in wanted:
                return None
            if not wanted:
                worst = Drift.POSSIBLE
            taken.append((there, name, there.pop(name)))
        same = all(name == "metadata" or value == created[name] for name, value in desired.items())
    except (AttributeError, IndexError, KeyError, TypeError):
        return None  # it is built otherwise than what was created before
    finally:
        for there, name, value in taken:
            there[name] = value
    return worst if same else None


def _places_filled_in(desired: JsonObject, created: JsonObject) -> Iterator[_Place]:
    """Find the fields that a server has filled in below those that were wanted, apart from the metadata."""
    for name, value in desired.items():
        if name != "metadata":
            yield from _places_below(value, created[name], (name,))


def _places_below(desired: Any, created: Any, place: _Place) -> Iterator[_Place]:
    if desired == created:
        return
    if type(desired) is dict:
        yield from ((*place, name) for name in created if name not in desired)
    steps: Iterable[Any] = desired if type(desired) is dict else range(len(desired))
    for step in steps:
        yield from _places_below(desired[step], created[step], (*place, step))
