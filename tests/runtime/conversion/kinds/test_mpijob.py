"""MPIJobs: a launcher that reaches the workers by ssh."""

from typing import Any

import pytest
from support.conversions import (
    built,
    convert_job,
    groups_of,
    job,
    job_spec,
    lost,
    pods,
    replicas,
    runtime_of,
    told,
    trainjob_of,
)
from support.resolutions import FRAMEWORK

from trainmaster.runtime.api.trainingruntime import TrainingRuntime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.conversion.notes import Conversion, ConversionError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import resolve

KIND = "MPIJob"
GPU: JsonObject = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def converted(launcher: JsonObject, worker: JsonObject | None = None, *, gang: str = "", **spec: Any) -> Conversion:
    types = {"Launcher": launcher} | ({"Worker": worker} if worker else {})
    return convert_job(job(KIND, types, **spec), gang_scheduler=gang)


def hostfile(conversion: Conversion) -> str:
    runtime, trainjob = conversion.objects
    objects = resolve(TrainJob.model_validate(trainjob), TrainingRuntime.model_validate(runtime), FRAMEWORK).objects
    (found,) = (each.object for each in objects if each.object["metadata"]["name"] == "demo-mpi-hostfile")
    text: str = found["data"]["hostfile"]
    return text


def test_workers_are_the_hosts() -> None:
    conversion = converted(replicas(KIND), replicas(KIND, 2), slotsPerWorker=3)
    assert hostfile(conversion) == "demo-node-0-0.demo slots=3\ndemo-node-0-1.demo slots=3\n"
    spec = runtime_of(conversion)["template"]["spec"]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    assert groups_of(conversion)["launcher"]["dependsOn"] == [{"name": "node", "status": "Ready"}]
    worker = job_spec(conversion)["template"]["spec"]["containers"][0]
    assert worker == {"name": "node", "image": "image:1", "command": ["/usr/sbin/sshd", "-De"]}
    assert lost(conversion) == ["spec.mpiReplicaSpecs.Worker.template.spec.containers[0].image"]


def test_a_launcher_with_a_gpu_is_a_host_too() -> None:
    conversion = converted(replicas(KIND, **GPU), replicas(KIND, 1, **GPU))
    assert sorted(hostfile(conversion).splitlines()) == ["demo-launcher-0-0.demo slots=1", "demo-node-0-0.demo slots=1"]
    assert "env" not in job_spec(conversion, "launcher")["template"]["spec"]["containers"][0]


def test_a_launcher_that_is_a_host_keeps_its_variables_and_resources_to_itself() -> None:
    """The TrainJob would give them to the workers, too."""
    agents = {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"}
    env = [{"name": "WHO", "value": "launcher"}, *({"name": name, "value": "mine"} for name in sorted(agents))]
    launcher = replicas(KIND, env=env, **GPU)
    worker = replicas(KIND, 1, env=[{"name": "WHO", "value": "worker"}], resources={"limits": {"nvidia.com/gpu": "4"}})
    conversion = converted(launcher, worker)
    found = {host: pod["containers"][0] for host, pod, _ in pods(built(conversion))}
    launched, worked = found["demo-launcher-0-0.demo"], found["demo-node-0-0.demo"]
    assert worked["env"] == [{"name": "WHO", "value": "worker"}]
    assert worked["resources"] == {"limits": {"nvidia.com/gpu": "4"}}
    assert {"name": "WHO", "value": "launcher"} in launched["env"]
    assert agents.isdisjoint(each["name"] for each in launched["env"])
    assert launched["resources"] == GPU["resources"]


def test_the_main_container_is_where_ranks_run() -> None:
    worker = replicas(KIND, 1)
    worker["template"]["spec"]["containers"] = [{"name": "side", "image": "a"}, {"name": "work", "image": "b"}]
    conversion = converted(replicas(KIND), worker, mainContainer="work")
    assert [each["name"] for each in job_spec(conversion)["template"]["spec"]["containers"]] == ["side", "node"]
    assert "spec.mainContainer" in told(conversion)
    with pytest.raises(ConversionError, match='no container "other"'):
        converted(replicas(KIND), worker, mainContainer="other")


@pytest.mark.parametrize(
    ("command", "becomes", "is_lost"),
    [
        (["sleep", "infinity"], ["/usr/sbin/sshd", "-De"], "image"),
        (["/bin/sleep", "1"], ["/usr/sbin/sshd", "-De"], "image"),
        (["/usr/sbin/sshd", "-D"], ["/usr/sbin/sshd", "-D"], None),
        (["sh", "-c", "exec /usr/sbin/sshd -De"], ["sh", "-c", "exec /usr/sbin/sshd -De"], None),
        (["serve"], ["serve"], "command"),
    ],
)
def test_workers_run_sshd(command: list[str], becomes: list[str], is_lost: str | None) -> None:
    conversion = converted(replicas(KIND), replicas(KIND, 1, command=command))
    assert job_spec(conversion)["template"]["spec"]["containers"][0]["command"] == becomes
    path = "spec.mpiReplicaSpecs.Worker.template.spec.containers[0]"
    assert lost(conversion) == ([f"{path}.{is_lost}"] if is_lost else [])


def test_intel_mpi_is_known_by_its_variables() -> None:
    env = [{"name": "I_MPI_DEBUG", "value": "5"}, {"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "rsh"}]
    conversion = converted(replicas(KIND, env=env), replicas(KIND, 1))
    assert runtime_of(conversion)["mlPolicy"]["mpi"]["mpiImplementation"] == "IntelMPI"
    assert trainjob_of(conversion)["trainer"]["env"] == [{"name": "I_MPI_DEBUG", "value": "5"}]
    assert "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].env[1]" in told(conversion)


def test_what_needs_kubectl_exec_is_lost() -> None:
    conversion = converted(
        replicas(KIND, command=["horovodrun", "--host-discovery-script", "/etc/mpi/discover_hosts.sh"]),
        replicas(KIND, 1, command=["/usr/sbin/sshd"], pod={"securityContext": {"runAsUser": 1000}}),
    )
    assert lost(conversion) == [
        "spec.mpiReplicaSpecs.Worker.template.spec.securityContext.runAsUser",
        "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]",
    ]


def test_a_launcher_without_a_gpu_sees_none_and_in_a_gang_it_does_not_wait() -> None:
    many: JsonObject = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    conversion = converted(replicas(KIND), replicas(KIND, 1, **many), gang="volcano")
    assert "dependsOn" not in groups_of(conversion)["launcher"]
    launcher = job_spec(conversion, "launcher")["template"]["spec"]["containers"][0]
    assert launcher["env"] == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": ""},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": ""},
    ]
    assert hostfile(conversion) == "demo-node-0-0.demo slots=1\n", "one slot stays one slot with many GPUs"


def test_the_older_place_of_the_clean_up_policy() -> None:
    assert lost(converted(replicas(KIND), cleanPodPolicy="All")) == ["spec.cleanPodPolicy"]


@pytest.mark.parametrize(
    ("types", "spec", "path"),
    [
        ({"Worker": replicas(KIND)}, {}, "spec.mpiReplicaSpecs.Launcher"),
        ({"Launcher": replicas(KIND, 2)}, {}, "spec.mpiReplicaSpecs.Launcher.replicas"),
        ({"Launcher": replicas(KIND)}, {"slotsPerWorker": 0}, "spec.slotsPerWorker"),
    ],
)
def test_odd_jobs_are_refused(types: JsonObject, spec: JsonObject, path: str) -> None:
    with pytest.raises(ConversionError) as caught:
        convert_job(job(KIND, types, **spec))
    assert caught.value.problems[0][0] == path
