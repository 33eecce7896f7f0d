"""What a change concerns is what both of its states say, although the first of them is not read again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.concerned_keys import ConcernedKeys
from trainmaster.runtime.jsontree import JsonObject

_NAMES = st.sampled_from(["a", "b", "a-1"])
_OWNERS = st.lists(st.sampled_from(["ns/a", "ns/b", "ns/c", "ns/a-1"]), max_size=2)
_STEPS = st.tuples(st.sampled_from(["put", "put", "delete", "delete unseen", "resync"]), _NAMES, _OWNERS)


def _owners(obj: JsonObject) -> Iterable[str]:
    return obj["owners"]  # type: ignore[no-any-return] # those that `_object` gave it


def _object(name: str, owners: list[str], version: int) -> JsonObject:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version)}, "owners": owners}


@pytest.mark.guarantee("E-4")
@given(st.lists(_STEPS, max_size=30), st.sampled_from(["", "-1"]))
def test_a_change_concerns_what_an_object_belongs_to_and_belonged_to(
    steps: list[tuple[str, str, list[str]]], suffix: str
) -> None:
    store, concerned = Store(), ConcernedKeys(_owners, usual=lambda key: key.removesuffix(suffix))
    last: dict[str, list[str]] = {}
    for version, (step, name, owners) in enumerate(steps, start=1):
        key = f"ns/{name}"
        before = last.get(key, [])
        if step == "put":
            change, last[key] = store.put(_object(name, owners, version)), owners
            expected = {*before, *owners}
        elif key not in last:
            continue
        elif step == "resync":
            assert set(concerned(store.resync_delta(key))) == set(before)  # type: ignore[arg-type] # it is there
            continue
        else:
            seen = step == "delete"
            change = store.delete(key, last=_object(name, owners, version) if seen else None)
            del last[key]
            expected = {*before, *owners} if seen else set(before)
        assert set(concerned(change)) == expected
    assert len(concerned) == sum({*owners} != {key.removesuffix(suffix)} for key, owners in last.items())
