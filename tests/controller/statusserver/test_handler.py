"""Reports of trainers: who may report, what is written, and what they are told, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs
from support.commands import eventually
from support.devcluster.faults import Delay, Refuse
from support.original_crds import definitions_of, install, original_definitions
from support.stack import Stack
from support.statusserver import NAMESPACE, REPORT, StatusClient, Trainers, reviews

from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.statusserver import server
from trainmaster.controller.statusserver.authorizer import CACHED_FOR
from trainmaster.controller.statusserver.handler import LARGEST_BODY, LOOK_AGAIN, REPORTS_BURST, StatusHandler
from trainmaster.runtime.api.constants import status_audience, status_path
from trainmaster.runtime.jsontree import JsonObject


async def test_a_report_is_written_under_its_own_field_manager_and_replaces_the_one_before(
    http: StatusClient, trainers: Trainers, token: str
) -> None:
    answer = await http.post("train", token)
    assert (answer.code, answer.body) == (200, REPORT)
    assert await trainers.reported("train") == REPORT["trainerStatus"]
    trainjob = await trainers.client.get(TRAINJOBS, NAMESPACE, "train")
    (entry,) = (entry for entry in trainjob["metadata"]["managedFields"] if entry["manager"] == "trainer-status")
    assert (entry["operation"], entry["subresource"]) == ("Apply", "status")
    assert list(entry["fieldsV1"]) == ["f:status"]
    assert list(entry["fieldsV1"]["f:status"]) == ["f:trainerStatus"]
    second = {"progressPercentage": 46, "lastUpdatedTime": "2026-01-31T12:01:00Z"}
    assert (await http.post("train", token, {"trainerStatus": second})).code == 200
    assert await trainers.reported("train") == second


async def test_a_report_waits_for_nobody_who_writes_the_same_status_and_takes_nothing_from_them(
    http: StatusClient, trainers: Trainers, token: str
) -> None:
    """Each of them makes the resource version that the cache knows an old one."""
    counts = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    for number in range(3):
        patch = {"status": {"jobsStatus": [{**counts, "ready": number}]}}
        await trainers.client.patch(TRAINJOBS, NAMESPACE, "train", patch, subresource="status")
        assert (await http.post("train", token)).code == 200
    status = (await trainers.client.get(TRAINJOBS, NAMESPACE, "train"))["status"]
    assert (status["trainerStatus"], status["jobsStatus"]) == (REPORT["trainerStatus"], [{**counts, "ready": 2}])


async def test_without_a_status_nothing_is_written(http: StatusClient, trainers: Trainers, token: str) -> None:
    for report in ({}, {"trainerStatus": None}, b"null", {"other": 1}):
        answer = await http.post("train", token, report)
        assert (answer.code, answer.body) == (200, {})
    assert await trainers.reported("train") is None


async def test_what_nobody_understands_is_ignored_and_half_a_surrogate_pair_replaced(
    http: StatusClient, trainers: Trainers, token: str
) -> None:
    status = {"progressPercentage": 1, "lastUpdatedTime": "2026-01-31T13:00:00.5+01:00", "eta": "soon", "metrics": []}
    answer = await http.post("train", token, b" \n" + orjson.dumps({"trainerStatus": status, "x": 1}) + b" and more")
    understood = {"trainerStatus": {"progressPercentage": 1, "lastUpdatedTime": "2026-01-31T12:00:00Z"}}
    assert (answer.code, answer.body) == (200, understood)
    body = rb'{"trainerStatus":{"lastUpdatedTime":"2026-01-31T12:00:00Z","metrics":[{"name":"\ud800!","value":"1"}]}}'
    assert (await http.post("train", token, body)).code == 200
    assert (await trainers.reported("train"))["metrics"] == [{"name": "\ufffd!", "value": "1"}]


async def test_a_checkpoint_and_the_world_are_reported_where_the_definition_has_them(
    stack: Stack, http: StatusClient, trainers: Trainers, token: str
) -> None:
    """The original's has not, and an apply with a field that is not declared fails as a whole."""
    original = REPORT["trainerStatus"]
    extended = original | {"lastCheckpointTime": "2026-01-31T11:59:00Z", "worldSize": 8}
    ours = await definitions_of(stack)
    for definitions, seconds, expected in (
        (ours, 0, extended),
        (original_definitions().values(), 0, original),
        (ours, 0, original),  # it is not asked for each report
        (ours, LOOK_AGAIN, extended),
    ):
        await install(stack, list(definitions))
        http.clock.pushed += seconds
        answer = await http.post("train", token, {"trainerStatus": extended})
        assert (answer.code, answer.body) == (200, {"trainerStatus": expected})
        assert await trainers.reported("train") == expected


NO_REPORTS: list[Any] = [
    *(b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 60_000, b'{"trainerStatus": NaN}'),
    b'{"trainerStatus": {"progressPercentage": ' + b"9" * 5000 + b"}}",
    {"trainerStatus": []},
    {"trainerStatus": {"progressPercentage": "45"}},
    {"trainerStatus": {"progressPercentage": 45.5}},
    {"trainerStatus": {"progressPercentage": True}},
    {"trainerStatus": {"estimatedRemainingSeconds": 2**31}},
    {"trainerStatus": {"worldSize": 2.0}},
    {"trainerStatus": {"lastCheckpointTime": "never"}},
    {"trainerStatus": {}, "unknown": orjson.loads("[" * 200 + "]" * 200)},
    {"trainerStatus": {"metrics": [{"name": "loss", "value": 0.5}]}},
    {"trainerStatus": {"lastUpdatedTime": "yesterday"}},
    {"trainerStatus": {"lastUpdatedTime": "2026-02-30T00:00:00Z"}},
    {"trainerStatus": {"lastUpdatedTime": "0001-01-01T00:00:00+23:00"}},
    {"trainerStatus": {"lastUpdatedTime": 1769860800}},
]
BEYOND_LIMITS: list[tuple[JsonObject, str]] = [
    ({"progressPercentage": 45}, "lastUpdatedTime is required when trainerStatus is present"),
    ({"progressPercentage": 101, "lastUpdatedTime": "2026-01-31T12:00:00Z"}, "less than or equal to 100"),
    ({"worldSize": 0, "lastUpdatedTime": "2026-01-31T12:00:00Z"}, "greater than or equal to 1"),
    ({"metrics": [{"name": "loss"}], "lastUpdatedTime": "2026-01-31T12:00:00Z"}, "metrics[0].value"),
]


async def test_what_is_no_report_is_an_invalid_payload_and_limits_are_told_in_the_words_of_the_api_server(
    http: StatusClient, token: str
) -> None:
    refusal = {"status": "Failure", "message": "Invalid payload", "reason": "Invalid", "code": 422, "metadata": {}}
    for report in NO_REPORTS:
        answer = await http.post("train", token, report)
        assert (answer.code, answer.body) == (422, refusal), report
        http.clock.pushed += 1
    for status, complaint in BEYOND_LIMITS:
        answer = await http.post("train", token, {"trainerStatus": status})
        assert (answer.code, answer.body["reason"]) == (422, "Invalid")
        assert complaint in answer.message


# Who may report


FORBIDDEN = {"status": "Failure", "message": "Forbidden", "reason": "Forbidden", "code": 403, "metadata": {}}


@pytest.mark.defect("S2")
async def test_only_pods_of_the_trainjob_may_report(http: StatusClient, trainers: Trainers) -> None:
    """Any pod can get a token of any audience that its service account asks for; neither labels nor owners suffice."""
    own = await trainers.create("train")
    relabelled = {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-name": "other"}}}
    await trainers.client.patch(PODS, NAMESPACE, own["metadata"]["name"], relabelled)
    claimant = await trainers.pod("claimant", labels={"jobset.sigs.k8s.io/jobset-name": "train"}, owner=None)
    stranger, loner = await trainers.create("other"), await trainers.pod("loner", owner=None)
    for pod in (stranger, None, loner, claimant, own):
        answer = await http.post("train", await trainers.token("train", pod=pod))
        assert (answer.code, answer.body) == (403, FORBIDDEN)
    assert await trainers.reported("train") is None


@pytest.mark.defect("S2")
async def test_a_report_does_not_land_on_a_successor_of_the_name(
    http: StatusClient, trainers: Trainers, token: str
) -> None:
    """The cache, and with it the authorization, may lag behind a delete and a create."""
    assert (await http.post("train", token)).code == 200
    await trainers.client.delete(TRAINJOBS, NAMESPACE, "train")
    gone = await http.post("train", token)
    obj = {"apiVersion": TRAINJOBS.api_version, "kind": TRAINJOBS.kind, "metadata": {"name": "train"}}
    successor = await trainers.client.create(
        TRAINJOBS, {**obj, "spec": {"runtimeRef": {"name": "rt"}}}, namespace=NAMESPACE
    )
    for answer in (gone, await http.post("train", token)):
        assert (answer.code, answer.message) == (404, "Train job not found")
    trainers.cache.put(successor)
    assert (await http.post("train", token)).code == 403
    live = await trainers.client.get(TRAINJOBS, NAMESPACE, "train")
    assert live["metadata"]["resourceVersion"] == successor["metadata"]["resourceVersion"]


async def test_a_finished_trainjob_takes_no_reports(http: StatusClient, trainers: Trainers, token: str) -> None:
    await trainers.finish("train")
    answer = await http.post("train", token)
    assert (answer.code, answer.message) == (403, "Forbidden: the TrainJob has finished")


async def test_without_a_token_for_this_all_is_forbidden_without_review(http: StatusClient, trainers: Trainers) -> None:
    pod = await trainers.create("train")
    good = await trainers.token("train", pod=pod)
    audiences = ("https://kubernetes.default.svc", status_audience(NAMESPACE, "other"))
    foreign = [f"Bearer {await trainers.token('train', pod=pod, audience=each)}" for each in audiences]
    empty = (None, "", "Bearer", "Bearer ", "Bearer a b", "Basic dTpw")
    odd = ("Bearer x", "Bearer ..", "Bearer a.b.c", "Bearer a.e30.c", "Bearer a.W10.c", "Bearer a.eyJleHAiOiJ4In0.c")
    before = reviews()
    for authorization in (*empty, *odd, *foreign):
        headers = {} if authorization is None else {"Authorization": authorization}
        answer = await http.post("train", None, headers=headers)
        assert (answer.code, answer.body) == (403, FORBIDDEN), authorization
    assert reviews() == before
    head, claims, signature = good.split(".")
    forged = ".".join((head, claims, ("A" if signature[0] != "A" else "B") + signature[1:]))
    assert (await http.post("train", forged)).body == FORBIDDEN
    for scheme in ("bearer", "BEARER", "Bearer  "):
        assert (await http.post("train", None, headers={"Authorization": f"{scheme} {good}"})).code == 200, scheme


async def test_nobody_learns_which_trainjobs_there_are(http: StatusClient, trainers: Trainers) -> None:
    token = await trainers.token("nothing", pod=await trainers.create("train"))
    assert (await http.post("nothing", token)).body == FORBIDDEN
    assert (await http.post("..%2Ftrain", token)).body == FORBIDDEN
    assert (await http.post("train", token, namespace="elsewhere")).body == FORBIDDEN


# What it costs


@pytest.mark.defect("S4")
async def test_only_the_api_server_is_asked(stack: Stack, http: StatusClient, trainers: Trainers, token: str) -> None:
    """One request for a report, and four more for a token and a pod that are new; no issuer is discovered."""
    assert stack.cluster is not None
    add = stack.cluster.faults.add
    seen = {resource: add(Delay(0), resource=resource) for resource in ("tokenreviews", "pods", "jobs", "jobsets")}
    seen |= {"trainjobs": add(Delay(0), resource="trainjobs", subresource="status"), "all": add(Delay(0))}
    before = reviews()
    assert (await http.post("train", token)).code == 200
    once = {"tokenreviews": 1, "pods": 1, "jobs": 1, "jobsets": 1, "trainjobs": 1, "all": 5}
    assert {name: fault.count for name, fault in seen.items()} == once
    trainers.cache.put(await trainers.client.get(TRAINJOBS, NAMESPACE, "train"))
    assert (await http.post("train", token)).code == 200
    # The seventh is the line before, which does what a watch would.
    assert {name: fault.count for name, fault in seen.items()} == {**once, "trainjobs": 2, "all": 7}
    http.clock.pushed += CACHED_FOR + 1
    assert (await http.post("train", token)).code == 200
    assert reviews() == before + 2, "they are remembered for a while"


async def test_who_reports_too_often_is_told_when_to_return(http: StatusClient, trainers: Trainers, token: str) -> None:
    other = await trainers.token("other", pod=await trainers.create("other"))
    codes = [(await http.post("train", token, {})).code for _ in range(REPORTS_BURST)]
    assert codes == [200] * REPORTS_BURST
    answer = await http.post("train", token)
    assert (answer.code, answer.body["reason"], answer.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    assert (await http.post("other", other)).code == 200, "each TrainJob has its own limit"
    http.clock.pushed += 1
    assert (await http.post("train", token)).code == 200


# What is no report at all


async def test_there_is_one_method_and_one_path(http: StatusClient) -> None:
    expected = {"status": "Failure", "message": "Not found", "reason": "NotFound", "code": 404, "metadata": {}}
    methods = [
        (each, status_path(NAMESPACE, "train")) for each in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
    ]
    paths = ("/", "/metrics", f"{status_path('a', 'b')}/", "/apis/trainer.kubeflow.org/v1alpha1")
    for method, path in (*methods, *(("POST", each) for each in paths)):
        answer = await http.request(method, path)
        assert (answer.code, answer.body) == (404, expected), (method, path)


async def test_a_large_body_is_refused_when_announced_and_invalid_in_chunks(http: StatusClient, token: str) -> None:
    padding = b" " * (LARGEST_BODY - len(orjson.dumps(REPORT)))
    assert (await http.post("train", token, orjson.dumps(REPORT) + padding)).code == 200
    answer = await http.post("train", token, orjson.dumps(REPORT) + padding + b" ")
    refusal = (413, "Payload too large", "RequestEntityTooLarge")
    assert (answer.code, answer.message, answer.body["reason"]) == refusal

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LARGEST_BODY // 1024 + 1):
            yield b" " * 1024

    answer = await http.post("train", token, chunks())
    assert (answer.code, answer.message) == (422, "Invalid payload")


# What goes wrong


async def test_a_failing_api_server_is_an_error_without_details(stack: Stack, http: StatusClient, token: str) -> None:
    assert stack.cluster is not None
    expected = {**FORBIDDEN, "message": "Internal error", "reason": "InternalError", "code": 500}
    for verb, resource, said in (
        ("create", "tokenreviews", "a token cannot be checked"),
        ("get", "jobs", "a token cannot be checked"),
        ("patch", "trainjobs", "a report cannot be written"),
    ):
        refusing = stack.cluster.faults.add(Refuse(403, message="you may not"), verb=verb, resource=resource)
        with capture_logs() as logs:
            answer = await http.post("train", token)
        refusing.remove()
        assert (answer.code, answer.body) == (500, expected)
        (line,) = (log for log in logs if log["log_level"] == "error")
        assert line["event"] == said
        assert "you may not" in line["error"]


async def test_a_body_that_does_not_come_is_not_waited_for(http: StatusClient, token: str) -> None:
    assert (await http.post("train", token)).code == 200, "from now on nobody has to be asked"
    asked = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{"
        asked.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(http.post("train", token, chunks()))
    await asked.wait()
    await eventually(lambda: http.clock.waiting == 1)
    http.clock.expire()
    answer = await waiting
    assert (answer.code, answer.body["reason"]) == (408, "Timeout")


async def test_only_so_many_requests_are_answered_at_once_and_each_within_a_timeout(
    stack: Stack, http: StatusClient, trainers: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_IN_FLIGHT", 1)
    token = await trainers.token("train", pod=await trainers.create("train"))
    assert stack.cluster is not None
    hold = stack.cluster.faults.add(Delay(3600), verb="patch", resource="trainjobs")
    waiting = asyncio.create_task(http.post("train", token))
    await eventually(lambda: hold.count > 0)
    refused = await http.post("train", token)
    http.clock.expire()
    for answer in (refused, await waiting):
        assert (answer.code, answer.headers["Retry-After"]) == (429, "5")


async def test_the_unforeseen_is_an_answer_and_a_log_line(http: StatusClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatusHandler, "handle", None)
    with capture_logs() as logs:
        answer = await http.post("train", "a.b.c")
    assert (answer.code, answer.message) == (500, "Internal Server Error")
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["a report could not be answered"]


async def test_no_token_is_in_the_log(http: StatusClient, token: str) -> None:
    with capture_logs() as logs:
        await http.post("train", token)
        await http.post("train", token, b"{")
        await http.post("train", f"{token}x")
    assert logs
    assert token not in str(logs)
