"""Whatever review a webhook gets, it answers: no crash, no 5xx, soon.

The suite sends a few hundred; `make fuzz` sends 100,000.
"""

from __future__ import annotations

import os
import random
import time

import orjson
import pytest
from support.resolutions import FRAMEWORK, FakeListers, KnownServer
from support.reviews import Reviews
from support.series import value_of

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.webhooks import AdmissionHandlers, handlers
from trainmaster.controller.webhooks.server import review

REVIEWS = int(os.environ.get("TRAINMASTER_FUZZ_REVIEWS", "800"))
SEEDS = 4
LONGEST = 2.0
"""Seconds that one response may take on a machine that does other things as well; usual are milliseconds."""


IDENTITY = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "rt", "namespace": "team"},
}
"""What every object of a cache has."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_h4_every_review_is_answered(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = Reviews(seed)
    known: list[FakeListers] = []
    monkeypatch.setattr(handlers, "StoreListers", lambda _: known[0])
    served = AdmissionHandlers(FRAMEWORK, {}, KnownServer(), clock=SystemClock()).handlers()
    allowed = refused = 0
    panics = value_of("controller_runtime_webhook_panics_total")
    stream = iter(reviews)
    for number in range(REVIEWS // SEEDS):
        if number % 10 == 0:
            known[:] = [FakeListers({**reviews.runtime(), **IDENTITY})]
        path, uid, body = next(stream)
        started = time.perf_counter()
        response = orjson.loads(await review(body, served[path], path=path))["response"]
        assert time.perf_counter() - started < LONGEST, body
        assert response["uid"] == uid
        assert response["status"]["code"] in (200, 400, 403), (response, body)
        allowed += response["allowed"]
        refused += not response["allowed"]
    assert value_of("controller_runtime_webhook_panics_total") == panics
    assert allowed > REVIEWS // SEEDS // 20, "hardly anything was admitted: the generator is of no use"
    assert refused > REVIEWS // SEEDS // 20


async def test_h1_torn_and_nested_bodies_are_answered() -> None:
    served = AdmissionHandlers(FRAMEWORK, {}, KnownServer(), clock=SystemClock()).handlers()
    chance = random.Random(7)
    for _, (path, _, body) in zip(range(200), Reviews(7), strict=False):
        torn = body[: chance.randrange(len(body))]
        assert orjson.loads(await review(torn, served[path], path=path))["response"]["status"]["code"] == 400
    for depth in (100, 400, 900, 5000):
        nested = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",'
        nested += b'"operation":"CREATE","object":{"spec":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}}}"
        for path, handler in served.items():
            assert orjson.loads(await review(nested, handler, path=path))["response"]["status"]["code"] < 500
