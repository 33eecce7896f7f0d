"""POST to the eviction subresource of pods, over HTTPS."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import send

from trainmaster.devcluster.apiserver.resources import POD_DISRUPTION_BUDGETS, PODS
from trainmaster.devcluster.testing.envtest import Environment

PATH = "/api/v1/namespaces/default/pods/p/eviction"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}


@pytest.fixture
async def server(devcluster_server: Environment) -> Environment:
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": spec}
    created = await devcluster_server.api.create(PODS, body, namespace="default")
    running = {**created, "status": {"phase": "Running"}}
    await devcluster_server.api.update(PODS, running, subresource="status")
    return devcluster_server


async def budget(server: Environment, name: str = "web", **status: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    created = await server.api.create(POD_DISRUPTION_BUDGETS, body, namespace="default")
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1}
    new = {**created, "status": {**counts, "observedGeneration": 1, **status}}
    await server.api.update(POD_DISRUPTION_BUDGETS, new, subresource="status")


def pod(server: Environment) -> Any:
    return server.api.get(PODS, "default", "p")


async def test_an_evicted_pod_says_why_it_is_deleted(server: Environment) -> None:
    code, answer, _ = await send(server, "POST", PATH, {**EVICTION, "deleteOptions": {"gracePeriodSeconds": 7}})
    assert (code, answer["kind"], answer["status"]) == (201, "Status", "Success")
    condition = next(each for each in pod(server)["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    assert condition["message"] == "Eviction API: evicting"
    assert pod(server)["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_budget_that_is_used_up_refuses(server: Environment) -> None:
    await budget(server)
    code, answer, _ = await send(server, "POST", PATH, EVICTION)
    assert (code, answer["reason"]) == (429, "TooManyRequests")
    assert answer["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    causes = answer["details"]["causes"]
    text = "The disruption budget web needs 1 healthy pods and has 1 currently"
    assert causes == [{"reason": "DisruptionBudget", "message": text}]
    assert "deletionTimestamp" not in pod(server)["metadata"]


async def test_an_eviction_takes_from_the_budget_at_once(server: Environment) -> None:
    await budget(server, disruptionsAllowed=1)
    code, _, _ = await send(server, "POST", PATH, EVICTION)
    assert code == 201
    status = server.api.get(POD_DISRUPTION_BUDGETS, "default", "web")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])


async def test_a_dry_run_changes_nothing(server: Environment) -> None:
    await budget(server, disruptionsAllowed=1)
    code, _, _ = await send(server, "POST", PATH, {**EVICTION, "deleteOptions": {"dryRun": ["All"]}})
    assert code == 201
    assert "deletionTimestamp" not in pod(server)["metadata"]
    assert server.api.get(POD_DISRUPTION_BUDGETS, "default", "web")["status"]["disruptionsAllowed"] == 1


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (PATH, {**EVICTION, "metadata": {"name": "other"}}, 400),
        (PATH, {"kind": "Pod"}, 400),
        (PATH, {**EVICTION, "deleteOptions": "now"}, 400),
        (PATH, {**EVICTION, "deleteOptions": {"preconditions": {"uid": "another"}}}, 409),
        (PATH.replace("/p/", "/missing/"), {"kind": "Eviction"}, 404),
    ],
)
async def test_wrong_evictions(server: Environment, path: str, body: Any, code: int) -> None:
    assert (await send(server, "POST", path, body))[0] == code
    assert "deletionTimestamp" not in pod(server)["metadata"]


async def test_two_budgets_cannot_be_kept(server: Environment) -> None:
    await budget(server, disruptionsAllowed=1)
    await budget(server, "second", disruptionsAllowed=1)
    code, answer, _ = await send(server, "POST", PATH, EVICTION)
    assert code == 500
    assert answer["message"].startswith("This pod has more than one PodDisruptionBudget")
