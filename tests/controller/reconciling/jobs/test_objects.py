"""What a kind builds besides pods and Services (MPIJobs, autoscalers): when it is written, stays and goes."""

from typing import Any

import pytest
from support.jobworld import KEY, KINDS, JobWorld, job_object, replicas, requests_of

from trainmaster.controller.kube.rest.errors import AlreadyExists, Forbidden
from trainmaster.controller.reconciling.expectations import KNOWN_FOR
from trainmaster.controller.reconciling.outcomes import Requeue
from trainmaster.plugins.jobs.mpijob import MPIJob, MPIJobOptions
from trainmaster.runtime.jsontree import JsonObject

OBJECTS = [
    ("ConfigMap", "demo-config"),
    *((kind, "demo-launcher") for kind in ("Role", "RoleBinding", "ServiceAccount")),
]


def mpijob(workers: int = 2, **launcher: Any) -> JsonObject:
    lead = replicas(container="mpi")
    lead["template"]["spec"] |= launcher
    return job_object("MPIJob", {"Launcher": lead, "Worker": replicas(workers, container="mpi")})


def objects(world: JobWorld) -> list[tuple[str, str]]:
    return sorted(each for each in world.server if each[0] not in ("MPIJob", "Pod"))


async def test_they_are_there_before_the_pods_follow_what_changes_and_cost_nothing_otherwise() -> None:
    world = await JobWorld.settled(mpijob())
    written = [request.split()[1] for request in world.requests if request.startswith(("apply", "create"))]
    assert written == ["ServiceAccount", "ConfigMap", "Pod", "Pod", "Pod", "Role", "RoleBinding"]
    world.requests.clear()
    world.run("demo-worker-1")
    await world.settle()
    assert requests_of(world, "apply") == ["apply ConfigMap demo-config"]
    script = world.server["ConfigMap", "demo-config"]["data"]["discover_hosts.sh"]
    assert script.endswith("\necho demo-worker-1:1")
    world.remove("Role", "demo-launcher")
    await world.settle()
    assert objects(world) == OBJECTS


@pytest.mark.parametrize("end", ["suspended", "finished"])
async def test_they_stay_if_the_kind_says_so(end: str) -> None:
    world = await JobWorld.settled(mpijob())
    if end == "suspended":
        world.patch_spec(runPolicy={"suspend": True})
    else:
        await world.see_phase("demo-launcher", "Succeeded")
    assert objects(world) == OBJECTS
    assert requests_of(world, "delete ConfigMap") == []


@pytest.mark.defect("V1-B19")
async def test_an_account_of_the_authors_is_nobodys_and_is_left_alone() -> None:
    """V1-B19: it is made if it is missing, and belongs to no job."""
    world = await JobWorld.settled(mpijob(serviceAccountName="nosa"))
    assert world.server["ServiceAccount", "nosa"]["metadata"]["ownerReferences"] == []
    world.requests.clear()
    account = world.server["ServiceAccount", "nosa"]
    world.put({**account, "imagePullSecrets": [{"name": "registry"}]})
    await world.settle()
    assert world.requests == []


async def test_an_account_that_is_replaced_by_the_authors_stays_too() -> None:
    """Nobody has the right to delete it, and pods may still use it."""
    world = await JobWorld.settled(mpijob())
    await world.edit(**mpijob(serviceAccountName="own")["spec"])
    assert world.names("ServiceAccount") == ["demo-launcher", "own"]


async def test_one_of_somebody_else_blocks_the_job() -> None:
    world = JobWorld(mpijob())
    world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-config"}, "data": {"k": "v"}})
    await world.settle()
    assert world.server["ConfigMap", "demo-config"]["data"] == {"k": "v"}
    assert world.names("Pod") == []
    blocked = next(each for each in world.status["conditions"] if each["type"] == "Blocked")
    assert blocked["message"] == (
        'ConfigMap "demo-config" exists and does not belong to this MPIJob; delete it or rename the job'
    )


async def test_what_an_earlier_job_left_is_waited_for() -> None:
    world = await JobWorld.settled(mpijob())
    for name in world.names("Pod"):
        world.remove("Pod", name)
    world.put({**mpijob(), "metadata": {"name": "demo", "namespace": "team", "uid": "another"}})
    await world.settle()
    assert world.names("Pod") == []
    for kind, name in OBJECTS:
        world.remove(kind, name)
    await world.settle()
    assert objects(world) == OBJECTS
    assert all(world.server[each]["metadata"]["ownerReferences"][0]["uid"] == "another" for each in OBJECTS)


async def test_what_may_not_be_built_blocks_the_job_and_is_not_tried_all_the_time() -> None:
    """The server refuses a Role that gives what its author does not have."""
    world = JobWorld(mpijob())
    refusal = Forbidden(status=403, reason="Forbidden", message="attempting to grant RBAC permissions not held")
    world.refusals["apply Role demo-launcher"] = refusal
    await world.reconcile()
    world.catch_up()
    outcome = await world.reconcile()
    assert isinstance(outcome, Requeue)
    assert world.names("RoleBinding") == []
    blocked = next(each for each in world.status["conditions"] if each["type"] == "Blocked")
    assert "not held" in blocked["message"]


def exec_names(world: JobWorld) -> list[str]:
    """Return the pods into which the launcher may exec."""
    rules = world.server["Role", "demo-launcher"]["rules"]
    return [name for rule in rules for name in rule.get("resourceNames", ())]


def foreign_pod(name: str) -> JsonObject:
    """A pod of somebody else's PyTorchJob of the same name."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "demo", "uid": "victim", "controller": True}
    metadata = {"name": name, "namespace": "team", "uid": "p", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


async def test_a_job_whose_pods_belong_to_somebody_else_gets_no_rights_to_them() -> None:
    world = JobWorld(mpijob(serviceAccountName="attacker"))
    world.put(foreign_pod("demo-worker-0"))
    await world.settle()
    assert (world.names("Role"), world.names("RoleBinding")) == ([], [])
    assert "Blocked" in [each["type"] for each in world.status["conditions"]]


@pytest.mark.parametrize("state", ["running", "suspended", "finished", "invalid", "blocked"])
async def test_the_right_to_a_pod_ends_with_the_pod(state: str) -> None:
    """Its name may be taken by a pod of somebody else, whatever the state of the job."""
    world = await JobWorld.settled(mpijob())
    assert exec_names(world) == ["demo-worker-0", "demo-worker-1"]
    if state == "suspended":
        world.patch_spec(runPolicy={"suspend": True})
    elif state == "finished":
        await world.see_phase("demo-launcher", "Succeeded")
    elif state == "invalid":
        world.patch_spec(mpiReplicaSpecs={"Worker": replicas(2, container="mpi")})
    elif state == "blocked":
        world.remove("ConfigMap", "demo-config")
        world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-config", "namespace": "team"}})
    if state != "suspended":
        world.remove("Pod", *world.names("Pod"))
        world.put(foreign_pod("demo-worker-0"))
    await world.settle()
    assert exec_names(world) == []
    world.requests.clear()
    await world.settle()
    assert world.requests == []


HPA = "HorizontalPodAutoscaler"
METRICS: list[JsonObject] = [{"type": "Resource", "resource": {"name": "cpu"}}]
POLICY: JsonObject = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}


async def scaled_job() -> JobWorld:
    """An elastic PyTorchJob that metrics scale, settled."""
    world = await JobWorld.settled(job_object("PyTorchJob", {"Worker": replicas(2)}, elasticPolicy=POLICY))
    assert world.names(HPA) == ["demo"]
    return world


async def test_an_autoscaler_belongs_to_its_job_and_follows_it() -> None:
    world = await scaled_job()
    (owner,) = world.server[HPA, "demo"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PyTorchJob", "demo", True)
    assert world.server[HPA, "demo"]["spec"]["maxReplicas"] == 3
    await world.edit(elasticPolicy={**POLICY, "maxReplicas": 5})
    assert world.server[HPA, "demo"]["spec"]["maxReplicas"] == 5
    assert world.requests.count(f"apply {HPA} demo") == 2


@pytest.mark.defect("V1-B23")
@pytest.mark.parametrize("policy", [None, {"minReplicas": 1, "maxReplicas": 3}, {**POLICY, "metrics": None}])
async def test_without_metrics_the_autoscaler_goes(policy: JsonObject | None) -> None:
    """V1-B23: it went on scaling a job whose author had taken the metrics away."""
    world = await scaled_job()
    await world.edit(elasticPolicy=policy)
    assert world.names(HPA) == []
    assert len(world.names("Pod")) == 2


@pytest.mark.defect("V1-B23")
async def test_a_suspended_job_is_not_scaled() -> None:
    """It comes back when the job is resumed."""
    world = await scaled_job()
    await world.edit(runPolicy={"suspend": True})
    assert world.names(HPA) == []
    await world.edit(runPolicy={"suspend": False})
    assert world.names(HPA) == ["demo"]


@pytest.mark.defect("V1-B23")
@pytest.mark.parametrize(("phase", "state"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
async def test_a_job_that_has_ended_is_not_scaled(phase: str, state: str) -> None:
    """V1-B23: the autoscaler went on to edit jobs that had ended."""
    world = await JobWorld.settled(job_object("PyTorchJob", {"Worker": replicas(2, "Never")}, elasticPolicy=POLICY))
    world.run()
    await world.see_phase("demo-worker-0", phase, exit_code=0 if phase == "Succeeded" else 1)
    assert world.state == state
    assert world.names(HPA) == []


@pytest.fixture
def over_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "MPIJob", MPIJob(MPIJobOptions(transport="ssh")))


@pytest.mark.usefixtures("over_ssh")
async def test_keys_that_nobody_may_list_are_found_by_trying_to_create_them() -> None:
    """After a restart, and every five minutes: they may have been deleted meanwhile."""
    world = await JobWorld.settled(mpijob())
    keys = world.server["Secret", "demo-ssh"]
    for gone in (False, True):
        await world.clock.advance(KNOWN_FOR + 1)
        assert world.reconciler.unobserved() == [KEY]
        if gone:
            del world.server["Secret", "demo-ssh"]
        world.requests.clear()
        await world.settle()
        assert world.requests == ["create Secret demo-ssh"] + ([] if gone else ["get Secret demo-ssh"])
        assert (world.server["Secret", "demo-ssh"] == keys) != gone
    assert world.state == "Created"


@pytest.mark.usefixtures("over_ssh")
@pytest.mark.parametrize("is_known", [False, True])
async def test_keys_of_a_job_of_the_same_name_are_waited_out(is_known: bool) -> None:
    world = await JobWorld.settled(mpijob())
    if not is_known:
        world.restart()
    world.put({**world.job, "metadata": {**world.job["metadata"], "uid": "uid-2"}, "status": {}})
    world.remove("Pod", *world.names("Pod"))
    with pytest.raises(AlreadyExists):
        await world.settle()
    for kind, name in list(world.server):
        if kind != "MPIJob":
            world.remove(kind, name)
    await world.settle()
    assert world.server["Secret", "demo-ssh"]["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
