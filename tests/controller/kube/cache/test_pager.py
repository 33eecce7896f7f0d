"""Lists that are decoded in steps; which pages are requested when is a matter of test_reflector."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.informers import pod, pod_list

from trainmaster.controller.kube.cache.listwatch import Collection
from trainmaster.controller.kube.cache.pager import ListBody, ListPager
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.errors import MalformedResponse
from trainmaster.controller.kube.rest.resources import PODS

# What looks like a seam between two items, in strings and in nested lists.
TEXTS = st.sampled_from(["a", '"},{"kind', '},{"metadata":{', '"items":[', "\\", '"'])
VALUES = st.recursive(
    TEXTS | st.integers(0, 9), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
ITEMS = st.fixed_dictionaries(
    {"metadata": st.dictionaries(TEXTS, VALUES, max_size=2), "spec": st.lists(VALUES, max_size=3)}
)


@given(items=st.lists(ITEMS, max_size=12), step=st.integers(1, 400), first=st.booleans())
def test_p24_steps_give_what_the_whole_would(items: list[Any], step: int, first: bool) -> None:
    """Whatever the items look like, and wherever the metadata stands: custom resources have it at the end."""
    head, tail = {"kind": "PodList", "metadata": {"resourceVersion": "5", "continue": "x"}}, {"items": items}
    body = ListBody(orjson.dumps(head | tail if first else tail | head), what="pods", step=step)
    assert [item for batch in body for item in batch] == items
    assert (body.resource_version, body.continue_token) == ("5", "x")


def test_p24_no_step_is_large() -> None:
    items = [pod(f"p{number}", number, blob="x" * 900) for number in range(1000)]
    batches = list(ListBody(orjson.dumps(pod_list(5, *items)), what="pods", step=20_000))
    assert max(map(len, batches)) <= 20
    assert sum(map(len, batches)) == 1000


def test_p24_an_item_that_is_larger_than_a_step_is_one() -> None:
    items = [pod(f"p{number}", number, blob="x" * 900) for number in range(10)]
    batches = list(ListBody(orjson.dumps(pod_list(5, *items)), what="pods", step=100))
    assert [len(batch) for batch in batches] == [1] * 10


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"kind":"PodList","metadata":{},"items":[{"a":1},{"b":', b"[]"])
def test_r14_what_is_no_list_is_an_error(body: bytes) -> None:
    with pytest.raises(MalformedResponse, match="listing pods"):
        list(ListBody(body, what="pods", step=4))


def test_no_items_are_written_as_null_by_some_servers() -> None:
    body = ListBody(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}', what="pods")
    assert list(body) == [[]]


async def test_p35_other_tasks_run_between_the_steps_of_a_list() -> None:
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

    lister = ListPager(Canned(), Collection(resource=PODS), Store().entry, clock=Counting())
    entries, version = await lister.list("7")
    assert (len(entries), version) == (200, "5")
    assert pauses >= 200 * 10_000 / 2**18
