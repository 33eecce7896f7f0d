"""MPIJobs whose processes are started by kubectl exec: the script, the account and its rights."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.mpijobs import KIND, built, environment, mpijob, replica, worker_pod

from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

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
