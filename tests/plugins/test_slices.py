"""Slices: a trainer with several replicas, and the ranks of its nodes."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.golden import load_yaml
from support.objects import replicated_job, runtime, runtime_object, trainjob
from support.resolutions import FRAMEWORK, RANK, container, env, error_details, job_spec, jobset, warning_details
from support.validation import validate_runtime

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import resolve
from trainmaster.runtime.yamltext import load_yaml_documents

SLICE = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}}
PLACE = {"TRAINMASTER_SLICE_ID": SLICE, "TRAINMASTER_HOST_ID": RANK}
RANKS = {"torch": "PET_NODE_RANK", "jax": "JAX_PROCESS_ID", "xgboost": "DMLC_TASK_ID"}
POLICIES = pytest.mark.parametrize("policy", RANKS)


def sliced(replicas: int = 4, *, command: list[str] | None = None, **fields: Any) -> JsonObject:
    """A trainer of several slices."""
    main: JsonObject = {"name": "node", "image": "i"}
    if command:
        main["command"] = command
    return replicated_job(containers=[main], replicas=replicas, **fields)


def run(main: JsonObject, *, slice_id: int, host_id: int) -> str:
    """Run the command of a container as a pod of a slice would."""
    place = {"TRAINMASTER_SLICE_ID": str(slice_id), "TRAINMASTER_HOST_ID": str(host_id)}
    command = [*main["command"], *main.get("args", [])]
    return subprocess.run(command, env={**os.environ, **place}, check=True, capture_output=True, text=True).stdout


@POLICIES
def test_the_nodes_are_dealt_out_to_the_slices(policy: str) -> None:
    """32 hosts in 4 slices: 4 Jobs of 8 pods, and everybody is told of 32."""
    result = jobset(trainjob(trainer={"numNodes": 32}), runtime(sliced(4, command=["run"]), policy={policy: {}}))
    assert result["spec"]["replicatedJobs"][0]["replicas"] == 4
    assert (job_spec(result)["parallelism"], job_spec(result)["completions"]) == (8, 8)
    variables = env(container(result))
    total = {"torch": "PET_NNODES", "jax": "JAX_NUM_PROCESSES", "xgboost": "DMLC_NUM_WORKER"}[policy]
    assert variables[total] == "32"
    assert variables.items() >= PLACE.items()


def test_runtimes_without_a_framework_have_slices_as_well() -> None:
    result = jobset(trainjob(trainer={"numNodes": 6}), runtime(sliced(3)))
    assert (result["spec"]["replicatedJobs"][0]["replicas"], job_spec(result)["parallelism"]) == (3, 2)
    assert "command" not in container(result)


@pytest.mark.parametrize(
    ("policy", "parallelism", "expected"),
    [({"jax": {}, "numNodes": 8}, None, 2), ({"jax": {}}, None, 1), ({"numNodes": 4}, 7, 1), (None, 7, 7)],
    ids=["the runtime's", "one host for each slice", "the runtime's rather than parallelism", "parallelism"],
)
def test_without_a_number_of_the_trainjob(policy: JsonObject | None, parallelism: int | None, expected: int) -> None:
    job = sliced(4)
    if parallelism:
        job["template"]["spec"]["parallelism"] = parallelism
    assert job_spec(jobset(trainjob(), runtime(job, policy=policy)))["parallelism"] == expected


def test_endpoints_follow_the_ranks() -> None:
    on = runtime(sliced(2, command=["run"]), policy={"jax": {}})
    (pods,) = resolve(trainjob(trainer={"numNodes": 4}), on, FRAMEWORK).info.pod_sets
    assert list(pods.endpoints) == [f"demo-node-{slice_id}-{host}.demo" for slice_id in (0, 1) for host in (0, 1)]
    assert (pods.count, pods.replicas, pods.size) == (2, 2, 4)


def test_only_the_trainer_that_is_ranked_gets_its_command() -> None:
    """A second trainer has a command of its own."""
    second = replicated_job("second", containers=[{"name": "node", "image": "i", "command": ["second"]}])
    on = runtime(sliced(2, command=["first"]), second, policy={"jax": {}})
    result = jobset(trainjob(trainer={"numNodes": 4}), on)
    assert container(result)["command"][-1] == "first"
    assert container(result, 1)["command"] == ["second"]


def test_the_guide_is_true() -> None:
    """Its example becomes what it says, and its refusal is word for word."""
    text = (Path(__file__).parents[2] / "docs/multi-slice.md").read_text()
    example = text.partition("```yaml\n")[2].partition("```")[0]
    raw = [document for _, document in load_yaml_documents(example)]
    raw[1]["metadata"] |= {"namespace": "team", "uid": "u"}
    result = jobset(parse_trainjob(raw[1]), parse_runtime(raw[0]))
    assert (result["spec"]["replicatedJobs"][0]["replicas"], job_spec(result)["parallelism"]) == (4, 8)
    command = load_yaml(text.partition("of the training container:\n\n```yaml\n")[2].partition("```")[0])["command"]
    assert container(result)["command"] == command
    raw[1]["spec"]["trainer"]["numNodes"] = 30
    ((path, message),) = error_details(parse_trainjob(raw[1]), parse_runtime(raw[0]))
    assert f"{path}: Invalid value: 30: {message}" in " ".join(text.split())


def test_one_replica_is_no_slice() -> None:
    """What is built for everybody else stays as it is."""
    one = jobset(trainjob(), runtime(sliced(1, command=["run"]), policy={"torch": {}}))
    assert container(one)["command"] == ["run"]
    assert env(container(one))["PET_NODE_RANK"] == RANK
    assert not env(container(one)).keys() & {"TRAINMASTER_SLICE_ID", "MEGASCALE_NUM_SLICES"}


@pytest.mark.parametrize("policy", ["torch", "jax"])
def test_the_slices_of_a_tpu_find_each_other(policy: str) -> None:
    result = jobset(trainjob(trainer={"numNodes": 4}), runtime(sliced(2, command=["run"]), policy={policy: {}}))
    assert (
        env(container(result)).items()
        >= {
            "MEGASCALE_COORDINATOR_ADDRESS": "demo-node-0-0.demo",
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_SLICE_ID": SLICE,
        }.items()
    )


def test_users_may_say_otherwise() -> None:
    users = [{"name": "JAX_PROCESS_ID", "value": "mine"}, {"name": "MEGASCALE_NUM_SLICES", "value": "7"}]
    trainer = {"numNodes": 4, "env": users}
    result = jobset(trainjob(trainer=trainer), runtime(sliced(2, command=["run"]), policy={"jax": {}}))
    assert container(result)["command"] == ["run"]
    assert env(container(result)).items() >= {"JAX_PROCESS_ID": "mine", "MEGASCALE_NUM_SLICES": "7"}.items()


@pytest.mark.nightly
@POLICIES
@settings(max_examples=15)
@given(slices=st.integers(2, 5), hosts=st.integers(1, 4), from_job=st.booleans())
def test_ranks_are_a_permutation(policy: str, slices: int, hosts: int, from_job: bool) -> None:
    """Each pod of each slice runs its command: the ranks that they see are 0 to N-1, in order of slices."""
    command = ["/bin/sh", "-c", f'echo "${RANKS[policy]} $0 $1"', "a b"]
    trainer: JsonObject = {"numNodes": slices * hosts, "args": ["$c"]}
    if from_job:
        trainer["command"] = command
    on = runtime(sliced(slices, command=["other"] if from_job else command), policy={policy: {}})
    main = container(jobset(trainjob(trainer=trainer), on))
    seen = [run(main, slice_id=each, host_id=host) for each in range(slices) for host in range(hosts)]
    assert seen == [f"{rank} a b $c\n" for rank in range(slices * hosts)]


@pytest.mark.nightly
def test_the_containers_of_an_injection_know_their_rank_too() -> None:
    job = sliced(2, command=["run"])
    script = ["/bin/sh", "-c", "echo $PET_NODE_RANK"]
    job["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "warm", "image": "i", "command": script}]
    policy = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["warm"]}]}}}
    result = jobset(trainjob(trainer={"numNodes": 6}), runtime(job, policy=policy))
    assert run(container(result, field="initContainers"), slice_id=1, host_id=2) == "5\n"


def test_torchtune_is_ranked_after_its_command_is_complete() -> None:
    on = runtime_object(sliced(2, command=["tune", "run", "x", "output_dir=/o"]), policy={"torch": {}})
    on["metadata"]["name"] = "torchtune-llama3.3-70b"
    raw = trainjob(trainer={"command": ["tune", "run"], "numNodes": 4})
    ref = raw.spec.runtime_ref.model_copy(update={"name": "torchtune-llama3.3-70b"})
    asked = raw.model_copy(update={"spec": raw.spec.model_copy(update={"runtime_ref": ref})})
    command = container(jobset(asked, parse_runtime(on)))["command"]
    assert command[:2] == ["/bin/sh", "-c"]
    assert command[4:6] == ["tune", "run"]
    assert "--rdzv_endpoint=demo-node-0-0.demo:29500" in command


def test_torch_without_a_known_command_agrees_on_ranks_by_itself() -> None:
    """The entry point of an image cannot be wrapped."""
    job, on = trainjob(trainer={"numNodes": 4}), runtime(sliced(2), policy={"torch": {}})
    variables = env(container(jobset(job, on)))
    assert "PET_NODE_RANK" not in variables
    assert (
        variables.items()
        >= {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "demo-node-0-0.demo:29500", "PET_RDZV_ID": "demo"}.items()
    )
    assert not warning_details(job, on)


@pytest.mark.parametrize("policy", ["jax", "xgboost"])
def test_who_has_no_known_command_is_warned(policy: str) -> None:
    """A rank that is not there fails loudly; one that two nodes share does not."""
    job, on = trainjob(trainer={"numNodes": 4}), runtime(sliced(2), policy={policy: {}})
    assert RANKS[policy] not in env(container(jobset(job, on)))
    ((path, message),) = warning_details(job, on)
    assert path == "spec.trainer.command"
    assert message.startswith(f"{RANKS[policy]} will not be set: ")
    assert not warning_details(trainjob(trainer={"numNodes": 4, "command": ["run"]}), on)


@pytest.mark.parametrize(("policy", "nodes"), [*((policy, 6) for policy in RANKS), ("flux", 1), (None, 33)])
def test_nodes_that_do_not_come_out_even_are_refused_with_the_numbers(policy: str | None, nodes: int) -> None:
    job = trainjob(trainer={"numNodes": nodes})
    on = runtime(sliced(4, command=["run"]), policy={policy: {}} if policy else None)
    ((path, message),) = error_details(job, on)
    assert path == "spec.trainer.numNodes"
    assert message.startswith(f"{nodes} nodes cannot be divided evenly among the 4 slices")
    with pytest.raises(PluginFailed, match=f"^{nodes} nodes cannot be divided evenly among the 4") as failed:
        resolve(job, on, FRAMEWORK)
    assert failed.value.rejected
    assert not error_details(trainjob(trainer={"numNodes": 8}), on)


def test_a_runtime_whose_own_number_is_uneven_is_named() -> None:
    on = runtime(sliced(4), policy={"numNodes": 5, "jax": {}})
    ((path, message),) = error_details(trainjob(), on)
    assert path == "spec.runtimeRef"
    assert "for instance 4 or 8" in message
    assert not error_details(trainjob(trainer={"numNodes": 4}), on)


@pytest.mark.parametrize("replicas", [0, -1])
def test_no_slice_at_all_is_refused(replicas: int) -> None:
    on = runtime(sliced(replicas), policy={"jax": {}})
    ((path, message),) = error_details(trainjob(trainer={"numNodes": 4}), on)
    assert path == "spec.runtimeRef"
    assert f"has replicas: {replicas}, and training needs at least 1 slice" in message
    with pytest.raises(PluginFailed, match="at least 1 slice"):
        resolve(trainjob(trainer={"numNodes": 4}), on, FRAMEWORK)


def step(name: str, ancestor: str | None, replicas: int) -> JsonObject:
    containers = [{"name": ancestor if ancestor and ancestor != "trainer" else "node", "image": "i"}]
    return replicated_job(name, ancestor=ancestor, containers=containers, replicas=replicas)


@pytest.mark.defect("B33")
@pytest.mark.parametrize(
    ("played", "policy", "replicas", "message"),
    [
        *((("node", "trainer"), {"jax": {}}, good, None) for good in (1, 4)),
        *((("node", "trainer"), {"jax": {}}, bad, "must be greater than or equal to 1") for bad in (0, -1)),
        *((("aux", None), {"jax": {}}, good, None) for good in (1, 3)),
        *(
            (once, {"mpi": {}}, replicas, "always must be 1" if replicas != 1 else None)
            for once in (
                ("launcher", "trainer"),
                ("launcher", None),
                ("data", "dataset-initializer"),
                ("model", "model-initializer"),
            )
            for replicas in (0, 1, 2)
        ),
    ],
)
def test_replicas_of_runtimes(
    played: tuple[str, str | None], policy: JsonObject, replicas: int, message: str | None
) -> None:
    """What is done once stays at one replica, for both kinds of runtime, when they are created and when changed."""
    expected = [("spec.template.spec.replicatedJobs[0].replicas", message)] if message else []
    for kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
        obj = {**runtime_object(step(*played, replicas), policy=policy), "kind": kind}
        for old in (None, runtime_object()):
            assert [(each.path, each.detail) for each in validate_runtime(obj, old).errors] == expected


def test_what_is_done_once_is_built_once() -> None:
    """For TrainJobs whose runtime was stored before it was checked."""
    steps = [step("data", "dataset-initializer", 3), step("launcher", "trainer", 2), step("aux", None, 2)]
    result = resolve(trainjob(), runtime(*steps), FRAMEWORK)
    (built,) = [desired.object for desired in result.objects]
    assert [job["replicas"] for job in built["spec"]["replicatedJobs"]] == [1, 1, 2]
    assert [pods.size for pods in result.info.pod_sets] == [1, 1, 2]


def test_flux_knows_the_hosts_of_all_slices() -> None:
    on = runtime(sliced(2, command=["run"]), policy={"flux": {"numProcPerNode": 3}})
    objects = [desired.object for desired in resolve(trainjob(trainer={"numNodes": 4}), on, FRAMEWORK).objects]
    (scripts,) = [obj["data"] for obj in objects if obj["kind"] == "ConfigMap"]
    assert "demo-node-0-[0-1],demo-node-1-[0-1]" in scripts["init.sh"]
    assert "-N 4 -n 12" in scripts["entrypoint.sh"]


def test_mpi_reaches_the_hosts_of_all_slices() -> None:
    """Nodes that are the trainer themselves, beside a launcher that only launches."""
    on = runtime(sliced(2), step("launcher", None, 1), policy={"mpi": {"runLauncherAsNode": False}})
    result = resolve(trainjob(trainer={"numNodes": 4}), on, FRAMEWORK)
    (hosts,) = [each.object["data"]["hostfile"] for each in result.objects if each.object["kind"] == "ConfigMap"]
    assert hosts.split() == [
        word for each in (0, 1) for host in (0, 1) for word in (f"demo-node-{each}-{host}.demo", "slots=1")
    ]
    with pytest.raises(PluginFailed, match="5 nodes cannot be divided evenly among the 2 slices"):
        resolve(trainjob(trainer={"numNodes": 5}), on, FRAMEWORK)


@POLICIES
@settings(max_examples=25)
@given(data=st.data(), slices=st.integers(1, 4))
def test_resolving_is_pure(policy: str, data: st.DataObject, slices: int) -> None:
    raw_job, raw = data.draw(trainjobs()), data.draw(runtimes(st.just({policy: {}})))
    for job in raw["spec"]["template"]["spec"]["replicatedJobs"]:
        if job["name"] in ("node", "workers"):
            job["replicas"] = slices
    if raw_job["spec"].get("trainer", {}).get("numNodes", 0) % slices:
        raw_job["spec"]["trainer"]["numNodes"] *= slices
    raw["spec"]["mlPolicy"].pop("numNodes", None)
    check_resolution(raw_job, raw)
