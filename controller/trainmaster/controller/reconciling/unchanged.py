"""Recognising at a glance what is as it was applied, as nearly everything is: the short way to `Drift.NONE`.

Guarantees:
- True is certain: `drift.differences` finds nothing. False says nothing, and takes the long way.
- What usually becomes of an object is recognised: fields that the server and others add to maps, keys that the server
  fills in (a port's protocol), and lists of maps that have the same items in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

from trainmaster.controller.reconciling.managedfields import Identity, identity_of, key_names
from trainmaster.runtime.jsontree import JsonObject


def is_unchanged(desired: JsonObject, observed: Any, fields: Any) -> bool:
    """Tell whether a map, of which `fields` are owned, certainly is as desired, and nothing more of it is owned."""
    if not isinstance(observed, dict) or not isinstance(fields, dict):
        return False
    if len(desired) != len(fields) - ("." in fields):
        return False
    try:
        for name, wanted in desired.items():
            below, live = fields["f:" + name], observed[name]
            if not below:
                # Most values are plain, and equal.
                if wanted != live:
                    return False
            elif isinstance(wanted, dict):
                if not is_unchanged(wanted, live, below):
                    return False
            elif not _is_list_unchanged(wanted, live, below):
                return False
    except KeyError:
        return False
    return True


def _is_list_unchanged(desired: Any, observed: Any, fields: Any) -> bool:
    """Tell the same of a list of maps that are owned one by one."""
    if not isinstance(desired, list) or not isinstance(observed, list) or not isinstance(fields, dict):
        return False
    names, owners = _keys(tuple(fields))
    if names is None or not len(desired) == len(observed) == len(owners) == len(fields) - ("." in fields):
        return False
    try:
        identities = _identities(observed, names)
        if len(set(identities)) != len(identities):
            return False  # each is owned for itself
        if identities != (_identities(desired, names) if len(names) == 1 else _completed(desired, identities, names)):
            return False
        for wanted, live, identity in zip(desired, observed, identities, strict=True):
            below = fields[owners[identity]]
            if not (is_unchanged(wanted, live, below) if below else wanted == live):
                return False
    except (AttributeError, KeyError, TypeError):
        return False  # an item is no map, lacks a key or has one that is no plain value, or is not owned
    return True


# The lists of what is made from one runtime have items of the same names, and each list is looked at as a whole.
@lru_cache(maxsize=1024)
def _keys(elements: tuple[str, ...]) -> tuple[tuple[str, ...] | None, Mapping[Identity | None, str]]:
    """Return the fields that identify the items of a list, None for a set, and its elements by what they identify."""
    return key_names(elements), {identity_of(element): element for element in elements if element != "."}


def _identities(items: list[JsonObject], names: tuple[str, ...]) -> list[Identity]:
    return list(zip(*(map(itemgetter(name), items) for name in names), strict=True))


def _completed(items: list[JsonObject], found: list[Identity], names: tuple[str, ...]) -> list[Identity]:
    """Return the identities of items; what one leaves to the server to fill in (a port's protocol) is as `found`.

    If several do, each could be the one that was completed to this.
    """
    identities = [tuple(map(item.get, names)) for item in items]
    incomplete = [position for position, identity in enumerate(identities) if None in identity]
    if len(incomplete) == 1:
        (position,) = incomplete
        parts = zip(identities[position], found[position], strict=True)
        identities[position] = tuple(there if part is None else part for part, there in parts)
    return identities
