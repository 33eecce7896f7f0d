"""What becomes of single fields of V1 jobs."""

import pytest
from support.conversions import (
    MAPS,
    built,
    convert_job,
    environment,
    groups_of,
    job,
    job_spec,
    lost,
    pods,
    replicas,
    runtime_of,
    simple,
    told,
    trainjob_of,
)

from trainmaster.runtime.conversion.notes import Conversion, ConversionError
from trainmaster.runtime.conversion.replicas import ENDLESS
from trainmaster.runtime.conversion.training_operator import KINDS
from trainmaster.runtime.jsontree import JsonObject, copy_tree

# The run policy


@pytest.mark.parametrize(
    ("given", "becomes", "is_lost"),
    [
        ({"suspend": True}, {"suspend": True}, False),
        ({"activeDeadlineSeconds": 60}, {"activeDeadlineSeconds": 60}, False),
        ({"activeDeadlineSeconds": 0}, {}, True),
        ({"ttlSecondsAfterFinished": 0}, {"ttlSecondsAfterFinished": 0}, False),
        ({"ttlSecondsAfterFinished": -3}, {"ttlSecondsAfterFinished": 0}, False),
        (
            {"managedBy": "kubeflow.org/training-operator"},
            {"managedBy": "trainer.kubeflow.org/trainjob-controller"},
            False,
        ),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, {"managedBy": "kueue.x-k8s.io/multikueue"}, False),
        ({"cleanPodPolicy": "Running"}, {}, False),
        ({"cleanPodPolicy": "All"}, {}, True),
        ({"cleanPodPolicy": "None"}, {}, True),
        ({}, {}, False),
    ],
)
def test_run_policy(given: JsonObject, becomes: JsonObject, is_lost: bool) -> None:
    conversion = convert_job(simple(run_policy=given))
    spec = trainjob_of(conversion)
    assert {field: value for field, value in spec.items() if field not in ("runtimeRef", "trainer")} == becomes
    assert lost(conversion) == ([f"spec.runPolicy.{field}" for field in given] if is_lost else [])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    ("policy", "limit", "pod", "becomes"),
    [
        ("OnFailure", None, "OnFailure", {"backoffLimit": ENDLESS}),
        ("OnFailure", 4, "OnFailure", {"backoffLimit": 4}),
        ("Always", 4, "OnFailure", {"backoffLimit": 4}),
        ("Never", 4, "Never", {"backoffLimit": 0}),
        ("Never", None, "Never", {"backoffLimit": 0}),
    ],
)
def test_restart_policies(kind: str, policy: str, limit: int | None, pod: str, becomes: JsonObject) -> None:
    type_ = {"XGBoostJob": "Master", "MPIJob": "Launcher"}.get(kind, "Worker")
    run_policy = {} if limit is None else {"backoffLimit": limit}
    conversion = convert_job(job(kind, {type_: replicas(kind, policy=policy)}, run_policy=run_policy))
    (spec,) = (each["template"]["spec"] for each in groups_of(conversion).values())
    assert {field: value for field, value in spec.items() if field in ("backoffLimit", "podFailurePolicy")} == becomes
    assert spec["template"]["spec"]["restartPolicy"] == pod
    assert (f"spec.{MAPS[kind]}.{type_}.restartPolicy" in lost(conversion)) == (policy == "Always")
    assert ("spec.runPolicy.backoffLimit" in told(conversion)) == (policy == "Never" and limit is not None)


def test_exit_codes_below_128_are_permanent() -> None:
    conversion = convert_job(job("XGBoostJob", {"Master": replicas("XGBoostJob", policy="ExitCode")}))
    spec = job_spec(conversion)
    assert spec["backoffLimit"] == ENDLESS
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {"containerName": "node", "operator": "In", "values": list(range(1, 128))}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(("kind", "policy"), [("PyTorchJob", "OnFailure"), ("JAXJob", "Never")])
def test_the_default_restart_policy_is_that_of_the_kind(kind: str, policy: str) -> None:
    assert job_spec(convert_job(simple(kind, 1)))["template"]["spec"]["restartPolicy"] == policy


# Gangs


def test_without_a_gang_scheduler_the_scheduling_policy_is_lost() -> None:
    policy = {
        "minAvailable": 2,
        "queue": "q",
        "priorityClass": "p",
        "minResources": {"cpu": "1"},
        "scheduleTimeoutSeconds": 9,
    }
    conversion = convert_job(simple(run_policy={"schedulingPolicy": policy}))
    assert sorted(lost(conversion)) == sorted(f"spec.runPolicy.schedulingPolicy.{field}" for field in policy)
    assert "podGroupPolicy" not in runtime_of(conversion)


def test_volcano() -> None:
    policy = {"minAvailable": 2, "queue": "q", "priorityClass": "system-node-critical", "minResources": {"cpu": "1"}}
    conversion = convert_job(simple(run_policy={"schedulingPolicy": policy}), gang_scheduler="Volcano")
    runtime = runtime_of(conversion)
    assert runtime["podGroupPolicy"] == {"volcano": {}}
    assert runtime["template"]["metadata"] == {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}
    pod_spec = job_spec(conversion)["template"]["spec"]
    assert (pod_spec["schedulerName"], pod_spec["priorityClassName"]) == ("volcano", "system-node-critical")
    assert lost(conversion) == []


def test_scheduler_plugins() -> None:
    policy = {"minAvailable": 1, "queue": "q", "scheduleTimeoutSeconds": 9}
    conversion = convert_job(simple(run_policy={"schedulingPolicy": policy}), gang_scheduler="mine")
    assert runtime_of(conversion)["podGroupPolicy"] == {"coscheduling": {"scheduleTimeoutSeconds": 9}}
    assert job_spec(conversion)["template"]["spec"]["schedulerName"] == "mine"
    # Fewer than all pods cannot be asked for.
    assert lost(conversion) == ["spec.runPolicy.schedulingPolicy.minAvailable"]


def test_a_scheduler_of_the_pods_own_stays() -> None:
    own = job("JAXJob", {"Worker": replicas("JAXJob", pod={"schedulerName": "own", "priorityClassName": "mine"})})
    own["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": "theirs"}}
    pod_spec = job_spec(convert_job(own, gang_scheduler="volcano"))["template"]["spec"]
    assert (pod_spec["schedulerName"], pod_spec["priorityClassName"]) == ("own", "mine")


# Metadata and pods


def test_metadata_of_the_cluster_stays_behind() -> None:
    old = simple()
    kept: JsonObject = {
        "labels": {"kueue.x-k8s.io/queue-name": "q"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}],
    }
    old["metadata"] |= kept | {
        "annotations": {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        "uid": "1",
        "resourceVersion": "2",
        "finalizers": ["a/b"],
    }
    old["status"] = {"conditions": []}
    conversion = convert_job(old)
    name = {"name": "demo", "namespace": "team"}
    assert conversion.objects[1]["metadata"] == name | kept | {"annotations": {"a": "b"}}
    assert conversion.objects[0]["metadata"] == name | {"labels": {"trainer.kubeflow.org/framework": "jax"}}
    assert lost(conversion) == ["metadata.finalizers"]
    assert {"metadata.uid", "metadata.resourceVersion", "status"} <= set(told(conversion))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"MPIJob"}))
def test_a_generated_name_is_known_to_the_pods(kind: str) -> None:
    old = simple(kind)
    if kind == "XGBoostJob":
        old = job(kind, {"Master": replicas(kind), "Worker": replicas(kind, 2)})
    old["metadata"] = {"generateName": "demo-"}
    conversion = convert_job(old)
    assert conversion.objects[0]["metadata"]["name"] == "demo"
    assert conversion.objects[1]["metadata"] == {"generateName": "demo-"}
    named = copy_tree(conversion.objects[1])
    named["metadata"] = {"name": "demo-12345"}
    for host, pod_spec, fields in pods(built(Conversion([conversion.objects[0], named]))):
        seen = environment(pod_spec["containers"][0], fields)
        assert seen["JOBSET_NAME"] == "demo-12345", host
        assert not [name for name, value in seen.items() if "$(" in value]


def test_what_users_change_from_job_to_job_is_in_the_trainjob() -> None:
    container: JsonObject = {"command": ["python"], "args": ["a.py"], "env": [{"name": "A", "value": "1"}]}
    resources = {"limits": {"cpu": "1"}}
    workers = replicas("JAXJob", 3, resources=resources, **container)
    trainer = trainjob_of(convert_job(job("JAXJob", {"Worker": workers})))["trainer"]
    assert trainer == {"numNodes": 3, "image": "image:1", **container, "resourcesPerNode": resources}


def test_what_a_trainjob_cannot_hold_stays_in_the_runtime() -> None:
    container: JsonObject = {
        "image": "i" * 501,
        "args": [str(number) for number in range(129)],
        "env": [{"name": f"A{number}", "value": "1"} for number in range(129)],
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "c"}]},
    }
    pod = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]}
    conversion = convert_job(job("JAXJob", {"Worker": replicas("JAXJob", pod=pod, **container)}))
    assert trainjob_of(conversion)["trainer"] == {"numNodes": 1}
    node = job_spec(conversion)["template"]["spec"]["containers"][0]
    assert {field: node[field] for field in ("image", "args", "resources")} == {
        field: container[field] for field in ("image", "args", "resources")
    }
    assert node["env"][-129:] == container["env"]


def test_the_host_names_of_v1_are_rewritten() -> None:
    container: JsonObject = {
        "command": ["run", "--hosts=demo-worker-0,demo-worker-1:1", "tcp://demo-worker-0.team.svc.cluster.local:9"],
        "args": [
            *("demo-worker-7", "/logs/demo-worker-0", "demo-worker-0.log", "xdemo-worker-0", "demo-worker", "demo-ps-0")
        ],
        "env": [{"name": "PEER", "value": "demo-worker-1.team"}],
    }
    conversion = convert_job(job("JAXJob", {"Worker": replicas("JAXJob", 2, **container)}))
    trainer = trainjob_of(conversion)["trainer"]
    assert trainer["command"] == [
        "run",
        "--hosts=demo-node-0-0.demo,demo-node-0-1.demo:1",
        "tcp://demo-node-0-0.demo.team.svc.cluster.local:9",
    ]
    assert trainer["args"] == container["args"]
    assert trainer["env"] == [{"name": "PEER", "value": "demo-node-0-1.demo.team"}]
    path = "spec.jaxReplicaSpecs.Worker.template.spec.containers[0]"
    assert {f"{path}.command[1]", f"{path}.command[2]", f"{path}.env[0].value"} <= set(told(conversion))


def test_fields_that_read_the_index_of_a_replica_read_that_of_the_pod() -> None:
    label = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}}
    env = [{"name": "INDEX", **label}]
    kind = "PyTorchJob"
    conversion = convert_job(job(kind, {"Master": replicas(kind, env=env), "Worker": replicas(kind, 2, env=env)}))
    # An index of master and worker each: their pods differ although their templates do not.
    found = {host: environment(pod["containers"][0], fields)["INDEX"] for host, pod, fields in pods(built(conversion))}
    assert found == {"demo-master-0-0.demo": "0", "demo-worker-0-0.demo": "0", "demo-worker-1-0.demo": "1"}


def test_selectors_of_labels_that_are_gone_are_told() -> None:
    term = {"labelSelector": {"matchLabels": {"training.kubeflow.org/job-role": "master"}}, "topologyKey": "zone"}
    pod = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    conversion = convert_job(job("JAXJob", {"Worker": replicas("JAXJob", pod=pod)}))
    assert lost(conversion) == ["spec.jaxReplicaSpecs.Worker.template.spec"]


def test_another_container_of_the_name_node_gets_another() -> None:
    pod = {"containers": [{"name": "node", "image": "a"}, {"name": "jax", "image": "b"}]}
    conversion = convert_job(job("JAXJob", {"Worker": replicas("JAXJob", pod=pod)}))
    assert [each["name"] for each in job_spec(conversion)["template"]["spec"]["containers"]] == ["node-0", "node"]
    assert trainjob_of(conversion)["trainer"]["image"] == "b"


# Wrong input


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": "a" * 60}}, "metadata.name"),
        ({"metadata": []}, "metadata"),
        ({"spec": {"jaxReplicaSpecs": {}}}, "spec.jaxReplicaSpecs"),
        ({"spec": {"jaxReplicaSpecs": {"Worker": 1}}}, "spec.jaxReplicaSpecs.Worker"),
        ({"spec": {"jaxReplicaSpecs": {"Server": {}}}}, "spec.jaxReplicaSpecs.Server"),
        ({"spec": {"jaxReplicaSpecs": {"Worker": {}, "worker": {}}}}, None),
    ],
)
def test_odd_jobs_are_refused_with_the_field(change: JsonObject, path: str | None) -> None:
    with pytest.raises(ConversionError) as caught:
        convert_job(simple() | change)
    assert path is None or caught.value.problems[0][0] == path


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"replicas": "2"}, "replicas"),
        ({"replicas": -1}, "replicas"),
        ({"restartPolicy": "Sometimes"}, "restartPolicy"),
        ({"template": {"spec": {"containers": [{"name": "jax"}]}}}, "template.spec.containers[0].image"),
        ({"template": {"spec": {"containers": ["a"]}}}, "template.spec.containers[0]"),
        ({"template": {"spec": "a"}}, "template.spec"),
        ({"template": {"metadata": {"labels": []}}}, "template.metadata.labels"),
    ],
)
def test_odd_replicas_are_refused_with_the_field(change: JsonObject, path: str) -> None:
    old = simple()
    old["spec"]["jaxReplicaSpecs"]["Worker"] |= change
    with pytest.raises(ConversionError) as caught:
        convert_job(old)
    assert caught.value.problems[0][0] == f"spec.jaxReplicaSpecs.Worker.{path}"


@pytest.mark.parametrize(
    "policy", [{"managedBy": "a/b"}, {"backoffLimit": -1}, {"suspend": "yes"}, {"schedulingPolicy": 1}]
)
def test_odd_run_policies_are_refused_with_the_field(policy: JsonObject) -> None:
    with pytest.raises(ConversionError) as caught:
        convert_job(simple(run_policy=policy))
    assert caught.value.problems[0][0] == f"spec.runPolicy.{next(iter(policy))}"


@pytest.mark.parametrize(("count", "problem"), [(0, "has no replicas"), (10_001, "has 10001 pods"), (2**31, "pods")])
def test_jobs_without_end_or_without_pods_are_refused(count: int, problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        convert_job(simple("TFJob", count))
    assert trainjob_of(convert_job(simple("TFJob", 2000)))["trainer"]["numNodes"] == 2000, "a big one is converted"
