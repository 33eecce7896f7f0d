"""What TrainJobs become with the built-in plugins, beyond the recorded cases: mostly defects of the original."""

import copy
from typing import Any

import pytest
from support.objects import replicated_job, runtime, runtime_object, trainjob, trainjob_object
from support.resolutions import FRAMEWORK, container, jobset

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import JobInvalid, PolicyUnserved, new_info, resolve


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


def test_the_template_of_the_runtime_is_a_tree_of_the_resolution() -> None:
    on = runtime(policy={"torch": {}})
    info = new_info(trainjob(), on)
    info.runtime_template["replicatedJobs"].clear()
    assert info.runtime_template["replicatedJobs"] == []
    assert len(new_info(trainjob(), on).runtime_template["replicatedJobs"]) == len(info.template["replicatedJobs"]) == 1
    info.runtime_template = {"replicatedJobs": [{"name": "other"}]}
    assert info.runtime_template == {"replicatedJobs": [{"name": "other"}]}


def test_a_policy_that_no_plugin_serves_is_refused() -> None:
    """Run without its framework, the job would seem to succeed."""
    with pytest.raises(PolicyUnserved, match=r"no installed plugin serves mlPolicy\.torch"):
        resolve(trainjob(), runtime(policy={"torch": {}}), Framework(load_plugins(disabled=frozenset({"torch"}))))
    raw = runtime_object()
    raw["spec"]["scheduling"] = {}
    with pytest.raises(PolicyUnserved, match=r"serves scheduling; open the feature gate TrainJobWorkloadAware"):
        resolve(trainjob(), parse_runtime(raw), Framework(load_plugins()))
    jobset(trainjob(), runtime(policy={"numNodes": 2}))


@pytest.mark.defect("B18")
def test_an_auxiliary_job_keeps_its_completions() -> None:
    """B18: completions were overwritten with parallelism, which turned a list of work into one round."""
    auxiliary = replicated_job("aux", ancestor=None)
    auxiliary["template"]["spec"] |= {"parallelism": 2, "completions": 10}
    jobs = jobset(trainjob(), runtime(auxiliary, replicated_job()))["spec"]["replicatedJobs"]
    assert [(j["template"]["spec"]["parallelism"], j["template"]["spec"]["completions"]) for j in jobs] == [
        (2, 10),
        (1, 1),
    ]


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_in_a_patch_leaves_what_the_runtime_says(nothing: Any) -> None:
    """As with the original, a patch cannot take anything away."""
    node = replicated_job()
    pod = node["template"]["spec"]["template"]["spec"]
    pod["tolerations"] = [{"operator": "Exists"}]
    pod["schedulingGates"] = [{"name": "acme.io/gate"}]
    patch = _patch({"tolerations": nothing, "schedulingGates": nothing, "nodeSelector": None, "affinity": None})
    assert jobset(trainjob(runtimePatches=[patch]), runtime(node)) == jobset(trainjob(), runtime(node))


@pytest.mark.parametrize(("policy", "slices"), [({"flux": {}}, 1), ({"jax": {}}, 2)])
def test_a_command_that_a_framework_rewrites_is_that_of_one_trainer(policy: JsonObject, slices: int) -> None:
    """What it rests on, scripts or the place of a slice, is in the pods of the first trainer alone."""
    on = runtime(replicated_job(replicas=slices), replicated_job("second"), policy=policy)
    result = jobset(trainjob(trainer={"numNodes": 2, "command": ["train"]}), on)
    first, second = (container(result, job)["command"] for job in range(2))
    assert first[-1] == "train"
    assert first != second == ["train"]


@pytest.mark.parametrize(
    ("trainer", "policy", "fault"),
    [
        ({"numProcPerNode": -3}, {"torch": {}}, r"spec\.trainer is -3"),
        ({"numProcPerNode": -3}, {"mpi": {}}, r"spec\.trainer is -3"),
        ({"numProcPerNode": -3}, {"flux": {}}, r"spec\.trainer is -3"),
        ({}, {"mpi": {"numProcPerNode": 0}}, "the runtime's mlPolicy is 0"),
    ],
)
def test_a_number_of_processes_past_webhooks_is_no_jobset(trainer: JsonObject, policy: JsonObject, fault: str) -> None:
    """The schema of the original lets it pass, and there may be no webhook."""
    with pytest.raises(PluginFailed, match=f"numProcPerNode of {fault}, but must be greater") as caught:
        resolve(trainjob(trainer=trainer), runtime(policy=policy), FRAMEWORK)
    assert caught.value.rejected


def test_a_negative_number_of_nodes_that_no_webhook_saw_becomes_no_jobset() -> None:
    assert jobset(trainjob(trainer={"numProcPerNode": 0}), runtime(policy={"jax": {}})), "nobody counts processes"
    with pytest.raises(JobInvalid, match=r"spec\.trainer\.numNodes: is -1, but must be greater than or equal to 1"):
        resolve(trainjob(trainer={"numNodes": -1}), runtime(), FRAMEWORK)


@pytest.mark.parametrize(
    ("patches", "expected"),
    [(["n"], "nabc"), (["n", "m"], "mnabc"), (["an"], "anbc"), (["cn", "m"], "manbc"), (["cba"], "abc")],
)
def test_replicated_jobs_that_the_runtime_lacks_come_as_in_the_original(patches: list[str], expected: str) -> None:
    """It sorts all by the place in the runtime, and takes a job that has none for one in the first place."""
    on = runtime(*(replicated_job(name, ancestor=None) for name in "abc"))
    pods = {"containers": [{"name": "node", "image": "i"}]}
    added = [
        {
            "manager": f"acme.io/{position}",
            "trainingRuntimeSpec": {
                "template": {
                    "spec": {"replicatedJobs": [{"name": name, "template": _job_template(pods)} for name in names]}
                }
            },
        }
        for position, names in enumerate(patches)
    ]
    built = jobset(trainjob(runtimePatches=added), on)
    assert "".join(job["name"] for job in built["spec"]["replicatedJobs"]) == expected


def test_what_is_zero_for_kubernetes_is_left_out() -> None:
    """The original reads templates into structures of Go, and whoever compares the JobSet sees that."""
    zeros: JsonObject = {
        "imagePullPolicy": "",
        "env": [{"name": "A", "value": ""}],
        "ports": [{"containerPort": 80, "hostPort": 0}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": False, "subPath": ""}],
        "resources": {"limits": {}},
        "securityContext": {"privileged": False},
        "volumeDevices": [],
    }
    node = replicated_job(containers=[{"name": "node", "image": "i", **zeros}])
    template = node["template"]["spec"]["template"]
    template["metadata"] = {"labels": {}, "annotations": {}}
    template["spec"] |= {
        "serviceAccountName": "",
        "nodeSelector": {},
        "topologySpreadConstraints": [],
        "affinity": {},
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": False}},
            {"name": "w", "csi": {"driver": "d", "readOnly": False}},
            {"name": "x", "emptyDir": {}},
        ],
    }
    result = jobset(trainjob(), runtime(node, network={"subdomain": ""}))
    assert result["spec"]["network"] == {}
    pod = result["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod == {
        "metadata": {},
        "spec": {
            "containers": [
                {
                    "name": "node",
                    "image": "i",
                    "env": [{"name": "A"}],
                    "ports": [{"containerPort": 80}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "resources": {},
                    "securityContext": {"privileged": False},
                }
            ],
            "affinity": {},
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "w", "csi": {"driver": "d", "readOnly": False}},
                {"name": "x", "emptyDir": {}},
            ],
        },
    }


def test_variables_of_the_trainjob_are_spelled_out() -> None:
    """As the original applies them, and not as it passes on those of a runtime."""
    limit = {"resourceFieldRef": {"resource": "limits.memory"}}
    own = {"resourceFieldRef": {"resource": "limits.memory", "containerName": "side", "divisor": "1024Ki"}}
    users = [{"name": "A"}, {"name": "B", "valueFrom": limit}, {"name": "C", "valueFrom": own}]
    spelled = [
        {"name": "A", "value": ""},
        {
            "name": "B",
            "valueFrom": {"resourceFieldRef": {**limit["resourceFieldRef"], "containerName": "", "divisor": "0"}},
        },
        {"name": "C", "valueFrom": {"resourceFieldRef": {**own["resourceFieldRef"], "divisor": "1Mi"}}},
    ]
    step = {"name": "dataset-initializer", "image": "i"}
    data = replicated_job("data", ancestor="dataset-initializer", containers=[step])
    node = replicated_job(containers=[{"name": "node", "image": "i", "env": [{"name": "Z"}]}])
    job = trainjob(trainer={"env": users}, initializer={"dataset": {"env": users}})
    result = jobset(job, runtime(data, node))
    assert container(result)["env"] == spelled
    assert container(result, 1)["env"] == [{"name": "Z"}, *spelled]


def test_a_huge_number_of_nodes_costs_nothing() -> None:
    """numNodes is any 32-bit number; whether so many pods can be is for JobSet to say, in words."""
    (pods,) = resolve(trainjob(trainer={"numNodes": 2**31 - 1}), runtime(), FRAMEWORK).info.pod_sets
    assert len(pods.endpoints) == 2**31 - 1
    assert pods.endpoints[-1] == f"demo-node-0-{2**31 - 2}.demo"


def test_what_plugins_do_to_a_container_stays_in_the_resolution() -> None:
    """The trees of a TrainJob are shared with the cache: what is taken from it is copied to the ground."""

    class Vandal:
        name = "Vandal"
        priority = -2000

        def build(self, info: Any, job: Any, listers: Any) -> list[Any]:
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
    first = replicated_job("first", containers=[{"name": "node"}, {"name": "dataset-initializer"}])
    first["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "t"}}]
    resolve(job, runtime(first, replicated_job("second")), Framework([*load_plugins(), Vandal()]))
    assert raw == before
    assert job == model


def _patch(pod_spec: JsonObject, manager: str = "acme.io/x") -> JsonObject:
    job = {"name": "node", "template": _job_template(pod_spec)}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def _job_template(pod_spec: JsonObject) -> JsonObject:
    return {"spec": {"template": {"spec": pod_spec}}}
