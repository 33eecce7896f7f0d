"""Whatever review a webhook gets, it answers: no crash, no 5xx.

The suite has a few hundred; `make fuzz` has 100,000. What a whole manager makes of them: `tests/soak/test_fuzz.py`.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import orjson
import pytest
from support.resolutions import FRAMEWORK, FakeListers, KnownServer
from support.reviews import JobReviews, Reviews
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.webhooks import AdmissionHandlers, Workers, handlers
from trainmaster.controller.webhooks.server import review
from trainmaster.runtime.jobs.loader import load_job_kinds

REVIEWS = int(os.environ.get("TRAINMASTER_FUZZ_REVIEWS", "800"))
SEEDS = 4

IDENTITY = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "rt", "namespace": "team"},
}
"""What every object of a cache has."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    with closing(Workers()) as workers:
        yield workers


@pytest.mark.guarantee("H-4")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("of", [Reviews, JobReviews])
async def test_every_review_is_answered(
    of: type[Reviews], seed: int, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews, known = of(seed), list[FakeListers]()
    if of is Reviews:
        monkeypatch.setattr(handlers, "StoreListers", lambda _, workloads: known[0])
    clock, kinds = VirtualClock(), load_job_kinds()
    served = AdmissionHandlers(FRAMEWORK, {}, KnownServer(), job_kinds=kinds, workers=workers, clock=clock).handlers()
    verdicts = Counter[bool]()
    panics = value_of("controller_runtime_webhook_panics_total")
    stream = iter(reviews)
    for number in range(REVIEWS // SEEDS):
        if of is Reviews and number % 10 == 0:
            known[:] = [FakeListers({**reviews.runtime(), **IDENTITY})]
        path, uid, body = next(stream)
        answer = await review(body, served[path], path=path, workers=workers, clock=clock)
        response = orjson.loads(answer)["response"]
        assert response["uid"] == uid
        assert response["status"]["code"] in (200, 400, 403), (response, body)
        verdicts[response["allowed"]] += 1
    assert value_of("controller_runtime_webhook_panics_total") == panics
    assert min(verdicts[True], verdicts[False]) > REVIEWS // SEEDS // 20, "the generator is of no use"


@pytest.mark.guarantee("H-1")
async def test_torn_and_nested_bodies_are_answered(workers: Workers) -> None:
    clock = VirtualClock()
    served = AdmissionHandlers(FRAMEWORK, {}, KnownServer(), workers=workers, clock=clock).handlers()
    chance = random.Random(7)
    for _, (path, _, body) in zip(range(200), Reviews(7), strict=False):
        torn = body[: chance.randrange(len(body))]
        answer = await review(torn, served[path], path=path, workers=workers, clock=clock)
        assert orjson.loads(answer)["response"]["status"]["code"] == 400
    for depth in (100, 400, 900, 5000):
        nested = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",'
        nested += b'"operation":"CREATE","object":{"spec":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}}}"
        for path, handler in served.items():
            answer = await review(nested, handler, path=path, workers=workers, clock=clock)
            assert orjson.loads(answer)["response"]["status"]["code"] < 500
