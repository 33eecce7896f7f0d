"""What TrainJobs become with the built-in plugins, beyond the recorded cases: mostly defects of the original."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support.objects import replicated_job, runtime, runtime_object, trainjob, trainjob_object

from trainmaster.runtime.api import ClusterTrainingRuntime, TrainingRuntime, TrainJob, parse_runtime, parse_trainjob
from trainmaster.runtime.extension import ApplyWhen
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins, owner_reference
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolving import PolicyUnserved, resolve

FRAMEWORK = Framework(load_plugins())


def jobset(job: TrainJob, on: TrainingRuntime | ClusterTrainingRuntime) -> JsonObject:
    (desired,) = resolve(job, on, FRAMEWORK).objects
    assert desired.when is ApplyWhen.SUSPENDED
    return desired.object


def container(obj: JsonObject, job: int = 0, index: int = 0) -> JsonObject:
    found: JsonObject = obj["spec"]["replicatedJobs"][job]["template"]["spec"]["template"]["spec"]["containers"][index]
    return found


def env(obj: JsonObject, job: int = 0, index: int = 0) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container(obj, job, index).get("env", [])}


def test_inputs_are_never_changed() -> None:
    raw_runtime = runtime_object(policy={"torch": {}})
    raw_job = trainjob_object(
        trainer={"numNodes": 2, "env": [{"name": "A", "value": "1"}], "resourcesPerNode": {"limits": {"cpu": 2}}},
        runtimePatches=[_patch({"containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]})],
    )
    before = copy.deepcopy((raw_runtime, raw_job))
    job, on = parse_trainjob(raw_job), parse_runtime(raw_runtime)
    first = jobset(job, on)
    assert jobset(job, on) == first
    assert (raw_runtime, raw_job) == before


def test_b3_torch_environment_without_a_trainer() -> None:
    """B3: a runtime with several nodes needs the rendezvous also when the TrainJob has no `trainer`."""
    result = jobset(trainjob(), runtime(policy={"numNodes": 2, "torch": {}}))
    assert env(result)["PET_NNODES"] == "2"
    assert container(result)["ports"] == [{"containerPort": 29500}]


def test_b5_process_count_follows_what_the_container_really_gets() -> None:
    """B5: the runtime's GPUs still count when the TrainJob only sets memory."""
    gpus = [{"name": "node", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 4}}}]
    job = trainjob(trainer={"resourcesPerNode": {"limits": {"memory": "1Gi"}}})
    result = jobset(job, runtime(replicated_job(containers=gpus), policy={"torch": {}}))
    assert container(result)["resources"]["limits"] == {"nvidia.com/gpu": "4", "memory": "1Gi"}
    assert env(result)["PET_NPROC_PER_NODE"] == "auto"


@pytest.mark.parametrize(
    ("resources", "processes"),
    [
        ({}, "1"),
        ({"limits": {"cpu": "4"}}, "4"),
        ({"limits": {"cpu": "500m"}}, "1"),
        ({"requests": {"cpu": 2.5}}, "3"),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "8"}}, "2"),
        ({"limits": {"amd.com/gpu": 1}}, "auto"),
        ({"limits": {"nvidia.com/gpu": 0, "cpu": 2}}, "2"),
    ],
)
def test_processes_per_node(resources: JsonObject, processes: str) -> None:
    job = trainjob(trainer={"resourcesPerNode": resources})
    assert env(jobset(job, runtime(policy={"torch": {}})))["PET_NPROC_PER_NODE"] == processes


def test_b6_resources_apply_without_an_ml_policy() -> None:
    """B6: `resourcesPerNode` was silently ignored when the runtime has no mlPolicy."""
    result = jobset(trainjob(trainer={"resourcesPerNode": {"limits": {"cpu": 1}}}), runtime())
    assert container(result)["resources"] == {"limits": {"cpu": "1"}}


def test_b9_unnamed_ports_are_told_apart_by_number() -> None:
    """B9: the rendezvous port replaced any unnamed port of the user."""
    ports = [{"name": "node", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81}]}]
    result = jobset(trainjob(trainer={}), runtime(replicated_job(containers=ports), policy={"torch": {}}))
    assert [port["containerPort"] for port in container(result)["ports"]] == [80, 81, 29500]


def test_b15_resource_claims_survive() -> None:
    """B15: claims of both the runtime and the TrainJob were dropped."""
    claims = [{"name": "node", "image": "i", "resources": {"claims": [{"name": "a"}]}}]
    job = trainjob(trainer={"resourcesPerNode": {"claims": [{"name": "b", "request": "r"}]}})
    result = jobset(job, runtime(replicated_job(containers=claims), policy={"torch": {}}))
    assert container(result)["resources"]["claims"] == [{"name": "a"}, {"name": "b", "request": "r"}]


def test_a_policy_that_no_plugin_serves_is_refused() -> None:
    """Run without its framework, the job would seem to succeed."""
    with pytest.raises(PolicyUnserved, match=r"no installed plugin serves mlPolicy\.torch"):
        resolve(trainjob(), runtime(policy={"torch": {}}), Framework(load_plugins(disabled=frozenset({"torch"}))))
    jobset(trainjob(), runtime(policy={"numNodes": 2}))


def test_b18_an_auxiliary_job_keeps_its_completions() -> None:
    """B18: completions were overwritten with parallelism, which turned a list of work into one round."""
    auxiliary = replicated_job("aux", ancestor=None)
    auxiliary["template"]["spec"] |= {"parallelism": 2, "completions": 10}
    jobs = jobset(trainjob(), runtime(auxiliary, replicated_job()))["spec"]["replicatedJobs"]
    assert [(j["template"]["spec"]["parallelism"], j["template"]["spec"]["completions"]) for j in jobs] == [
        (2, 10),
        (1, 1),
    ]


def test_b19_the_master_is_the_trainer_whatever_it_is_called() -> None:
    """B19: the address was wired to a job called node and a subdomain called like the TrainJob."""
    on = runtime(replicated_job("workers"), policy={"torch": {}}, network={"subdomain": "mesh"})
    assert env(jobset(trainjob(), on))["PET_MASTER_ADDR"] == "demo-workers-0-0.mesh"


def test_patches_keep_the_order_of_the_runtimes_jobs() -> None:
    on = runtime(replicated_job("first", ancestor=None), replicated_job())
    patches = [
        {
            "manager": "acme.io/x",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node"}, {"name": "first"}]}}},
        }
    ]
    result = jobset(trainjob(runtimePatches=patches), on)
    assert [job["name"] for job in result["spec"]["replicatedJobs"]] == ["first", "node"]


def test_later_patches_win() -> None:
    patches = [
        _patch({"nodeSelector": {"a": "1", "b": "1"}}),
        _patch({"nodeSelector": {"b": "2"}}, manager="acme.io/y"),
    ]
    result = jobset(trainjob(runtimePatches=patches), runtime())
    pod = result["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"a": "1", "b": "2"}


def test_an_empty_command_means_that_of_the_runtime() -> None:
    image = [{"name": "node", "image": "i", "command": ["keep"], "args": ["keep"]}]
    result = jobset(trainjob(trainer={"command": [], "args": []}), runtime(replicated_job(containers=image)))
    assert container(result)["command"] == container(result)["args"] == ["keep"]


def test_an_injection_target_that_does_not_exist_is_named() -> None:
    policy = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["ghost"]}]}}}
    with pytest.raises(PluginFailed, match='podSet "node" container "ghost" not found') as caught:
        jobset(trainjob(), runtime(policy=policy))
    assert caught.value.rejected


def test_endpoints_name_every_pod_in_rank_order() -> None:
    on = runtime(replicated_job("aux", ancestor=None, replicas=2), replicated_job(), policy={"numNodes": 2})
    info = resolve(trainjob(), on, FRAMEWORK).info
    assert [list(pods.endpoints) for pods in info.pod_sets] == [
        ["demo-aux-0-0.demo", "demo-aux-1-0.demo"],
        ["demo-node-0-0.demo", "demo-node-0-1.demo"],
    ]


def test_a_huge_number_of_nodes_costs_nothing() -> None:
    """numNodes is any 32-bit number; whether so many pods can be is for JobSet to say, in words."""
    info = resolve(trainjob(trainer={"numNodes": 2**31 - 1}), runtime(), FRAMEWORK).info
    (pods,) = info.pod_sets
    assert len(pods.endpoints) == 2**31 - 1
    assert pods.endpoints[-1] == f"demo-node-0-{2**31 - 2}.demo"


def test_what_plugins_do_to_a_container_stays_in_the_resolution() -> None:
    """The trees of a TrainJob are shared with the cache: what is taken from it is copied to the ground."""

    class Vandal:
        name = "Vandal"
        priority = -2000

        def build(self, info: Any, job: Any, facts: Any) -> list[Any]:
            node, other = (pods.container("node") for pods in info.pod_sets)
            for touched in (node["env"][0]["valueFrom"]["fieldRef"], node["envFrom"][0]["secretRef"]):
                touched["x"] = "y"
            node["command"].append("y")
            assert other["command"] == ["c"]
            assert "x" not in other["env"][0]["valueFrom"]["fieldRef"]
            return []

    source = {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}], "secretRef": {"name": "s"}}
    raw = trainjob_object(trainer={"env": source["env"], "command": ["c"]}, initializer={"dataset": source})
    before = copy.deepcopy(raw)
    job = parse_trainjob(raw)
    model = copy.deepcopy(job)
    steps = [{"name": "node"}, {"name": "dataset-initializer"}]
    first = replicated_job("first", containers=steps)
    first["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "t"}}]
    resolve(job, runtime(first, replicated_job("second")), Framework([*load_plugins(), Vandal()]))
    assert raw == before
    assert job == model


def test_a_jobset_condition_that_lacks_something_still_ends_the_job() -> None:
    """The schema of TrainJobs demands a reason; without one the end could never be written down."""
    completed = {"type": "Completed", "status": "True", "reason": "", "lastTransitionTime": None}
    job = trainjob()
    jobset = {
        "metadata": {"ownerReferences": [owner_reference(job)]},
        "status": {
            "conditions": [completed, {"type": "Odd"}, {}],
            "replicatedJobsStatus": [{"name": "node", "ready": None}],
        },
    }

    class Facts:
        def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
            return jobset

        def list(self, api_version: str, kind: str, namespace: str | None = None) -> list[JsonObject]:
            return []

    report = FRAMEWORK.status(job, Facts())
    assert report is not None
    assert report.conditions == [{"type": "Complete", "status": "True", "reason": "Completed", "message": ""}]
    assert report.jobs_status == [
        {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    ]


def _patch(pod_spec: JsonObject, manager: str = "acme.io/x") -> JsonObject:
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod_spec}}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
