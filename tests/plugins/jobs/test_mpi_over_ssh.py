"""MPIJobs whose processes are started over ssh, with keys and hosts, or by kubectl exec, with rights."""

import subprocess
from pathlib import Path

import pytest
from support.mpijobs import KIND, SSH, built, environment, mpijob, parsed, replica, worker_pod

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
    assert [each["name"] for each in spec["initContainers"]] == ["wait-for-workers"]


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


def test_a_launcher_waits_for_the_names_of_its_workers() -> None:
    """ssh gives up at once where a name does not exist, and workers get theirs with their addresses."""
    context = {"allowPrivilegeEscalation": False}
    container = {"name": "mpi", "image": "train:1", "securityContext": context, "command": ["mpirun", "train"]}
    spec = build_pod(mpijob(SSH, launcher=replica(containers=[container])), "Launcher", 0)["spec"]
    (waits,) = spec["initContainers"]
    assert (waits["image"], waits["securityContext"]) == ("train:1", context)
    assert 'getent hosts "$host"' in waits["command"][-1]
    assert waits["command"][-1].endswith("< /etc/mpi/hostfile")
    assert [each["mountPath"] for each in waits["volumeMounts"]] == ["/etc/mpi"]


@pytest.mark.defect("V1-B41")
def test_open_mpi_of_both_generations_finds_its_hosts() -> None:
    """V1-B41: Open MPI 5 takes no notice of the variables of Open MPI 4, and would start all ranks in the launcher."""
    over_ssh = environment(build_pod(mpijob(SSH, slotsPerWorker=2), "Launcher", 0))
    assert {name: value for name, value in over_ssh.items() if name.startswith("PRTE_")} == {
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
    }
    by_kubectl = environment(build_pod(mpijob(), "Launcher", 0))
    assert {name: value for name, value in by_kubectl.items() if name.startswith("PRTE_")} == {
        "PRTE_MCA_plm_ssh_agent": "/etc/mpi/kubexec.sh",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    }


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


LAUNCHER: JsonObject = {"metadata": {"name": "mw-launcher"}}


@pytest.mark.nightly
def test_kubexec_calls_kubectl_exec_with_the_words_of_mpirun(tmp_path: Path) -> None:
    data = built(mpijob(mainContainer="work"))["ConfigMap"]["data"]
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\n')
    kubectl.chmod(0o755)
    script = tmp_path / "kubexec.sh"
    script.write_text(data["kubexec.sh"].replace("/opt/kube", str(tmp_path)))
    run = subprocess.run(
        ["sh", str(script), "mw-worker-1", "orted", "-mca", "a b"], check=True, capture_output=True, text=True
    )
    assert run.stdout.split("\n")[:-1] == [
        *("[exec]", "[mw-worker-1]", "[--container]", "[work]", "[--]", "[/bin/sh]", "[-c]", "[orted -mca a b]")
    ]


@pytest.mark.defect("V1-B35")
@pytest.mark.parametrize("workers", [None, 0])
def test_a_launcher_alone_may_exec_nowhere(workers: int | None) -> None:
    """V1-B35: a rule without names would be about all pods of the namespace."""
    assert built(mpijob(workers=workers), [LAUNCHER])["Role"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]


@pytest.mark.defect("V1-B19")
def test_an_account_that_the_author_names_is_nobodys() -> None:
    """V1-B19: the original's went with the job, from under other pods."""
    objects = built(mpijob(launcher=replica(serviceAccountName="nosa")), [LAUNCHER])
    account = objects["ServiceAccount"]["metadata"]
    assert (account["name"], account["ownerReferences"]) == ("nosa", [])
    assert objects["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "nosa", "namespace": "NS"}]
    assert "ownerReferences" not in built(mpijob())["ServiceAccount"]["metadata"]


def test_an_account_that_somebody_made_for_the_launcher_is_taken_as_it_is() -> None:
    """With its secrets for pulling images, for instance; but not what an earlier job of the name left."""
    account: JsonObject = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "mw-launcher", "namespace": "NS"},
    }
    assert built(mpijob(), [], account)["ServiceAccount"]["metadata"]["ownerReferences"] == []
    owners = [{"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "mw", "uid": "earlier", "controller": True}]
    account["metadata"]["ownerReferences"] = owners
    assert "ownerReferences" not in built(mpijob(), [], account)["ServiceAccount"]["metadata"]


def test_a_role_names_only_pods_that_exist() -> None:
    """A pod of somebody else may have the name of a worker that the job lacks."""
    assert "Role" not in built(mpijob())
    assert "RoleBinding" not in built(mpijob())
    rules = built(mpijob(), [LAUNCHER, worker_pod(1)])["Role"]["rules"]
    assert [rule.get("resourceNames") for rule in rules] == [None, ["mw-worker-1"]]


def test_a_role_that_exists_is_narrowed_when_there_are_no_pods() -> None:
    """Before anything else, so that whatever is wrong with other objects does not keep a right alive."""
    metadata = {"name": "mw-launcher", "namespace": "NS"}
    role: JsonObject = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata}
    objects = built(mpijob(), [], role)
    assert next(iter(objects)) == "Role"
    assert [rule["resources"] for rule in objects["Role"]["rules"]] == [["pods"]]


def test_the_rights_of_a_role_are_declared() -> None:
    """Who creates a Role must have what it gives."""
    given = {
        (resource, verb)
        for rule in built(mpijob(), [worker_pod(0)])["Role"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    declared = {
        ("/".join(filter(None, (each.plural, each.subresource))), verb) for each in KIND.grants() for verb in each.verbs
    }
    assert given == declared


@pytest.mark.defect("V1-B38")
def test_variables_of_the_operator_count() -> None:
    """V1-B38: all but those by which Intel MPI is started, once each."""
    given = [{"name": name, "value": "mine"} for name in ("OMPI_MCA_plm_rsh_agent", "I_MPI_HYDRA_BOOTSTRAP")]
    pod = build_pod(mpijob(launcher=replica(containers=[{"name": "m", "image": "i", "env": given}])), "Launcher", 0)
    names = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert environment(pod)["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert environment(pod)["I_MPI_HYDRA_BOOTSTRAP"] == "mine"
