"""TrainJobs whose runtime the caches do not hold: the API server is asked before anybody is refused."""

from __future__ import annotations

import pytest
from support.objects import runtime_object, trainjob_object
from support.resolutions import FRAMEWORK, KnownServer
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotConnected
from trainmaster.controller.webhooks import AdmissionHandlers
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINJOB
from trainmaster.controller.webhooks.review import AdmissionRequest, AdmissionResponse
from trainmaster.runtime.jsontree import JsonObject

MISSING = "specified trainingRuntime must be created before the TrainJob is created"


async def judge(server: KnownServer, obj: JsonObject, old: JsonObject | None = None) -> AdmissionResponse:
    handlers = AdmissionHandlers(FRAMEWORK, {}, server, clock=VirtualClock()).handlers()
    request = AdmissionRequest("u-1", "CREATE" if old is None else "UPDATE", obj, old)
    return await handlers[VALIDATE_TRAINJOB](request)


async def test_both_created_in_a_row_are_admitted() -> None:
    server = KnownServer(runtime_object())
    assert (await judge(server, trainjob_object())).allowed
    assert server.asked == [("TrainingRuntime", "team", "rt")]


async def test_one_that_the_server_has_not_either_is_missing() -> None:
    response = await judge(KnownServer(), trainjob_object())
    assert not response.allowed
    assert MISSING in response.message


@pytest.mark.parametrize("failure", [NotConnected("connection refused"), Forbidden(status=403)])
async def test_a_server_that_cannot_be_asked_is_no_crash(failure: KubeError) -> None:
    server = KnownServer(runtime_object())
    server.failure = failure
    response = await judge(server, trainjob_object())
    assert not response.allowed
    assert MISSING in response.message


@pytest.mark.parametrize("name", ["", "..", "../../../../api/v1/namespaces/kube-system/secrets/a", "rt?x=y", "%2e"])
async def test_nothing_is_asked_for_a_name_that_no_object_can_have(name: str) -> None:
    server = KnownServer(runtime_object())
    response = await judge(server, trainjob_object(runtimeRef={"name": name, "kind": "TrainingRuntime"}))
    assert not response.allowed
    assert server.asked == []


@pytest.mark.parametrize("reference", [{"kind": ""}, {"kind": "Pod"}, {"apiGroup": "acme.io"}])
async def test_nothing_is_asked_for_what_is_no_runtime(reference: JsonObject) -> None:
    server = KnownServer(runtime_object())
    response = await judge(server, trainjob_object(runtimeRef={"name": "rt", "kind": "TrainingRuntime", **reference}))
    assert response.message.startswith("unsupported runtime: ")
    assert server.asked == []


async def test_a_stored_trainjob_is_not_held_up() -> None:
    server = KnownServer()
    await judge(server, trainjob_object(suspend=True), trainjob_object())
    assert server.asked == []
