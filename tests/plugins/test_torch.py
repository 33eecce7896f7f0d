"""Torch: the environment of torchrun, processes per node, side containers, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import container, env, job_spec, jobset, warning_details

from trainmaster.runtime.api import ApiTypeError
from trainmaster.runtime.jsontree import JsonObject


def processes(policy: JsonObject, trainer: JsonObject | None = None, runtimes: JsonObject | None = None) -> str:
    node = {"name": "node", "image": "i", "resources": runtimes or {}}
    job = trainjob() if trainer is None else trainjob(trainer=trainer)
    on = runtime(replicated_job(containers=[node]), policy={"torch": policy})
    count: str = env(container(jobset(job, on)))["PET_NPROC_PER_NODE"]
    return count


def injecting(*names: str, job: str = "node") -> JsonObject:
    return {"torch": {"envInjection": {"targets": [{"jobName": job, "containerNames": list(names)}]}}}


class TestEnvironment:
    @pytest.mark.defect("B3")
    def test_it_is_there_without_a_trainer(self) -> None:
        """A runtime with several nodes needs the rendezvous also when the TrainJob has no `trainer`."""
        result = jobset(trainjob(), runtime(policy={"numNodes": 2, "torch": {}}))
        assert env(container(result))["PET_NNODES"] == "2"
        assert container(result)["ports"] == [{"containerPort": 29500}]

    @pytest.mark.defect("B9")
    def test_a_port_of_the_user_stays(self) -> None:
        """The rendezvous port replaced any unnamed port."""
        ports = [{"name": "node", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81}]}]
        result = jobset(trainjob(trainer={}), runtime(replicated_job(containers=ports), policy={"torch": {}}))
        assert [port["containerPort"] for port in container(result)["ports"]] == [80, 81, 29500]

    @pytest.mark.defect("B19")
    @pytest.mark.parametrize(
        ("policy", "variable", "port"),
        [
            ("torch", "PET_MASTER_ADDR", ""),
            ("jax", "JAX_COORDINATOR_ADDRESS", ":29500"),
            ("xgboost", "DMLC_TRACKER_URI", ""),
        ],
    )
    def test_nodes_meet_at_the_trainer_whatever_it_is_called(self, policy: str, variable: str, port: str) -> None:
        """The address was wired to a job called node and a subdomain called like the TrainJob."""
        on = runtime(replicated_job("workers"), policy={policy: {}}, network={"subdomain": "mesh"})
        assert env(container(jobset(trainjob(), on)))[variable] == f"demo-workers-0-0.mesh{port}"

    @pytest.mark.defect("B19")
    def test_a_single_node_needs_no_host_name(self) -> None:
        on = runtime(policy={"torch": {}}, network={"enableDNSHostnames": False})
        assert env(container(jobset(trainjob(), on)))["PET_MASTER_ADDR"] == "localhost"
        assert warning_details(trainjob(), on) == []

    @pytest.mark.defect("B19")
    @pytest.mark.parametrize("policy", ["torch", "jax", "xgboost"])
    def test_nodes_without_host_names_are_warned_about(self, policy: str) -> None:
        on = runtime(policy={policy: {}}, network={"enableDNSHostnames": False})
        ((path, message),) = warning_details(trainjob(trainer={"numNodes": 2}), on)
        assert "demo-node-0-0.demo" in str(env(container(jobset(trainjob(trainer={"numNodes": 2}), on))))
        assert path == "spec.runtimeRef"
        assert "network.enableDNSHostnames" in message
        assert "2 nodes" in message

    @pytest.mark.parametrize("policy", ["torch", "jax"])
    def test_a_runtime_without_a_trainer_is_left_alone(self, policy: str) -> None:
        on = runtime(replicated_job(ancestor=None), policy={policy: {}})
        result = jobset(trainjob(trainer={"numNodes": 2}), on)
        assert env(container(result)) == {}
        assert job_spec(result)["parallelism"] == 1


class TestProcessesPerNode:
    @pytest.mark.parametrize(
        ("resources", "expected"),
        [
            ({}, "1"),
            ({"limits": {"cpu": "4"}}, "4"),
            ({"limits": {"cpu": "500m"}}, "1"),
            ({"requests": {"cpu": 2.5}}, "3"),
            ({"requests": {"cpu": "2"}, "limits": {"cpu": "8"}}, "2"),
            ({"requests": {"cpu": 0}, "limits": {"cpu": "4"}}, "4"),
            ({"limits": {"amd.com/gpu": 1}}, "auto"),
            ({"limits": {"nvidia.com/gpu": 0, "cpu": 2}}, "2"),
        ],
    )
    def test_auto_is_the_default_and_follows_the_resources(self, resources: JsonObject, expected: str) -> None:
        for policy in ({}, {"numProcPerNode": "auto"}):
            assert processes(policy, {"resourcesPerNode": resources}) == expected

    @pytest.mark.defect("U12")
    @pytest.mark.parametrize(("asked", "expected"), [("auto", "auto"), ("gpu", "gpu"), ("cpu", "6"), (3, "3")])
    def test_the_runtime_chooses(self, asked: int | str, expected: str) -> None:
        """There was no setting for whoever makes the runtime."""
        assert processes({"numProcPerNode": asked}, None, {"limits": {"nvidia.com/gpu": 2, "cpu": "6"}}) == expected

    @pytest.mark.defect("U12")
    def test_the_trainjob_has_the_last_word(self) -> None:
        assert processes({"numProcPerNode": "cpu"}, {"numProcPerNode": 4}) == "4"

    def test_cpu_without_any_is_one(self) -> None:
        assert processes({"numProcPerNode": "cpu"}) == "1"

    @pytest.mark.parametrize("value", ["all", True, 1.5])
    def test_a_count_that_is_none_is_named(self, value: Any) -> None:
        with pytest.raises(ApiTypeError) as caught:
            runtime(policy={"torch": {"numProcPerNode": value}})
        (problem,) = caught.value.problems
        assert problem.startswith(
            'spec.mlPolicy.torch.numProcPerNode: must be an integer, "auto", "cpu" or "gpu", got '
        )

    @pytest.mark.defect("B5")
    def test_what_the_container_really_gets_counts(self) -> None:
        """The runtime's GPUs did not count any more when the TrainJob only set memory."""
        assert processes({}, {"resourcesPerNode": {"limits": {"memory": "1Gi"}}}, {"limits": {"x/gpu": 4}}) == "auto"
        assert processes({}, {"resourcesPerNode": {"limits": {"memory": "1Gi"}}}, {"limits": {"cpu": 4}}) == "4"


class TestInjection:
    def test_side_containers_get_the_same(self) -> None:
        node = replicated_job(containers=[{"name": "node", "image": "i"}, {"name": "watch", "image": "i"}])
        pod = node["template"]["spec"]["template"]["spec"]
        pod["initContainers"] = [{"name": "check", "image": "i", "env": [{"name": "PET_NNODES", "value": "old"}]}]
        policy = {"numNodes": 2, **injecting("watch", "check")}
        result = jobset(trainjob(trainer={"env": [{"name": "A", "value": "1"}]}), runtime(node, policy=policy))
        expected = env(container(result))
        assert expected.pop("A") == "1"
        assert env(container(result, index=1)) == env(container(result, field="initContainers")) == expected
        assert "ports" not in container(result, index=1)


@given(trainjobs(), runtimes(st.fixed_dictionaries({"torch": st.sampled_from([{}, {"numProcPerNode": "cpu"}])})))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)


@given(trainjobs(), runtimes(st.just(injecting("side") | {"numNodes": 2})))
def test_injecting_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)
