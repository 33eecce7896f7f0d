"""Strategic merge patch, as the Kubernetes API defines it.

Guarantees:
- The arguments are never changed, and the result shares nothing with them.
- Objects and maps merge key by key; a null deletes. Lists of objects with a merge key merge by that key, lists of
  scalars with the merge strategy unite, every other list is replaced. Which is which comes from the schema.
- No directive and no null-valued field of the patch is ever left in the result, at whatever depth it stands.
- A patch that cannot mean anything raises MergeError with the path of the fault; it is never half applied.

Directives, with the decisions where Kubernetes' own code is vague:
- `$patch: replace` in an object: the rest of the object takes the place of the original. As an element of its own in
  a list: the other elements take the place of the original list.
- `$patch: delete` in an element of a keyed list removes the element with that key. In an object it leaves an empty
  object, as in the API server; an object that did not exist is not created.
- `$patch: merge` says what happens anyway.
- `$retainKeys: [...]` drops every other key of the original; the patch may hold no others either.
- `$deleteFromPrimitiveList/f: [...]` removes scalars from the list `f`, after whatever the patch adds to it.
- `$setElementOrder/f: [...]` gives the order of the list `f`; elements that it does not name keep their relative place.

Order of a merged list: the elements that a patch names come in the patch's order, the others in the order they had.
Where the two leave a choice, an element that the patch does not name stays before the named one that it
preceded; new elements come as early as the patch's order allows. Merging [A', N] into [A, B] thus gives [A', N, B].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.strategicpatch.schema import MergeSchema

_NO_ADDITION: Final = frozenset({"delete", "replace"})

PATCH: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM: Final = "$deleteFromPrimitiveList"
SET_ORDER: Final = "$setElementOrder"

Identity: TypeAlias = tuple[bool, str | int | float]
"""What two elements of a list have in common if they are the same: a scalar, with booleans told from numbers."""


def strategic_merge_patch(original: JsonObject, patch: JsonObject, schema: MergeSchema) -> JsonObject:
    """Apply a strategic merge patch to an object whose type `schema` describes, and give the result as a new tree.

    Raises MergeError.
    """
    return strategic_merge_patches(original, (patch,), schema)


def strategic_merge_patches(original: JsonObject, patches: Iterable[JsonObject], schema: MergeSchema) -> JsonObject:
    """Apply strategic merge patches one after the other, and give the result as a new tree.

    The original is copied once, and each patch costs what it touches, however much there is beside that.

    Raises MergeError.
    """
    try:
        merged: JsonObject = copy_tree(original)
        for patch in patches:
            if not isinstance(patch, dict):
                raise MergeError("", f"must be an object, not {kind_of(patch)}")
            merged = _merge_object(merged, patch, schema, "")
    except RecursionError:
        raise MergeError("", "is nested too deeply to be a Kubernetes object") from None
    return merged


# From here on what is merged into belongs to the merge and is changed in place; what comes from a patch is built anew.


def _merge_object(merged: JsonObject, patch: JsonObject, schema: MergeSchema, path: str) -> JsonObject:
    match patch.get(PATCH, "merge"):
        case "merge":
            pass
        case "replace":
            merged = {}
        case "delete":
            return {}
        case unknown:
            raise MergeError(join(path, PATCH), f"must be merge, replace or delete, not {unknown!r}")
    changes = changes_of(patch, path)
    if RETAIN_KEYS in patch:
        retained = retained_keys(patch[RETAIN_KEYS], changes, path)
        merged = {key: value for key, value in merged.items() if key in retained}
    for name, change in changes.items():
        value = _merge_field(merged.get(name), change, schema.field(name), join(path, name))
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def _merge_field(before: Any, change: Change, schema: MergeSchema, path: str) -> Any:
    """Give the new value of a field; None if the object shall not have the field."""
    after = before
    if change.sets:
        deletes = isinstance(change.value, dict) and change.value.get(PATCH) == "delete"
        if change.value is None or (before is None and deletes):
            after = None
        else:
            after = _merge_value(before, change.value, schema, path)
    if change.removals is not None:
        after = _without(after, change.removals, schema, path)
    if change.order is not None:
        after = _reordered(after, before, change, schema, path)
    return after


def _merge_value(original: Any, patch: Any, schema: MergeSchema, path: str) -> Any:
    if isinstance(patch, dict):
        if schema.is_list:
            raise MergeError(path, "must be a list, not an object")
        replaced = "replace" in schema.patch_strategies or not isinstance(original, dict)
        return _merge_object({} if replaced else original, patch, schema, path)
    if isinstance(patch, list):
        if schema.is_map:
            raise MergeError(path, "must be an object, not a list")
        if "merge" not in schema.patch_strategies:
            return _new_list(patch, schema, path)
        before = original if isinstance(original, list) else []
        if schema.patch_merge_key is None:
            return _unite_scalars(before, patch, path)
        return _merge_keyed(before, patch, schema, schema.patch_merge_key, path)
    if schema.is_list or schema.is_map:
        raise MergeError(path, f"must be {'a list' if schema.is_list else 'an object'}, not {kind_of(patch)}")
    return patch


def _new_list(patch: list[Any], schema: MergeSchema, path: str) -> list[Any]:
    """Give the list that replaces the original one."""
    item = schema.item()
    elements: list[Any] = []
    for index, element in enumerate(patch):
        if element == {PATCH: "replace"}:
            continue
        here = f"{path}[{index}]"
        if isinstance(element, dict) and element.get(PATCH) == "delete":
            raise MergeError(here, "this list is replaced as a whole: give the elements that shall remain")
        elements.append(element if element is None else _merge_value(None, element, item, here))
    return elements


def _unite_scalars(before: list[Any], patch: list[Any], path: str) -> list[Any]:
    old = _scalars(before, path)
    new = _scalars(patch, path)
    return normalize_element_order({**old, **new}.items(), named=list(new), before=list(old))


def _merge_keyed(before: list[Any], patch: list[Any], schema: MergeSchema, key: str, path: str) -> list[Any]:
    item = schema.item()
    replaces = False
    deleted: set[Identity] = set()
    wanted: list[tuple[Identity, JsonObject, str]] = []
    for index, element in enumerate(patch):
        here = f"{path}[{index}]"
        if element == {PATCH: "replace"}:
            replaces = True
            continue
        identity = _key_of(element, key, here)
        match element.get(PATCH):
            case "delete":
                deleted.add(identity)
            case "replace":
                raise MergeError(here, "$patch: replace stands in an element of its own; it replaces the whole list")
            case _:
                wanted.append((identity, element, here))
    if replaces or not before:
        # There is nothing to merge with; equal keys, for instance one port with two protocols, may stay side by side.
        return [_merge_object({}, element, item, here) for _, element, here in wanted]

    old = [(_key_of(element, key, path, original=True), element) for element in before]
    merged = [(identity, element) for identity, element in old if identity not in deleted]
    places: dict[Identity, int] = {}
    for place, (identity, _) in enumerate(merged):
        places.setdefault(identity, place)
    for identity, element, here in wanted:
        if identity in places:
            place = places[identity]
            merged[place] = identity, _merge_object(merged[place][1], element, item, here)
        else:
            places[identity] = len(merged)
            merged.append((identity, _merge_object({}, element, item, here)))
    return normalize_element_order(
        merged, named=[identity for identity, _, _ in wanted], before=[identity for identity, _ in old]
    )


def _without(present: Any, removals: list[Any], schema: MergeSchema, path: str) -> Any:
    if "merge" not in schema.patch_strategies or schema.patch_merge_key is not None:
        raise MergeError(path, f"is not a list of scalars that merges: {DELETE_FROM} does not apply to it")
    if not isinstance(present, list):
        return present
    gone = _scalars(removals, path)
    return [value for identity, value in _scalars(present, path).items() if identity not in gone]


def _reordered(present: Any, before: Any, change: Change, schema: MergeSchema, path: str) -> Any:
    if "merge" not in schema.patch_strategies:
        raise MergeError(path, f"is a list that is replaced as a whole: {SET_ORDER} does not apply to it")
    key = schema.patch_merge_key
    named = _identities(change.order or [], key, path)
    if not is_in_order(_identities(_additions(change.value or []), key, path), named):
        raise MergeError(path, f"{SET_ORDER} must hold the elements of the patch, in the same order")
    if not isinstance(present, list):
        return present
    earlier = _identities(before, key, path) if isinstance(before, list) else []
    return normalize_element_order(_identified(present, key, path), named=named, before=earlier)


def _additions(patch: list[Any]) -> list[Any]:
    """Leave out the elements of a patch that will not stand in the result."""
    return [element for element in patch if not (isinstance(element, dict) and element.get(PATCH) in _NO_ADDITION)]


def _identified(elements: list[Any], key: str | None, path: str) -> list[tuple[Identity, Any]]:
    """Pair the elements of a list that merges, by `key` or by value, with their identities."""
    if key is None:
        return list(_scalars(elements, path).items())
    return [(_key_of(element, key, path), element) for element in elements]


def _identities(elements: list[Any], key: str | None, path: str) -> list[Identity]:
    return [identity for identity, _ in _identified(elements, key, path)]


def _scalars(elements: list[Any], path: str) -> dict[Identity, Any]:
    """Give the elements by their identity, each once, in their order."""
    scalars: dict[Identity, Any] = {}
    for element in elements:
        identity = identity_of(element)
        if identity is None:
            raise MergeError(path, f"holds {kind_of(element)}; this list merges by value and holds scalars only")
        scalars.setdefault(identity, element)
    return scalars


def _key_of(element: Any, key: str, path: str, *, original: bool = False) -> Identity:
    where = "an element of the original" if original else "this element"
    if not isinstance(element, dict):
        raise MergeError(path, f"{where} must be an object with the field {key!r}, not {kind_of(element)}")
    identity = identity_of(element.get(key))
    if identity is None:
        raise MergeError(path, f"{where} has no {key!r}, by which this list merges")
    return identity


class MergeError(ValueError):
    """The patch cannot be applied; `path` is the field of the patch that is at fault ("" for the patch itself)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the patch'}: {problem}")
        self.path = path


@dataclass(slots=True)
class Change:
    """What an object of a patch says about one field: a value (None deletes), scalars to remove, an order."""

    sets: bool = False
    value: Any = None
    removals: list[Any] | None = None
    order: list[Any] | None = None


def changes_of(patch: JsonObject, path: str) -> dict[str, Change]:
    """Sort the keys of an object of a patch by the field they are about."""
    changes: defaultdict[str, Change] = defaultdict(Change)
    for key, value in patch.items():
        directive, _, name = key.partition("/")
        if directive in {DELETE_FROM, SET_ORDER}:
            if not name:
                raise MergeError(join(path, key), f"names no list: write {directive}/<field>")
            if not isinstance(value, list):
                raise MergeError(join(path, key), f"must be a list, not {kind_of(value)}")
            if directive == DELETE_FROM:
                changes[name].removals = value
            else:
                changes[name].order = value
        elif key not in {PATCH, RETAIN_KEYS}:
            changes[key].sets = True
            changes[key].value = value
    return changes


def retained_keys(retained: Any, changes: Mapping[str, Change], path: str) -> frozenset[str]:
    """Read the list of `$retainKeys`, which has to name every field that the patch sets beside it."""
    here = join(path, RETAIN_KEYS)
    if not isinstance(retained, list) or not all(isinstance(key, str) for key in retained):
        raise MergeError(here, "must be a list of field names")
    keys = frozenset(retained)
    for name, change in changes.items():
        if change.value is not None and name not in keys:
            raise MergeError(here, f"does not hold {name!r}, which the patch sets: add it to the list")
    return keys


def join(path: str, name: str) -> str:
    """Give the path of a field of the object at `path`."""
    return f"{path}.{name}" if path else name


def kind_of(value: object) -> str:
    """Name the JSON type of a value for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


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
