"""MPI: who takes part, how many ranks each host has, and how the launcher reaches them."""

import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import RESOURCES, check_that_resolving_is_pure
from support.objects import replicated_job, runtime, runtime_object, trainjob, trainjob_object
from support.original_crds import at
from support.resolutions import (
    FakeListers,
    Runtime,
    companion,
    container,
    entropy,
    env,
    error_details,
    job_spec,
    jobset,
    warning_details,
)

from trainmaster.plugins.flux import Flux
from trainmaster.plugins.mpi import MPI
from trainmaster.plugins.util.owned_objects import ssh_key_pair
from trainmaster.runtime.api.constants import MPI_IMPLEMENTATIONS
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.framework.interface import ApplyWhen
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import owner_reference
from trainmaster.runtime.resolver import resolve

NODE, LAUNCHER = 0, 1


def mpi_runtime(
    *, nodes: int | None = 1, gpus: JsonObject | None = None, job: JsonObject | None = None, **policy: Any
) -> Runtime:
    """A runtime with nodes and a launcher; `gpus` are the resources of the nodes, `job` fields of their Job spec."""
    node = replicated_job(ancestor=None, containers=[{"name": "node", "image": "i", "resources": gpus or {}}])
    node["template"]["spec"] |= job or {}
    whole: JsonObject = {"mpi": policy} | ({} if nodes is None else {"numNodes": nodes})
    return runtime(node, replicated_job("launcher"), policy=whole)


def hosts(job: TrainJob, on: Runtime) -> list[str]:
    text: str = companion("ConfigMap", job, on).object["data"]["hostfile"]
    return text.splitlines()


def sizes(job: TrainJob, on: Runtime) -> tuple[int, int]:
    obj = jobset(job, on)
    return job_spec(obj, NODE)["parallelism"], job_spec(obj, LAUNCHER)["parallelism"]


def key_modes(on: Runtime) -> set[int]:
    obj = jobset(trainjob(), on)
    volumes = [job_spec(obj, job)["template"]["spec"]["volumes"][0] for job in (NODE, LAUNCHER)]
    return {volume["secret"]["items"][0]["mode"] for volume in volumes}


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        (
            "IntelMPI",
            {
                "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "I_MPI_HYDRA_BOOTSTRAP": "ssh",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "I_MPI_HYDRA_IFACE": "eth0",
                "I_MPI_PERHOST": "2",
            },
        ),
        (
            "MPICH",
            {
                "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
                "HYDRA_IFACE": "eth0",
                "HYDRA_LAUNCHER_EXTRA_ARGS": "-o ConnectionAttempts=10",
                "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
            },
        ),
    ],
)
def test_hydra_finds_its_hosts(implementation: str, expected: dict[str, str]) -> None:
    on = mpi_runtime(mpiImplementation=implementation, runLauncherAsNode=True)
    job = trainjob(trainer={"numNodes": 2, "numProcPerNode": 2})
    assert hosts(job, on) == ["demo-node-0-0.demo:2", "demo-launcher-0-0.demo:2"]
    assert env(container(jobset(job, on), LAUNCHER)) == expected


@pytest.mark.parametrize("implementation", ["IntelMPI", "MPICH"])
def test_a_cluster_may_name_its_interface_otherwise(implementation: str) -> None:
    name = {"IntelMPI": "I_MPI_HYDRA_IFACE", "MPICH": "HYDRA_IFACE"}[implementation]
    job = trainjob(trainer={"env": [{"name": name, "value": "net1"}]})
    on = mpi_runtime(mpiImplementation=implementation)
    assert error_details(job, on) == []
    assert env(container(jobset(job, on), LAUNCHER))[name] == "net1"


@pytest.mark.defect("B34")
def test_open_mpi_5_finds_its_hosts() -> None:
    """B34: it takes no notice of the variables of Open MPI 4, and started all ranks in the launcher."""
    variables = env(container(jobset(trainjob(), mpi_runtime()), LAUNCHER))
    assert {name: value for name, value in variables.items() if name.startswith("PRTE_")} == {
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
    }


@pytest.mark.defect("B8")
@pytest.mark.parametrize("implementation", ["", None])
def test_an_empty_implementation_is_the_default(implementation: str | None) -> None:
    """B8: the schema accepts it, and then nothing could be built."""
    on = mpi_runtime(mpiImplementation=implementation, numProcPerNode=None, sshAuthMountPath=None)
    assert hosts(trainjob(), on) == ["demo-node-0-0.demo slots=1"]
    assert "OMPI_MCA_orte_default_hostfile" in env(container(jobset(trainjob(), on), LAUNCHER))


@pytest.mark.defect("B8")
def test_an_unknown_implementation_is_named() -> None:
    """B8: the message showed the address of a pointer."""
    with pytest.raises(PluginFailed, match="'LAM' is not supported; it can be OpenMPI, IntelMPI, MPICH") as caught:
        jobset(trainjob(), mpi_runtime(mpiImplementation="LAM"))
    assert caught.value.rejected


def test_the_schema_knows_the_implementations() -> None:
    assert at("TrainingRuntime", "spec.mlPolicy.mpi.mpiImplementation")["enum"] == [*MPI_IMPLEMENTATIONS, ""]


@pytest.mark.defect("B5")
def test_the_runtimes_gpus_count_beside_the_trainjobs_memory() -> None:
    """B5: they did not count any more when the TrainJob set anything else."""
    job = trainjob(trainer={"resourcesPerNode": {"limits": {"memory": "1Gi"}}})
    assert hosts(job, mpi_runtime(gpus={"limits": {"nvidia.com/gpu": 4}})) == ["demo-node-0-0.demo slots=4"]


@pytest.mark.defect("B6")
@pytest.mark.parametrize("as_node", [False, True])
def test_resources_per_node_go_to_the_nodes(as_node: bool) -> None:
    """B6: those of a launcher that is no node went to the launcher instead, which then held GPUs for nothing."""
    wanted = {"limits": {"nvidia.com/gpu": "2"}}
    job = trainjob(trainer={"numNodes": 2, "resourcesPerNode": wanted})
    on = mpi_runtime(runLauncherAsNode=as_node)
    obj = jobset(job, on)
    assert container(obj, NODE)["resources"] == wanted
    assert container(obj, LAUNCHER)["resources"] == (wanted if as_node else {})
    assert {line.partition(" ")[2] for line in hosts(job, on)} == {"slots=2"}


@pytest.mark.defect("B7")
@pytest.mark.parametrize(
    ("asked", "as_node", "expected"),
    [(1, True, (0, 1)), (2, True, (1, 1)), (4, True, (3, 1)), (1, False, (1, 1)), (4, False, (4, 1))],
)
@pytest.mark.parametrize("by", ["runtime", "job"])
def test_num_nodes_is_the_number_of_hosts(by: str, asked: int, as_node: bool, expected: tuple[int, int]) -> None:
    """B7: one node were two hosts, and a runtime's number multiplied the launchers instead of the nodes."""
    on = mpi_runtime(nodes=asked if by == "runtime" else 5, runLauncherAsNode=as_node)
    job = trainjob(trainer={"numNodes": asked}) if by == "job" else trainjob()
    assert sizes(job, on) == expected
    assert len(hosts(job, on)) == asked


@pytest.mark.defect("B7")
@pytest.mark.parametrize(("ancestor", "expected"), [("trainer", 2), (None, 4)])
def test_replicas_of_nodes_are_slices_if_they_are_the_trainer(ancestor: str | None, expected: int) -> None:
    on = runtime(replicated_job("node", ancestor=ancestor, replicas=2), replicated_job("launcher"), policy={"mpi": {}})
    job = trainjob(trainer={"numNodes": 4})
    assert job_spec(jobset(job, on))["parallelism"] == expected
    assert len(hosts(job, on)) == 2 * expected


def test_a_runtime_may_fix_the_pods_of_its_nodes() -> None:
    """Runtimes written for the original can say it in no other way: they leave numNodes at 1."""
    fixed = {"parallelism": 3}
    assert sizes(trainjob(), mpi_runtime(job=fixed)) == sizes(trainjob(), mpi_runtime(nodes=None, job=fixed)) == (3, 1)
    assert sizes(trainjob(), mpi_runtime(nodes=2, job=fixed)) == (2, 1)
    assert sizes(trainjob(trainer={"numNodes": 1}), mpi_runtime(job=fixed)) == (1, 1)


@pytest.mark.defect("B30")
def test_a_running_workload_keeps_its_hostfile_and_its_keys() -> None:
    """B30: both were written again in every reconcile, though pods that start again need what the others have."""
    job, on = trainjob(), mpi_runtime()
    running = jobset(job, on)
    assert companion("Secret", job, on).when is ApplyWhen.ONCE
    assert companion("ConfigMap", job, on).when is ApplyWhen.ALWAYS
    assert companion("ConfigMap", job, on, listers=FakeListers(running)).when is ApplyWhen.MISSING
    suspended = running | {"spec": running["spec"] | {"suspend": True}}
    assert companion("ConfigMap", job, on, listers=FakeListers(suspended)).when is ApplyWhen.ALWAYS
    assert companion("ConfigMap", trainjob(suspend=True), on, listers=FakeListers(running)).when is ApplyWhen.ALWAYS
    metadata = running["metadata"] | {"ownerReferences": [owner_reference(job) | {"uid": "another"}]}
    assert (
        companion("ConfigMap", job, on, listers=FakeListers(running | {"metadata": metadata})).when is ApplyWhen.ALWAYS
    )


def test_keys_are_made_only_while_the_secret_is_missing() -> None:
    asked: list[int] = []

    def counted(count: int) -> bytes:
        asked.append(count)
        return entropy(count)

    framework = Framework(load_plugins(options={"mpi": {"entropy": counted}}))
    job, on = trainjob(), mpi_runtime()
    made = resolve(job, on, framework).objects[0].object
    assert (made["kind"], made["type"], made["immutable"]) == ("Secret", "kubernetes.io/ssh-auth", True)
    assert len(asked) == 1
    only_metadata = {"apiVersion": "v1", "kind": "Secret", "metadata": made["metadata"]}
    again = resolve(job, on, framework, listers=FakeListers(only_metadata)).objects[0]
    assert again.when is ApplyWhen.ONCE
    assert "data" not in again.object
    assert len(asked) == 1


@pytest.mark.defect("S1")
def test_no_secret_is_read() -> None:
    (secrets,) = (watch for watch in MPI().watch_extension() if watch.kind == "Secret")
    assert (secrets.writes, secrets.creates_only, secrets.reads) == (True, True, False)


def test_two_jobs_never_share_a_key() -> None:
    framework = Framework(load_plugins())
    made = [resolve(trainjob(), mpi_runtime(), framework).objects[0].object["data"] for _ in range(2)]
    assert made[0]["ssh-privatekey"] != made[1]["ssh-privatekey"]


@pytest.mark.parametrize("plugin", [MPI, Flux])
def test_entropy_must_be_a_function(plugin: Any) -> None:
    with pytest.raises(TypeError, match="entropy must be a function that gives random bytes, not 'dice'"):
        plugin(entropy="dice")  # as from a configuration file


@pytest.mark.defect("S5")
def test_roots_private_key_is_for_root_alone() -> None:
    """S5: ssh refuses a key of its own user that others may read, and the default path is root's."""
    assert key_modes(mpi_runtime()) == key_modes(mpi_runtime(sshAuthMountPath="/root/keys")) == {0o400}
    assert key_modes(mpi_runtime(sshAuthMountPath="/home/mpiuser/.ssh")) == {0o640}
    assert key_modes(mpi_runtime(sshAuthMountPath="/rooted")) == {0o640}


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
@pytest.mark.parametrize("source", [entropy, lambda count: b"\xff" * count])
def test_openssh_reads_the_keys_with_the_mode_of_root(tmp_path: Path, source: Any) -> None:
    pair = ssh_key_pair(source)
    private = tmp_path / "id_rsa"
    private.write_bytes(pair.private)
    private.chmod(0o400)
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(private)], check=True, capture_output=True).stdout
    assert public.split()[:2] == pair.public.split()[:2]
    private.chmod(0o640)
    assert subprocess.run(["ssh-keygen", "-y", "-f", str(private)], check=False, capture_output=True).returncode != 0


def test_the_key_pair_has_the_formats_that_were_recorded() -> None:
    data = companion("Secret", trainjob(), mpi_runtime()).object["data"]
    assert b64decode(data["ssh-privatekey"]).startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    kind, _, comment = b64decode(data["ssh-publickey"]).partition(b" ")
    assert kind == b"ecdsa-sha2-nistp521"
    assert comment.endswith(b"\n")
    assert b" " not in comment


@pytest.mark.parametrize(
    ("implementation", "name"),
    [
        ("OpenMPI", "OMPI_MCA_plm_rsh_args"),
        ("", "OMPI_MCA_plm_rsh_args"),
        ("IntelMPI", "I_MPI_PERHOST"),
        ("MPICH", "HYDRA_HOST_FILE"),
    ],
)
def test_reserved_variables_are_those_of_the_implementation(implementation: str, name: str) -> None:
    job = trainjob(trainer={"env": [{"name": name, "value": "1"}]})
    message = f"must not have reserved envs, invalid envs configured: [{name}]"
    assert error_details(job, mpi_runtime(mpiImplementation=implementation)) == [("spec.trainer.env", message)]
    other = "MPICH" if implementation != "MPICH" else "OpenMPI"
    assert error_details(job, mpi_runtime(mpiImplementation=other)) == []


def test_two_nodes_need_both_jobs_when_one_of_them_is_the_launcher() -> None:
    on = runtime(replicated_job("launcher"), policy={"mpi": {"runLauncherAsNode": True}})
    message = (
        "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode does not have either launcher and node"
    )
    assert error_details(trainjob(trainer={"numNodes": 2}), on) == [("spec.trainer.numNodes", message)]
    assert error_details(trainjob(trainer={"numNodes": 1}), on) == []
    assert error_details(trainjob(trainer={"numNodes": 2}), mpi_runtime(runLauncherAsNode=True)) == []


def test_nodes_without_host_names_are_warned_of() -> None:
    on = runtime(
        replicated_job(), replicated_job("launcher"), policy={"mpi": {}}, network={"enableDNSHostnames": False}
    )
    ((path, _),) = warning_details(trainjob(trainer={"numNodes": 2}), on)
    assert path == "spec.runtimeRef"


def test_more_nodes_than_a_config_map_holds_are_refused_at_once() -> None:
    with pytest.raises(PluginFailed, match="the hostfile of 2147483647 nodes does not fit into a ConfigMap") as caught:
        jobset(trainjob(trainer={"numNodes": 2**31 - 1}), mpi_runtime())
    assert caught.value.rejected
    assert len(hosts(trainjob(trainer={"numNodes": 20_000}), mpi_runtime())) == 20_000


@st.composite
def mpi_runtimes(draw: st.DrawFn) -> JsonObject:
    jobs = []
    for name in draw(st.permutations(["node", "launcher", "aux"])):
        if draw(st.booleans()) or name == "launcher":
            main = {"name": "node", "image": "i", "resources": draw(RESOURCES)}
            jobs.append(replicated_job(name, ancestor="trainer" if name == "launcher" else None, containers=[main]))
    policy = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "numProcPerNode": st.integers(1, 4),
                "mpiImplementation": st.sampled_from(["OpenMPI", "IntelMPI", "MPICH", "", "LAM"]),
                "runLauncherAsNode": st.booleans(),
                "sshAuthMountPath": st.sampled_from(["/root/.ssh", "/home/u/.ssh"]),
            },
        )
    )
    nodes = draw(st.fixed_dictionaries({}, optional={"numNodes": st.integers(1, 4)}))
    return runtime_object(*jobs, policy={"mpi": policy, **nodes})


TRAINERS = st.fixed_dictionaries(
    {}, optional={"numNodes": st.integers(0, 5), "numProcPerNode": st.integers(1, 8), "resourcesPerNode": RESOURCES}
)


@given(TRAINERS, mpi_runtimes())
def test_resolving_is_pure(trainer: JsonObject, on: JsonObject) -> None:
    check_that_resolving_is_pure(trainjob_object(trainer=trainer), on)
