"""Torch and Torchtune: the environment of torchrun, which recipe is run how, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, runtime_object, trainjob, trainjob_object
from support.resolutions import Runtime, container, env, error_details, field_errors, job_spec, jobset, warning_details

from trainmaster.runtime.api.decoding import ApiTypeError, parse_runtime, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
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


LORA = "model.lora_attn_modules=[q_proj]"
QLORA = "model.quantize_base=True"

OWNED = ["output_dir=/out", "tokenizer.path=/m/tok", "checkpointer.checkpoint_dir=/m", "tokenizer.merges_file=/m/x"]
COMMAND = ["tune", "run", "old_recipe", "--config", "old/config", "dataset=d", *OWNED]


def blueprint(name: str = "torchtune-llama3.2-1b", *, gpus: int = 2, nodes: int = 1, **torch: Any) -> Runtime:
    node = {"name": "node", "image": "i", "command": COMMAND, "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    obj = runtime_object(replicated_job(containers=[node]), policy={"numNodes": nodes, "torch": torch})
    obj["metadata"]["name"] = name
    return parse_runtime(obj)


def tuning(*arguments: str, on: str = "torchtune-llama3.2-1b", **trainer: Any) -> TrainJob:
    obj = trainjob_object(trainer={"command": ["tune", "run"], "args": list(arguments), **trainer})
    obj["spec"]["runtimeRef"]["name"] = on
    return parse_trainjob(obj)


def command(job: TrainJob, on: Runtime) -> list[str]:
    """The completed command without `tune run` and what the runtime owns."""
    whole: list[str] = container(jobset(job, on))["command"]
    assert whole[:2] == ["tune", "run"]
    assert whole[-len(OWNED) :] == OWNED
    return whole[2 : -len(OWNED)]


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "trainer", "gpus", "recipe", "configuration"),
        [
            ([], {}, 1, "full_finetune_single_device", "llama3_2/1B_full_single_device"),
            ([LORA], {}, 1, "lora_finetune_single_device", "llama3_2/1B_lora_single_device"),
            ([LORA, QLORA], {}, 1, "lora_finetune_single_device", "llama3_2/1B_qlora_single_device"),
            ([QLORA], {"numProcPerNode": 1}, 4, "lora_finetune_single_device", "llama3_2/1B_qlora_single_device"),
            ([], {"numProcPerNode": 1}, 4, "full_finetune_single_device", "llama3_2/1B_full_single_device"),
            ([], {}, 0, "full_finetune_single_device", "llama3_2/1B_full_single_device"),
            ([], {}, 2, "full_finetune_distributed", "llama3_2/1B_full"),
            ([LORA], {}, 2, "lora_finetune_distributed", "llama3_2/1B_lora"),
            ([QLORA], {}, 2, "lora_finetune_distributed", "llama3_2/1B_qlora"),
            ([], {"numNodes": 2}, 1, "full_finetune_distributed", "llama3_2/1B_full_multinode"),
            ([LORA, QLORA], {"numNodes": 2}, 8, "full_finetune_distributed", "llama3_2/1B_full_multinode"),
        ],
    )
    def test_the_recipe_fits(
        self, arguments: list[str], trainer: JsonObject, gpus: int, recipe: str, configuration: str
    ) -> None:
        assert command(tuning(*arguments, **trainer), blueprint(gpus=gpus))[-3:] == [recipe, "--config", configuration]

    @pytest.mark.parametrize(
        ("arguments", "configuration"),
        [
            ([LORA, "model.quantize_base=False"], "lora"),
            ([LORA, QLORA, "model.use_dora=True"], "lora"),
            ([LORA, QLORA, "model.use_dora=false"], "qlora"),
            (["--model.quantize_base= TRUE "], "qlora"),
            (["model.quantize_base"], "full"),
        ],
    )
    def test_flags_are_read_as_people_write_them(self, arguments: list[str], configuration: str) -> None:
        assert command(tuning(*arguments), blueprint())[-1] == f"llama3_2/1B_{configuration}"

    @pytest.mark.parametrize(
        ("trainer", "gpus", "meets"),
        [
            ({}, 1, False),
            ({}, 2, True),
            ({"numProcPerNode": 1}, 2, False),
            ({"numProcPerNode": 4}, 1, True),
            ({"numNodes": 2, "numProcPerNode": 1}, 1, True),
        ],
    )
    def test_several_processes_meet(self, trainer: JsonObject, gpus: int, meets: bool) -> None:
        expected = ["--rdzv_endpoint=demo-node-0-0.demo:29500"] if meets else []
        assert command(tuning(**trainer), blueprint(gpus=gpus))[:-3] == expected

    @pytest.mark.defect("U12")
    def test_processes_that_the_runtime_lets_torchrun_count_meet(self) -> None:
        whole = command(tuning(), blueprint(numProcPerNode="gpu"))
        assert whole[0] == "--rdzv_endpoint=demo-node-0-0.demo:29500"
        assert whole[1] == "full_finetune_distributed"

    def test_the_master_is_named_by_the_command_alone(self) -> None:
        """Torchrun would not know which of the two holds."""
        variables = env(container(jobset(tuning(env=[{"name": "A", "value": "1"}]), blueprint())))
        assert list(variables) == ["A", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"]

    def test_side_containers_get_the_master_all_the_same(self) -> None:
        on = blueprint(envInjection={"targets": [{"jobName": "node", "containerNames": ["side"]}]})
        obj = on.to_json()
        pod = obj["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["containers"].append({"name": "side", "image": "i"})
        assert "PET_MASTER_ADDR" in env(container(jobset(tuning(), parse_runtime(obj)), index=1))

    @pytest.mark.defect("B5")
    def test_the_runtimes_gpus_count_beside_the_trainjobs_memory(self) -> None:
        """Without them the recipe was that of a single device."""
        job = tuning(resourcesPerNode={"limits": {"memory": "1Gi"}})
        assert command(job, blueprint(gpus=4))[-3] == "full_finetune_distributed"

    def test_what_cannot_be_a_command_is_left_to_others(self) -> None:
        """`tune run` on a runtime of another framework is a command like any other."""
        obj = runtime_object(policy={"jax": {}})
        assert container(jobset(tuning(), parse_runtime(obj)))["command"] == ["tune", "run"]


class TestValidation:
    @pytest.mark.parametrize(
        ("name", "model"), [("torchtune-gpt2-xl", "gpt2/XL"), ("my-tune", ""), ("torchtune-llama3.2-1b-mine", "")]
    )
    def test_the_model_must_be_known(self, name: str, model: str) -> None:
        (error,) = field_errors(tuning(on=name), blueprint(name))
        assert error.path == "spec.runtimeRef.name"
        assert error.value == name
        assert error.detail == f"must have a supported pretrained model, invalid model configured: {model}"

    def test_only_the_largest_model_has_several_nodes(self) -> None:
        for name in ("torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b", "torchtune-llama3.3-70b"):
            assert error_details(tuning(on=name), blueprint(name)) == []
        assert error_details(tuning(numNodes=2, on="torchtune-llama3.3-70b"), blueprint("torchtune-llama3.3-70b")) == []
        assert error_details(tuning(numNodes=2), blueprint()) == [
            ("spec.trainer.numNodes", "must be 1 for llama3_2/1B model")
        ]

    def test_nodes_of_the_runtime_count_as_well(self) -> None:
        """They escaped all checks of numNodes."""
        (error,) = field_errors(tuning(), blueprint(nodes=2))
        assert (error.path, error.value) == ("spec.trainer.numNodes", 2)
        assert error_details(tuning(numNodes=1), blueprint(nodes=2)) == []

    @pytest.mark.parametrize("name", ["torchtune-llama3.2-1b", "torchtune-qwen2.5-1.5b"])
    def test_too_many_nodes_are_not_also_too_many_devices(self, name: str) -> None:
        """On several nodes the recipe is not that of QLoRA."""
        paths = [path for path, _ in error_details(tuning(QLORA, numNodes=2, on=name), blueprint(name))]
        assert paths == ["spec.trainer.numNodes", "spec.trainer.numNodes"]

    def test_qlora_of_small_models_has_one_device(self) -> None:
        """What is said of two, the recorded answers of the original have."""
        assert [path for path, _ in error_details(tuning(QLORA), blueprint())] == [
            "spec.trainer.numProcPerNode",
            "spec.trainer.resourcesPerNode",
        ]
        assert error_details(tuning(QLORA), blueprint(gpus=1)) == []
        assert error_details(tuning(QLORA, numProcPerNode=1), blueprint()) == []

    @pytest.mark.defect("B5")
    def test_a_gpu_that_only_the_runtime_asks_for_is_one_device(self) -> None:
        job = tuning(QLORA, resourcesPerNode={"limits": {"memory": "1Gi"}})
        assert error_details(job, blueprint(gpus=1)) == []

    def test_nothing_is_checked_for_other_commands(self) -> None:
        assert error_details(tuning("output_dir=/x", command=["python"], on="rt"), blueprint("rt", nodes=2)) == []


@given(trainjobs(), runtimes(st.fixed_dictionaries({"torch": st.just({})})))
def test_completing_a_command_is_pure(job: JsonObject, on: JsonObject) -> None:
    """Completing the command used to write it into the TrainJob."""
    job["spec"].setdefault("trainer", {})["command"] = ["tune", "run"]
    check_resolution(job, on)
