"""`trainmaster crds` and `trainmaster rbac`: what they print is what is deployed, and what the manager needs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import Ran

from trainmaster.controller.cli import main, root
from trainmaster.controller.manager.roles import NAME

DEPLOYED = Path(__file__).resolve().parents[3] / "deploy/crds"
JOBS = [f"{kind}jobs.kubeflow.org" for kind in ("jax", "mpi", "paddle", "pytorch", "tf", "xgboost")]
OF_TRAINER = ("clustertrainingruntimes", "optimizationjobs", "trainingruntimes", "trainjobs")
TRAINER = [f"{plural}.trainer.kubeflow.org" for plural in OF_TRAINER]
NAMES = [*JOBS, *TRAINER]


def test_all_of_them_are_printed_as_they_are_deployed(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("crds").out == "---\n".join(path.read_text() for path in sorted(DEPLOYED.glob("*.yaml")))
    assert main(["crds", "-o", "name"]) == 0
    names = [f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in NAMES]
    assert capsys.readouterr().out.split() == names


def test_they_are_chosen_by_any_of_their_names(ran: Ran) -> None:
    cases: dict[str, list[str]] = {
        "trainjobs": ["trainjobs.trainer.kubeflow.org"],
        "TrainJob trainjob trainjobs.trainer.kubeflow.org": ["trainjobs.trainer.kubeflow.org"],
        "trainjobs TrainingRuntime": ["trainjobs.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org"],
        "PyTorchJob tfjobs": ["pytorchjobs.kubeflow.org", "tfjobs.kubeflow.org"],
        "trainer.kubeflow.org": TRAINER,
        "kubeflow.org": JOBS,
        "--without mpijobs": [name for name in NAMES if name != "mpijobs.kubeflow.org"],
        "kubeflow.org --without MPIJob,tfjob --without jaxjobs": [JOBS[2], JOBS[3], JOBS[5]],
        "--without kubeflow.org": TRAINER,
    }
    for asked, names in cases.items():
        assert [line.partition("/")[2] for line in ran("crds", *asked.split(), "-o", "name").out.split()] == names
    items = json.loads(ran("crds", "trainjobs", "TrainingRuntime", "-o", "json").out)["items"]
    assert [each["metadata"]["name"] for each in items] == cases["trainjobs TrainingRuntime"]


def test_an_unknown_name_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["trainjbos"], ["--without", "trainjbos"]):
        assert main(["crds", *arguments]) == 2
        told = 'trainmaster: there is no definition "trainjbos" (did you mean "trainjobs"?)\n'
        assert capsys.readouterr().err == told


RBAC = Path(__file__).parents[3] / "deploy/rbac"
LABELS = {"app.kubernetes.io/name": "trainer", "app.kubernetes.io/part-of": "kubeflow"}
HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert root.main(["rbac", *arguments]) == 0
    return capsys.readouterr().out


def resources(roles: list[dict[str, Any]]) -> set[str]:
    return {resource for role in roles for rule in role.get("rules", ()) for resource in rule["resources"]}


def rights(roles: list[dict[str, Any]], *scopes: str | None) -> set[tuple[str, str, str, str]]:
    """Return what roles grant in some scopes: the cluster, which is None, or namespaces."""
    return {
        (group, resource, name, verb)
        for role in roles
        if role["metadata"].get("namespace") in scopes
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_a_manager_of_named_namespaces_has_the_rights_of_one_of_the_cluster_in_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And in its own: it tells there, by events, what it has done to its certificate."""
    config = tmp_path / "config.yaml"
    shipped = (RBAC.parent / "base/controller_manager_config.yaml").read_text()
    config.write_text(shipped.replace("watchNamespaces: []", "watchNamespaces: [team-a, team-b]"))
    everywhere = list(yaml.safe_load_all(printed(capsys)))
    named = list(yaml.safe_load_all(printed(capsys, "--config", str(config))))
    # A manager of namespaces has no right to nodes, so it removes no pods from lost ones either.
    beyond = {("coordination.k8s.io", "leases", "trainer.kubeflow.org", "list"), ("", "pods/status", "", "patch")}
    beyond |= {("", "nodes", "", verb) for verb in ("get", "list", "watch")}
    of_namespaces = rights(named, "team-a")
    assert rights(named, "team-b") == of_namespaces
    assert rights(everywhere, None) - beyond == rights(named, None) | of_namespaces
    assert rights(named, None) & of_namespaces == set()
    own = {("events.k8s.io", "events", "", verb) for verb in ("create", "patch")}
    assert own <= rights(named, "kubeflow")
    assert rights(everywhere, "kubeflow") == rights(named, "kubeflow")
    table = printed(capsys, "--config", str(config), "-o", "table")
    (line,) = (each for each in table.splitlines() if "events.events.k8s.io" in each and "namespace kubeflow" in each)
    assert line.split()[:4] == ["events.events.k8s.io", "create,patch", "namespace", "kubeflow"]


def test_roles_for_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The namespace and the account are those that one asks for; a disabled plugin leaves its rights behind."""
    config = tmp_path / "config.yaml"
    config.write_text(
        HEAD + "certManagement: {enable: false}\nleaderElection: {leaderElect: true}\n"
        "plugins: {disabled: [mpi, flux, volcano, coscheduling]}\ntrainingOperator: {enabled: false}\n"
    )
    text = printed(capsys, "--config", str(config), "-n", "team", "--service-account", "me")
    roles = list(yaml.safe_load_all(text))
    assert [(each["kind"], each["metadata"]) for each in roles] == [
        ("ClusterRole", {"name": "me", "labels": LABELS}),
        ("ClusterRoleBinding", {"name": "me", "labels": LABELS}),
        ("Role", {"name": "me", "namespace": "team", "labels": LABELS}),
        ("RoleBinding", {"name": "me", "namespace": "team", "labels": LABELS}),
    ]
    subjects = [subject for role in roles for subject in role.get("subjects", ())]
    assert subjects == 2 * [{"kind": "ServiceAccount", "name": "me", "namespace": "team"}]
    assert not resources(roles) & {"secrets", "podgroups", "limitranges", "tokenreviews"}
    rules = [rule for role in roles for rule in role.get("rules", ()) if "pods" in rule["resources"]]
    assert [rule["verbs"] for rule in rules] == [["list", "watch", "delete"]], "those of a resilience policy alone"
    assert resources(roles) >= {"jobsets", "configmaps", "leases"}


def test_without_a_file_they_are_those_of_the_manifests_and_of_the_gates(capsys: pytest.CaptureFixture[str]) -> None:
    # Without a file they are those of the manifests. Applied over an installation of ours they take nothing from it:
    # no right, and no label by which it is removed.
    made = list(yaml.safe_load_all(printed(capsys, "-n", "kubeflow")))
    of_the_cluster = ("cluster_role", "cluster_role_binding")
    names = [*of_the_cluster, *(f"training_operator_{name}" for name in of_the_cluster), "role", "role_binding"]
    assert made == [yaml.safe_load((RBAC / f"{name}.yaml").read_text()) for name in names]
    base = yaml.safe_load((RBAC.parent / "base/kustomization.yaml").read_text())
    assert [each["metadata"]["labels"] for each in made] == 6 * [base["labels"][0]["pairs"]] == 6 * [LABELS]
    # A feature gate is taken from the command line as well.
    text = printed(capsys, "--feature-gates", "TrainJobStatus=true")
    assert resources(list(yaml.safe_load_all(text))) >= {"tokenreviews", "pods", "jobs"}


def test_roles_for_named_namespaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond these it needs what has no namespace, and its own."""
    config = tmp_path / "config.yaml"
    config.write_text(HEAD + "leaderElection: {leaderElect: true}\nwatchNamespaces: [team-a, team-b]\n")
    roles = list(yaml.safe_load_all(printed(capsys, "--config", str(config), "-n", "home")))
    by_name = {(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in roles[::2]}
    jobs = f"{NAME}-training-operator"
    assert sorted(by_name) == [
        *(("", name) for name in (NAME, jobs)),
        ("home", NAME),
        *((team, name) for team in ("team-a", "team-b") for name in (NAME, jobs)),
    ]
    by_namespace = {namespace: each for (namespace, name), each in by_name.items() if name == NAME}
    assert by_name["team-a", jobs]["rules"] == by_name["team-b", jobs]["rules"]
    assert resources([by_name["team-a", jobs]]) >= {"pytorchjobs", "pytorchjobs/status", "pods/exec"}
    assert by_namespace["team-a"]["rules"] == by_namespace["team-b"]["rules"]
    assert resources([by_namespace["team-a"]]) >= {"trainjobs", "trainjobs/status", "jobsets", "configmaps", "events"}
    assert "clustertrainingruntimes" in resources([by_namespace[""]])
    assert not resources([by_namespace[""]]) & {"trainjobs", "jobsets", "configmaps", "secrets", "events", "leases"}
    table = printed(capsys, "--config", str(config), "-o", "table")
    assert "namespace team-a, namespace team-b" in table


def test_the_table_says_who_needs_what_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "-o", "table").splitlines()
    assert lines[0].split() == ["RESOURCE", "VERBS", "IN", "NEEDED", "BY", "TO"]
    cells = [line.split("   ") for line in lines]
    assert [[cell.strip() for cell in line if cell.strip()] for line in cells if "secrets" in line[0]] == [
        ["secrets", "create", "the cluster", "flux, mpi", "build what a TrainJob consists of"],
        [*("secrets", "get", "the cluster", "flux, mpi"), "find out who owns or changes an existing object"],
        [
            *("secrets kubeflow-trainer-webhook-cert", "get,list,watch,patch", "namespace kubeflow"),
            *("certManagement", "keep the certificates of the webhooks"),
        ],
    ]


def test_what_cannot_be_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, complaint in (
        (["-n", "Team"], "--namespace 'Team' cannot be a name: "),
        (["--service-account", "-"], "--service-account '-' cannot be a name: "),
        (["--config", "no-such-file"], "failed to read config file: no-such-file: "),
        (["--feature-gates", "Nonsense=true"], "--feature-gates: unknown feature gate 'Nonsense'; known are: "),
    ):
        assert root.main(["rbac", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"trainmaster: {complaint}")
