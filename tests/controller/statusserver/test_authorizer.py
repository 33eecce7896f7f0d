"""What those who report may cost the API server: reviews of tokens, within limits that spare who is known."""

from __future__ import annotations

import asyncio

from support.stack import Stack
from support.statusserver import NAMESPACE, StatusClient, Trainers, reviews

from trainmaster.controller.statusserver.authorizer import JOBS
from trainmaster.controller.statusserver.handler import REPORTS_BURST
from trainmaster.controller.statusserver.throttle import REFUSALS_BURST
from trainmaster.controller.statusserver.token_review import ACCEPTED_FOR
from trainmaster.devcluster.testing.faults import Delay


async def test_who_is_refused_too_often_is_not_reviewed_again_for_a_while(
    http: StatusClient, trainers: Trainers
) -> None:
    """Who can make up tokens must not use up the requests of those who report."""
    good = await trainers.token("train", pod=await trainers.create("train"))
    assert (await http.post("train", good)).code == 200
    head, claims, signature = good.split(".")
    before = reviews()
    codes = [
        (await http.post("train", f"{head}.{claims}.{n:02}{signature[2:]}")).code for n in range(REFUSALS_BURST + 5)
    ]
    assert codes == [403] * REFUSALS_BURST + [429] * 5
    assert reviews() == before + REFUSALS_BURST
    assert (await http.post("train", good)).code == 200, "who is known goes on"


def forged(token: str, count: int) -> list[str]:
    """Tokens that say the same as a good one, with wrong signatures."""
    head, claims, signature = token.split(".")
    return [f"{head}.{claims}.{number:03}{signature[3:]}" for number in range(count)]


async def test_forged_tokens_that_come_at_once_are_reviewed_as_seldom_as_one_after_the_other(
    http: StatusClient, trainers: Trainers
) -> None:
    good = await trainers.token("train", pod=await trainers.create("train"))
    assert (await http.post("train", good)).code == 200
    before = reviews()
    answers = await asyncio.gather(*(http.post("train", token) for token in forged(good, 250)))
    assert sorted(answer.code for answer in answers) == [403] * REFUSALS_BURST + [429] * (250 - REFUSALS_BURST)
    assert reviews() == before + REFUSALS_BURST
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers if answer.code == 429)
    assert (await http.post("train", good)).code == 200, "who is known goes on"


async def test_many_good_tokens_of_one_address_get_through_at_once(http: StatusClient, trainers: Trainers) -> None:
    """Pods behind one node's address report for the first time in the same moment."""
    first = await trainers.create("train")
    owner = (await trainers.client.get(JOBS, NAMESPACE, "train-node-0")) | {"apiVersion": "batch/v1", "kind": "Job"}
    labels = first["metadata"]["labels"]
    pods = [await trainers.pod(f"more-{index}", labels=labels, owner=owner) for index in range(REFUSALS_BURST * 3)]
    tokens = [await trainers.token("train", pod=pod) for pod in pods]
    before = reviews()
    answers = await asyncio.gather(*(http.post("train", token, {}) for token in tokens))
    limit_of_a_trainjob = [200] * REPORTS_BURST + [429] * (len(tokens) - REPORTS_BURST)
    assert sorted(answer.code for answer in answers) == limit_of_a_trainjob
    assert reviews() == before + len(tokens), "each was reviewed, though only so many may be under way"


async def test_one_token_is_reviewed_once_however_often_it_comes_at_once(
    stack: Stack, http: StatusClient, trainers: Trainers
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    assert stack.cluster is not None
    seen = stack.cluster.faults.add(Delay(0), verb="create", resource="tokenreviews")
    read = stack.cluster.faults.add(Delay(0), verb="get", resource="jobsets")
    codes = [each.code for each in await asyncio.gather(*(http.post("train", token, {}) for _ in range(REPORTS_BURST)))]
    assert codes == [200] * REPORTS_BURST
    assert (seen.count, read.count) == (1, 1)


async def test_junk_costs_nothing_and_takes_nothing_from_others_of_its_address(
    http: StatusClient, trainers: Trainers
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    before = reviews()
    codes = [(await http.post("train", f"a.{'x' * n}.c")).code for n in range(REFUSALS_BURST * 3)]
    assert (set(codes), reviews()) == ({403}, before)
    assert (await http.post("train", token)).code == 200


async def test_a_known_token_goes_on_beside_one_who_forges_also_when_its_review_is_over(
    http: StatusClient, trainers: Trainers
) -> None:
    good = await trainers.token("train", pod=await trainers.create("train"))
    assert (await http.post("train", good)).code == 200
    http.clock.pushed += ACCEPTED_FOR + 1
    codes = [(await http.post("train", token)).code for token in forged(good, REFUSALS_BURST + 1)]
    assert codes == [403] * REFUSALS_BURST + [429]
    assert (await http.post("train", good)).code == 200
