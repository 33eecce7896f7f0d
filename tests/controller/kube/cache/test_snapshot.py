"""Lists that are decoded in steps; which pages are requested when is a matter of test_reflector."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.informers import pod, pod_list

from trainmaster.controller.kube.cache import snapshot
from trainmaster.controller.kube.cache.listwatch import Collection
from trainmaster.controller.kube.cache.snapshot import ListBody, list_collection
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.errors import MalformedResponse
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import UNREADABLE

# What looks like a seam between two items, in strings and in nested lists.
TEXTS = st.sampled_from(["a", '"},{"kind', '},{"metadata":{', '"items":[', "\\", '"'])
VALUES = st.recursive(
    TEXTS | st.integers(0, 9), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
PODS_COLLECTION = Collection(resource=PODS)
ITEMS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.dictionaries(TEXTS, VALUES, max_size=2),
        "spec": st.lists(VALUES, max_size=3),
    }
)


@pytest.mark.guarantee("P-24")
@given(items=st.lists(ITEMS, max_size=12), step=st.integers(1, 400), first=st.booleans())
def test_steps_give_what_the_whole_would(items: list[Any], step: int, first: bool) -> None:
    """Whatever the items look like, and wherever the metadata stands: custom resources have it at the end."""
    head, tail = {"kind": "PodList", "metadata": {"resourceVersion": "5", "continue": "x"}}, {"items": items}
    body = ListBody(orjson.dumps(head | tail if first else tail | head), PODS_COLLECTION, step=step)
    assert [item for batch in body for item in batch] == items
    assert (body.resource_version, body.continue_token) == ("5", "x")


@pytest.mark.guarantee("R-14")
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"kind":"PodList","metadata":{},"items":[{"a":1},{"b":', b"[]"])
def test_what_is_no_list_is_an_error(body: bytes) -> None:
    with pytest.raises(MalformedResponse, match="listing pods"):
        list(ListBody(body, PODS_COLLECTION, step=4))


def test_no_items_are_written_as_null_by_some_servers() -> None:
    body = ListBody(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}', PODS_COLLECTION)
    assert list(body) == [[]]


@pytest.mark.guarantee("P-35")
async def test_other_tasks_run_between_the_steps_of_a_list() -> None:
    items = [pod(f"p{number}", number, blob="x" * 10_000) for number in range(1, 201)]
    pauses = 0

    class Counting(SystemClock):
        async def sleep(self, seconds: float) -> None:
            nonlocal pauses
            pauses += 1
            await super().sleep(seconds)

    class Canned:
        async def list_bytes(self, *_: Any, **__: Any) -> bytes:
            return orjson.dumps(pod_list(5, *items))

    entries, version = await list_collection(Canned(), PODS_COLLECTION, Store().entry, "7", clock=Counting())
    assert (len(entries), version) == (200, "5")
    assert pauses >= 200 * 10_000 / 2**18


DEEP = b"[" * 5000 + b"]" * 5000


def odd_pod(number: int, spec: bytes = DEEP) -> bytes:
    """A pod of which nobody can read the spec."""
    return orjson.dumps(pod(f"odd{number}", number))[:-1] + b',"spec":' + spec + b"}"


@pytest.mark.parametrize("step", [1, 100, 20_000, 2**20])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_an_item_that_cannot_be_read_is_listed_by_its_metadata_among_the_others(place: int, step: int) -> None:
    items = [orjson.dumps(pod(f"p{number}", number)) for number in range(7)]
    items[place:place] = [odd_pod(7), odd_pod(8, b'"\\ud800"')]
    head = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"x"},"items":['
    body = ListBody(head + b",".join(items) + b"]}\n", PODS_COLLECTION, step=step)
    found = [item for batch in body for item in batch]
    assert (body.resource_version, body.continue_token) == ("5", "x")
    assert [item["metadata"]["name"] for item in found if UNREADABLE in item] == ["odd7", "odd8"]
    assert [item for item in found if UNREADABLE not in item] == [pod(f"p{number}", number) for number in range(7)]


@pytest.mark.parametrize("indices", [range(7), range(0)])
def test_items_that_can_be_read_are_not_taken_apart(indices: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the end of each item costs more than decoding it."""
    monkeypatch.setattr(snapshot, "read_items", lambda *_: iter(()))
    items = [pod(f"p{number}", number, blob="x" * 50) for number in indices]
    found = [item for batch in ListBody(orjson.dumps(pod_list(5, *items)), PODS_COLLECTION, step=300) for item in batch]
    assert found == items


@pytest.mark.guarantee("P-24")
def test_items_that_begin_differently_make_no_large_step() -> None:
    items = [{"kind": "Pod"}, *(pod(f"p{number}", number, blob="x" * 900) for number in range(200))]
    batches = list(ListBody(orjson.dumps(pod_list(5, *items)), PODS_COLLECTION, step=1000))
    assert [len(batch) for batch in batches if len(batch) > 8] == []
    assert sum(map(len, batches)) == len(items)


@pytest.mark.guarantee("P-24")
@pytest.mark.parametrize("odd", [[], [odd_pod(0), odd_pod(1)]], ids=["readable", "unreadable"])
@pytest.mark.parametrize(("step", "most"), [(20_000, 20), (100, 1)])
def test_no_step_is_large(odd: list[bytes], step: int, most: int) -> None:
    """An item that is larger than a step is one."""
    items = [*odd[:1], *(orjson.dumps(pod(f"p{number}", number, blob="x" * 900)) for number in range(200)), *odd[1:]]
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[' + b",".join(items) + b"]}"
    batches = list(ListBody(body, PODS_COLLECTION, step=step))
    assert max(map(len, batches)) <= most
    assert sum(map(len, batches)) == len(items)


@pytest.mark.guarantee("R-14")
@pytest.mark.parametrize("cut", [1, 2, 3, 2000, 10_050])
def test_a_list_with_such_an_item_that_was_cut_is_an_error(cut: int) -> None:
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[' + odd_pod(0) + b"," + odd_pod(1) + b"]}"
    with pytest.raises(MalformedResponse, match="listing pods"):
        list(ListBody(body[:-cut], PODS_COLLECTION, step=100))


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_may_have_blanks(indent: int | None) -> None:
    """As whatever stands between may write it."""
    listed = pod_list(5, pod("a", 1), pod("b", 2))
    body = ListBody(json.dumps(listed, indent=indent).encode(), PODS_COLLECTION)
    (items,) = body
    assert [each["metadata"]["name"] for each in items] == ["a", "b"]
    assert body.resource_version == "5"
