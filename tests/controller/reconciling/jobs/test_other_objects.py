"""What jobs own beside pods and Services: they come and go as the kind says."""

from __future__ import annotations

import pytest
from support.jobworld import JobWorld, job_object, replicas

from trainmaster.runtime.jsontree import JsonObject

HPA = "HorizontalPodAutoscaler"
METRICS: list[JsonObject] = [{"type": "Resource", "resource": {"name": "cpu"}}]
POLICY: JsonObject = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}


async def scaled_job() -> JobWorld:
    """An elastic PyTorchJob that metrics scale, settled."""
    world = JobWorld(job_object("PyTorchJob", {"Worker": replicas(2)}, elasticPolicy=POLICY))
    await world.settle()
    assert world.names(HPA) == ["demo"]
    return world


async def test_an_autoscaler_belongs_to_its_job_and_follows_it() -> None:
    world = await scaled_job()
    (owner,) = world.server[HPA, "demo"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PyTorchJob", "demo", True)
    assert world.server[HPA, "demo"]["spec"]["maxReplicas"] == 3
    world.patch_spec(elasticPolicy={**POLICY, "maxReplicas": 5})
    await world.settle()
    assert world.server[HPA, "demo"]["spec"]["maxReplicas"] == 5
    assert world.requests.count(f"apply {HPA} demo") == 2


@pytest.mark.defect("V1-B23")
@pytest.mark.parametrize("policy", [None, {"minReplicas": 1, "maxReplicas": 3}, {**POLICY, "metrics": None}])
async def test_without_metrics_the_autoscaler_goes(policy: JsonObject | None) -> None:
    """V1-B23: it went on scaling a job whose author had taken the metrics away."""
    world = await scaled_job()
    world.patch_spec(elasticPolicy=policy)
    await world.settle()
    assert world.names(HPA) == []
    assert len(world.names("Pod")) == 2


@pytest.mark.defect("V1-B23")
async def test_a_suspended_job_is_not_scaled() -> None:
    """V1-B23: it comes back when the job is resumed."""
    world = await scaled_job()
    world.patch_spec(runPolicy={"suspend": True})
    await world.settle()
    assert world.names(HPA) == []
    world.patch_spec(runPolicy={"suspend": False})
    await world.settle()
    assert world.names(HPA) == ["demo"]


@pytest.mark.defect("V1-B23")
@pytest.mark.parametrize(("phase", "state"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
async def test_a_job_that_has_ended_is_not_scaled(phase: str, state: str) -> None:
    """V1-B23: the autoscaler went on to edit jobs that had ended."""
    world = JobWorld(job_object("PyTorchJob", {"Worker": replicas(2, "Never")}, elasticPolicy=POLICY))
    await world.settle()
    world.run()
    world.set_phase("demo-worker-0", phase, exit_code=0 if phase == "Succeeded" else 1)
    await world.settle()
    assert world.state == state
    assert world.names(HPA) == []
