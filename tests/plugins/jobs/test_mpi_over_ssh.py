"""MPIJobs whose processes are started over ssh: keys, hosts, and sshd in the workers."""

from __future__ import annotations

import pytest
from support.mpijobs import KIND, SSH, built, environment, mpijob, parsed, replica

from trainmaster.plugins.jobs.mpijob import MPIJob, MPIJobOptions
from trainmaster.runtime.jobs.pods import build_pod, build_service
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.defect("V1-B35")
def test_ssh_needs_no_right() -> None:
    """V1-B35: neither the manager nor the launcher may do anything with pods."""
    assert list(SSH.grants()) == []
    assert list(built(mpijob(SSH))) == ["Secret", "ConfigMap"]
    spec = build_pod(mpijob(SSH), "Launcher", 0)["spec"]
    assert "serviceAccountName" not in spec
    assert "initContainers" not in spec


def test_hosts_are_found_by_services_over_ssh() -> None:
    """And by nothing that is not there with kubectl exec, which needs no names."""
    assert (KIND.has_services, SSH.has_services) == (False, True)
    job = mpijob(SSH)
    services = [build_service(job, "Worker", index)["metadata"]["name"] for index in range(2)]
    data = built(job)["ConfigMap"]["data"]
    assert [line.split()[0] for line in data["hostfile"].splitlines()] == services
    assert build_service(job, "Launcher", 0)["spec"]["selector"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "mw",
        "training.kubeflow.org/replica-type": "launcher",
    }


def test_each_implementation_finds_hosts_in_its_words_over_ssh() -> None:
    job = mpijob(SSH, slotsPerWorker=2)
    data = built(job)["ConfigMap"]["data"]
    assert data["hostfile"] == "mw-worker-0 slots=2\nmw-worker-1 slots=2\n"
    assert data["hydra_hostfile"] == "mw-worker-0:2\nmw-worker-1:2\n"
    pod = build_pod(job, "Launcher", 0)
    env = environment(pod)
    assert env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert env["I_MPI_HYDRA_HOST_FILE"] == env["HYDRA_HOST_FILE"] == "/etc/mpi/hydra_hostfile"
    assert env["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"
    assert env["NVIDIA_VISIBLE_DEVICES"] == ""
    files = next(each for each in pod["spec"]["volumes"] if each["name"] == "mpi-job-config")
    assert {each["key"] for each in files["configMap"]["items"]} == data.keys()


def test_the_keys_are_made_once() -> None:
    """A key that changed under running pods would part them."""
    job = mpijob(SSH)
    secret = built(job)["Secret"]
    assert secret["data"].keys() == {"ssh-privatekey", "ssh-publickey"}
    assert secret["immutable"]
    existing = {**secret, "metadata": {**secret["metadata"], "namespace": "NS"}}
    assert "data" not in built(job, [], existing)["Secret"]


@pytest.mark.parametrize(("path", "mode"), [("/root/.ssh", 0o400), ("/home/mpiuser/.ssh", 0o640)])
def test_all_pods_have_the_keys(path: str, mode: int) -> None:
    kind = MPIJob(MPIJobOptions(transport="ssh", ssh_auth_mount_path=path))
    for replica_type in ("Launcher", "Worker"):
        spec = build_pod(mpijob(kind), replica_type, 0)["spec"]
        volume = next(each for each in spec["volumes"] if "secret" in each)["secret"]
        assert volume["secretName"] == "mw-ssh"
        assert next(each for each in volume["items"] if each["path"] == "id_rsa")["mode"] == mode
        assert path in [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]]


def test_workers_run_sshd_in_their_main_container_if_they_are_to_run_nothing_else() -> None:
    side: JsonObject = {"name": "side", "image": "i"}
    for own, command in (({}, ["/usr/sbin/sshd", "-De"]), ({"command": ["own"]}, ["own"]), ({"args": ["own"]}, None)):
        workers = replica(replicas=1, containers=[side, {"name": "work", "image": "i", **own}])
        replicas = {"Launcher": replica(), "Worker": workers}
        job = parsed(SSH, {"mainContainer": "work", "mpiReplicaSpecs": replicas})
        first, work = build_pod(job, "Worker", 0)["spec"]["containers"]
        assert first == side, "it has no keys"
        assert (work.get("command"), work.get("args")) == (command, own.get("args"))


def test_over_ssh_variables_of_the_author_count() -> None:
    given = [{"name": "I_MPI_HYDRA_IFACE", "value": "ib0"}]
    job = mpijob(SSH, launcher=replica(containers=[{"name": "m", "image": "i", "env": given}]))
    assert environment(build_pod(job, "Launcher", 0))["I_MPI_HYDRA_IFACE"] == "ib0"
