"""What Trainmaster does on whatever cluster it is installed: `make e2e KUBECONFIG=FILE` runs this on a real one.

The cluster has JobSet and Trainmaster, and its nodes can pull an image with Python. Seen is what users see, by the API.
"""

import pytest
from support.team import IMAGE, PATIENCE, Place, python
from support.training import RENDEZVOUS, until

from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS, job_resource
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.any_cluster, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(2 * PATIENCE)]

SLICES, HOSTS = 3, 2
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)


async def test_two_jobs_of_four_nodes_meet_on_the_same_port_at_once(place: Place) -> None:
    """Both rendezvous on port 29500, and nobody ends up in the wrong job."""
    await place.make_runtime("meeting")
    names = ["left", "right"]
    for name in names:
        env = [{"name": "JOB", "value": name}]
        await place.submit(name, on="meeting", trainer={"numNodes": 4, "command": python(RENDEZVOUS), "env": env})
    for name in names:
        assert (await place.ended(name))["type"] == "Complete"
        assert await place.logs(name) == ["", "", "", f"met [b'{name}-1', b'{name}-2', b'{name}-3']\n"]


@pytest.mark.parametrize(
    ("policy", "rank", "total"),
    [
        ("jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
        ("torch", "PET_NODE_RANK", "PET_NNODES"),
        ("xgboost", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    ],
)
async def test_every_node_of_every_slice_has_its_own_rank(place: Place, policy: str, rank: str, total: str) -> None:
    name = f"ranks-{policy}"
    await place.make_runtime(name, replicas=SLICES, policy={policy: {}})
    script = (
        f"import os, sys; e = os.environ; print(e['{rank}'], e['{total}'], e['TRAINMASTER_SLICE_ID'], sys.argv[1:])"
    )
    trainer = {"numNodes": SLICES * HOSTS, "command": python(script), "args": ["a b", "$"]}
    await place.submit(name, on=name, trainer=trainer)
    assert (await place.ended(name))["type"] == "Complete"
    (job,) = (await place.client.get(JOBSETS, place.namespace, name))["spec"]["replicatedJobs"]
    assert (job["replicas"], job["template"]["spec"]["parallelism"]) == (SLICES, HOSTS)
    expected = [f"{each} {SLICES * HOSTS} {each // HOSTS} ['a b', '$']\n" for each in range(SLICES * HOSTS)]
    assert await place.logs(name) == expected


async def test_the_nodes_of_all_slices_meet(place: Place) -> None:
    await place.make_runtime("slices", replicas=SLICES, policy={"torch": {}})
    env = [{"name": "JOB", "value": "node"}]
    trainer = {"numNodes": SLICES * HOSTS, "command": python(RENDEZVOUS), "env": env}
    await place.submit("slices-meet", on="slices", trainer=trainer)
    assert (await place.ended("slices-meet"))["type"] == "Complete"
    assert f"met {[f'node-{rank}'.encode() for rank in range(1, SLICES * HOSTS)]}\n" in await place.logs("slices-meet")


async def test_a_script_that_fails_fails_the_job_and_its_exit_code_can_be_seen(place: Place) -> None:
    await place.make_runtime("failing")
    await place.submit("fails", on="failing", trainer={"command": python("import sys; sys.exit(3)")})
    condition = await place.ended("fails")
    assert (condition["type"], condition["reason"]) == ("Failed", "FailedJobs")
    assert "first failed job: fails-node-0" in condition["message"]
    (pod,) = await place.pods("fails")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_script_that_hangs_is_ended_by_the_deadline(place: Place) -> None:
    await place.make_runtime("hanging")
    await place.submit(
        "hangs", on="hanging", activeDeadlineSeconds=3, trainer={"command": python("import time; time.sleep(600)")}
    )
    condition = await place.ended("hangs")
    assert (condition["type"], condition["reason"]) == ("Failed", "DeadlineExceeded")

    async def gone() -> bool:
        return not await place.pods("hangs")

    await until(gone, timeout=PATIENCE)


async def test_suspended_it_stops_and_resumed_it_runs_to_its_end(place: Place) -> None:
    """Its pods wait for a ConfigMap, which is made while there are none."""
    runtime = await place.make_runtime("pausing")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "go", "configMap": {"name": "go", "optional": True}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "go", "mountPath": "/go"}]
    del runtime["metadata"]["managedFields"]
    await place.client.apply(TRAINING_RUNTIMES, runtime, field_manager="tests")
    script = "import os, time\nwhile not os.path.exists('/go/now'): time.sleep(0.05)"
    await place.submit("pauses", on="pausing", trainer={"command": python(script)})

    async def running() -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in await place.pods("pauses"))

    async def stopped() -> bool:
        return not await place.pods("pauses") and "Suspended" in await place.conditions("pauses")

    await until(running, timeout=PATIENCE)
    await place.client.patch(TRAINJOBS, place.namespace, "pauses", {"spec": {"suspend": True}})
    await until(stopped, timeout=PATIENCE)
    go = {"metadata": {"name": "go", "namespace": place.namespace}, "data": {"now": ""}}
    await place.client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **go})
    await place.client.patch(TRAINJOBS, place.namespace, "pauses", {"spec": {"suspend": False}})
    assert (await place.ended("pauses"))["type"] == "Complete"


async def test_deleted_it_takes_everything_with_it(place: Place) -> None:
    await place.make_runtime("deleting")
    await place.submit("short-lived", on="deleting", trainer={"command": python("import time; time.sleep(600)")})
    await until(lambda: place.pods("short-lived"), timeout=PATIENCE)
    await place.client.delete(TRAINJOBS, place.namespace, "short-lived")

    async def gone() -> bool:
        try:
            await place.client.get(JOBSETS, place.namespace, "short-lived")
        except NotFound:
            return not await place.pods("short-lived")
        return False

    await until(gone, timeout=PATIENCE)


async def test_what_is_wrong_is_refused_where_it_is_written(place: Place) -> None:
    """By the rules of the definition, and by the webhooks, which the API server reaches."""
    await place.make_runtime("strict")
    with pytest.raises(ApiError, match=r"spec\.managedBy") as refused:
        await place.submit("of-nobody", on="strict", managedBy="nobody")
    assert refused.value.status == 422
    with pytest.raises(ApiError, match=r"PET_NNODES") as refused:
        await place.submit("reserved", on="strict", trainer={"env": [{"name": "PET_NNODES", "value": "7"}]})
    assert "admission webhook" in str(refused.value)
    (kind,) = (kind for kind in load_job_kinds() if kind.kind == "PyTorchJob")
    with pytest.raises(ApiError, match=r"must have at least one container with name pytorch") as refused:
        await place.client.create(job_resource(kind), unnamed_job(place.namespace))
    assert 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org"' in str(refused.value)


def unnamed_job(namespace: str) -> JsonObject:
    """A PyTorchJob whose container has another name than torch's."""
    template = {"spec": {"containers": [{"name": "main", "image": IMAGE}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "unnamed", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }
