"""Reviews as they are read and answered, and the workers that judge them."""

import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.webhooks import Workers
from trainmaster.controller.webhooks import workers as workers_module
from trainmaster.controller.webhooks.review import (
    ALLOWED,
    AdmissionResponse,
    InvalidReview,
    create_patch,
    decode_request,
    encode_response,
    limit_warnings,
)
from trainmaster.controller.webhooks.workers import LARGE, Overloaded, Worker
from trainmaster.devcluster.apiserver.jsonpatch import json_patch
from trainmaster.runtime.jsontree import JsonObject


def review(**request: Any) -> JsonObject:
    full = {"uid": "u-1", "operation": "CREATE", "object": {"a": 1}, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": full}


@pytest.mark.guarantee("H-2")
def test_a_response_has_the_uid_version_and_kind_of_its_request() -> None:
    request = decode_request(orjson.dumps({**review(), "apiVersion": "admission.k8s.io/v1beta1"}))
    unchanged = AdmissionResponse(allowed=True, patch=list(create_patch({"a": 1}, {"a": 1})))
    denied = AdmissionResponse(allowed=False, message="no")
    why = {"code": 403, "reason": "Forbidden", "message": "no"}
    for answer, status in ((ALLOWED, {"code": 200}), (unchanged, {"code": 200}), (denied, why)):
        body = encode_response(answer, uid=request.uid, api_version=request.api_version)
        assert orjson.loads(body) == {
            "apiVersion": "admission.k8s.io/v1beta1",
            "kind": "AdmissionReview",
            "response": {"uid": "u-1", "allowed": answer.allowed, "status": status},
        }


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=2),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), children, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.guarantee("H-3")
@given(TREES, TREES)
def test_a_patch_leads_from_the_old_to_the_new(old: Any, new: Any) -> None:
    before, after = {"root": old}, {"root": new}
    assert json_patch(before, list(create_patch(before, after))) == after


@pytest.mark.guarantee("H-8")
def test_warnings_are_short_and_not_too_many() -> None:
    kept = limit_warnings(["x" * 1000, "two\n lines", "two lines", *(f"{number} {'y' * 250}" for number in range(30))])
    assert kept[0] == "x" * 253 + "..."
    assert kept[1] == "two lines"
    assert kept.count("two lines") == 1
    assert max(map(len, kept)) <= 256
    assert sum(len(warning.encode()) for warning in kept) <= 4096


@pytest.mark.guarantee("H-1", "H-2")
@pytest.mark.parametrize(
    ("body", "message", "uid"),
    [
        (b"{", "the request body is no JSON", ""),
        (b'{"a":' * 151 + b"1" + b"}" * 151, "nested more than 150 levels deep", ""),
        (b"[]", "is no AdmissionReview", ""),
        (orjson.dumps({**review(), "apiVersion": "v9"}), "is no AdmissionReview", "u-1"),
        (orjson.dumps({**review(), "kind": "Pod"}), "is no AdmissionReview", "u-1"),
        (orjson.dumps({**review(), "request": None}), "has no request", ""),
        (orjson.dumps(review(uid="")), "has no uid", ""),
        (orjson.dumps(review(uid=7)), "has no uid", ""),
        (orjson.dumps(review(operation=None)), "has no operation", "u-1"),
        (orjson.dumps(review(object=[])), "the object of the AdmissionReview is no object", "u-1"),
        (orjson.dumps(review(oldObject=7)), "the oldObject of the AdmissionReview is no object", "u-1"),
    ],
)
def test_what_cannot_be_read_is_told_of(body: bytes, message: str, uid: str) -> None:
    with pytest.raises(InvalidReview, match=message) as caught:
        decode_request(body)
    assert caught.value.uid == uid


@pytest.mark.guarantee("H-16")
async def test_small_reviews_are_judged_on_the_loop_and_large_ones_in_a_thread() -> None:
    with closing(Workers()) as workers:
        assert await workers.of(LARGE).run(LARGE, threading.current_thread) is threading.current_thread()
        assert await workers.of(LARGE + 1).run(LARGE + 1, threading.current_thread) is not threading.current_thread()


@pytest.mark.guarantee("H-16")
async def test_the_loop_turns_between_any_two_small_reviews() -> None:
    """Hundreds that arrive at once are no reason for watches and probes to wait for all of them."""
    worker, turns = Worker(), 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    seen = await asyncio.gather(*(worker.run(100, lambda: turns) for _ in range(300)))
    turning.cancel()
    assert len(set(seen)) == 300
    assert seen == sorted(seen), "first come, first served"


@pytest.mark.guarantee("H-16")
async def test_one_whose_request_is_cancelled_loses_its_turn_and_takes_none_away() -> None:
    worker = Worker()
    judged: list[int] = []
    reviews = [asyncio.create_task(worker.run(100, judged.append, number)) for number in range(5)]
    await asyncio.sleep(0)
    reviews[2].cancel()
    await asyncio.wait(reviews)
    assert judged == [0, 1, 3, 4]
    await worker.run(100, judged.append, 5)
    assert judged[-1] == 5


@pytest.mark.guarantee("H-16")
async def test_what_waits_is_measured_by_what_the_last_reviews_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def take(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(workers_module, "time", SimpleNamespace(perf_counter=lambda: now))
    worker = Worker()
    for _ in range(500):
        await worker.run(1000, take, 0.001)
    held = [asyncio.create_task(worker.run(1000, take, 0.001)) for _ in range(4000)]
    await asyncio.sleep(0)
    assert not worker.is_full, "they will take four seconds"
    more = [asyncio.create_task(worker.run(1000, take, 0.001)) for _ in range(2000)]
    await asyncio.sleep(0)
    assert worker.is_full
    with pytest.raises(Overloaded):
        await worker.run(1000, take, 0.001)
    done = await asyncio.gather(*held, *more, return_exceptions=True)
    refused = [each for each in done if each is not None]
    assert not worker.is_full
    assert 900 < len(refused) < 1100, "those that would have waited for more than five seconds"
    assert {type(each) for each in refused} == {Overloaded}


@pytest.mark.guarantee("H-16")
async def test_one_that_fails_ends_its_turn() -> None:
    worker = Worker()
    with pytest.raises(ZeroDivisionError):
        await worker.run(100, lambda: 1 // 0)
    assert await worker.run(100, lambda: 1) == 1
    assert not worker.is_full
