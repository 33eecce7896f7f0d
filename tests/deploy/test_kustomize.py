"""What the directories of deploy/ render to, and what must be true of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.manifests import DEPLOY, MANAGER, NEEDS_KUBECTL, OVERLAYS, by_identity, kustomize, one, overlay, strings

from trainmaster.controller.configuration import Configuration, load_configuration, parse_address
from trainmaster.devcluster.manager.public_configmap import TRAINER_VERSION
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__
from trainmaster.runtime.yamltext import load_yaml_documents

pytestmark = NEEDS_KUBECTL

ORIGINAL_SELECTOR = {
    "app.kubernetes.io/name": "trainer",
    "app.kubernetes.io/component": "manager",
    "app.kubernetes.io/part-of": "kubeflow",
}
"""That of the original's Deployment, which nothing can change on a live cluster."""

WITH_MANAGER = [name for name in OVERLAYS if name not in {"runtimes", "data-cache"}]


def pod_of(objects: dict[tuple[str, str, str], JsonObject]) -> JsonObject:
    """The pod template of the manager."""
    template: JsonObject = one(objects, "Deployment")["spec"]["template"]
    return template


def configuration_of(objects: dict[tuple[str, str, str], JsonObject], tmp_path: Path) -> Configuration:
    """What the manager reads from its ConfigMap."""
    data = one(objects, "ConfigMap", "kubeflow-trainer-config")["data"]
    assert list(data) == ["controller_manager_config.yaml"]
    path = tmp_path / "configuration.yaml"
    path.write_text(data["controller_manager_config.yaml"])
    return load_configuration(path)


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_renders_without_an_object_twice(name: str) -> None:
    assert overlay(name)


@pytest.mark.parametrize("directory", ["crds", "runtimes", "webhooks"])
def test_directories_of_objects_hold_nothing_else_that_kubectl_or_a_wheel_would_take_for_one(directory: str) -> None:
    """`kubectl apply -f` takes every *.yaml, and so do the command line and the embedded cluster."""
    files = sorted((DEPLOY / directory).glob("*.yaml"))
    kinds = {document["kind"] for path in files for _, document in load_yaml_documents(path.read_bytes())}
    assert "Kustomization" not in kinds
    rendered = kustomize(DEPLOY / directory)
    assert len(rendered) == sum(len(list(load_yaml_documents(path.read_bytes()))) for path in files)


def test_another_namespace_moves_everything(tmp_path: Path) -> None:
    """Nobody's webhook or role may go on to point to where the manager was."""
    for name in ("base", "overlays/standalone"):
        directory = tmp_path / name.replace("/", "-")
        directory.mkdir()
        # kustomize takes relative paths only
        target = Path(*[".."] * (len(directory.resolve().parts) - 1), *(DEPLOY / name).resolve().parts[1:])
        (directory / "kustomization.yaml").write_text(f"namespace: elsewhere\nresources: ['{target}']\n")
        objects = by_identity(kustomize(directory))
        moved = [obj for (kind, *_), obj in objects.items() if kind != "CustomResourceDefinition"]
        assert "kubeflow-system" not in strings(moved)
        assert {obj["metadata"]["name"] for obj in moved if obj["kind"] == "Namespace"} <= {"elsewhere"}
        assert {namespace for _, namespace, _ in objects} == {"", "elsewhere"}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            for configuration in (obj for obj in moved if obj["kind"] == kind):
                for webhook in configuration["webhooks"]:
                    assert webhook["clientConfig"]["service"]["namespace"] == "elsewhere"
        for binding in (obj for obj in moved if obj["kind"] in {"RoleBinding", "ClusterRoleBinding"}):
            for subject in binding["subjects"]:
                assert subject.get("namespace", "elsewhere") == "elsewhere"


@pytest.mark.parametrize("name", WITH_MANAGER)
def test_webhooks_point_to_the_manager(name: str) -> None:
    objects = overlay(name)
    service = one(objects, "Service")
    configurations = [obj for (kind, *_), obj in objects.items() if kind.endswith("WebhookConfiguration")]
    of_jobs = [] if name == "without-training-operator" else [5]
    assert [len(each["webhooks"]) for each in configurations] == [1, 3, *of_jobs]
    for webhook in (webhook for each in configurations for webhook in each["webhooks"]):
        client = webhook["clientConfig"]
        assert client["service"]["name"] == MANAGER
        assert client["service"]["namespace"] == service["metadata"]["namespace"]
        assert client["service"].get("port", 443) in {port["port"] for port in service["spec"]["ports"]}


@pytest.mark.defect("S8")
@pytest.mark.parametrize("name", WITH_MANAGER)
def test_only_the_managers_pods_are_behind_its_service(name: str) -> None:
    """The original selects by one label that managers of other components bear too."""
    objects = overlay(name)
    selectors = [
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        one(objects, "Service")["spec"]["selector"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [ORIGINAL_SELECTOR] * 3
    assert pod_of(objects)["metadata"]["labels"].items() >= ORIGINAL_SELECTOR.items()


@pytest.mark.parametrize("name", WITH_MANAGER)
def test_ports_have_the_names_that_refer_to_them(name: str, tmp_path: Path) -> None:
    objects = overlay(name)
    (container,) = pod_of(objects)["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    configuration = configuration_of(objects, tmp_path)
    assert ports == {
        "health": parse_address(configuration.health.health_probe_bind_address)[1],
        "metrics": parse_address(configuration.metrics.bind_address)[1],
        "webhook": configuration.webhook.port,
        "status-server": configuration.status_server.port,
    }
    assert {port["targetPort"] for port in one(objects, "Service")["spec"]["ports"]} == ports.keys() - {"health"}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [probe["port"] for probe in probes] == ["health"] * 3
    health = configuration.health
    liveness, readiness = f"/{health.liveness_endpoint_name}", f"/{health.readiness_endpoint_name}"
    assert [probe["path"] for probe in probes] == [liveness, liveness, readiness]


@pytest.mark.parametrize("name", WITH_MANAGER)
def test_the_configuration_is_read_and_safe(name: str, tmp_path: Path) -> None:
    configuration = configuration_of(overlay(name), tmp_path)
    assert configuration.leader_election is not None
    assert configuration.leader_election.leader_elect
    assert configuration.metrics.secure_serving
    assert configuration.metrics.auth.enabled
    assert configuration.webhook.enabled


@pytest.mark.parametrize("name", WITH_MANAGER)
def test_the_pod_may_do_no_more_than_it_must(name: str) -> None:
    """The restricted profile of the Pod Security Standards, and a root file system that cannot be written."""
    objects = overlay(name)
    spec = pod_of(objects)["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    assert all("hostPath" not in volume for volume in spec["volumes"])
    assert one(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is True


@pytest.mark.defect("S10")
def test_the_manager_has_resources_and_a_disruption_budget() -> None:
    objects = overlay("standalone")
    (container,) = pod_of(objects)["spec"]["containers"]
    assert {"cpu", "memory"} == set(container["resources"]["requests"])
    # One that is throttled renews its lease late.
    assert set(container["resources"]["limits"]) == {"memory"}
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == one(objects, "Deployment")["spec"]["selector"]


@pytest.mark.parametrize("name", WITH_MANAGER)
def test_every_mounted_volume_is_there(name: str) -> None:
    spec = pod_of(overlay(name))["spec"]
    (container,) = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    lasting = ["/var/lib/trainmaster"] if name == "history" else []
    assert [path for path in writable if not path.startswith("/tmp")] == lasting


@pytest.mark.parametrize("name", WITH_MANAGER)
def test_the_image_is_that_of_this_version(name: str) -> None:
    (container,) = pod_of(overlay(name))["spec"]["containers"]
    assert container["image"] == f"trainmaster:{__version__}"


def test_clients_learn_which_release_is_served() -> None:
    data = one(overlay("standalone"), "ConfigMap", "kubeflow-trainer-public")["data"]
    assert data == {"kubeflow_trainer_version": TRAINER_VERSION}


def test_the_secret_is_left_to_the_manager() -> None:
    """Data in the manifest would set back the certificate at each `kubectl apply`."""
    secret = one(overlay("standalone"), "Secret", "kubeflow-trainer-webhook-cert")
    assert "data" not in secret
    assert "stringData" not in secret


def test_the_namespace_admits_only_restricted_pods() -> None:
    labels = one(overlay("standalone"), "Namespace", "kubeflow")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_built_in_runtimes_are_admitted_while_no_manager_answers() -> None:
    rendered = overlay("runtimes")
    plain = by_identity(kustomize(DEPLOY / "runtimes"))
    del plain[("ClusterTrainingRuntime", "", "torch-distributed-with-cache")]
    for runtime in plain.values():
        runtime["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"] = "disabled"
    assert rendered == plain
