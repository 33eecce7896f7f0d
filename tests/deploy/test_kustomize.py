"""What the directories of deploy/ render to, and what must be true of it."""

from pathlib import Path

import pytest
from support.manifests import (
    DEPLOY,
    MANAGER,
    NEEDS_KUBECTL,
    OVERLAYS,
    by_identity,
    configuration_of,
    kustomize,
    one,
    overlay,
    strings,
)

from trainmaster.controller.configuration import parse_address, parse_configuration
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
def test_webhooks_and_ports_lead_to_the_manager(name: str) -> None:
    objects = overlay(name)
    service = one(objects, "Service")
    configurations = [obj for (kind, *_), obj in objects.items() if kind.endswith("WebhookConfiguration")]
    of_jobs = [] if name == "without-training-operator" else [5]
    assert [len(each["webhooks"]) for each in configurations] == [1, 3, *of_jobs]
    for webhook in (webhook for each in configurations for webhook in each["webhooks"]):
        client = webhook["clientConfig"]["service"]
        assert (client["name"], client["namespace"]) == (MANAGER, service["metadata"]["namespace"])
        assert client.get("port", 443) in {port["port"] for port in service["spec"]["ports"]}
    (container,) = pod_of(objects)["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    configuration = parse_configuration(configuration_of(objects))
    assert ports == {
        "health": parse_address(configuration.health.health_probe_bind_address)[1],
        "metrics": parse_address(configuration.metrics.bind_address)[1],
        "webhook": configuration.webhook.port,
        "status-server": configuration.status_server.port,
    }
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports.keys() - {"health"}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [probe["port"] for probe in probes] == ["health"] * 3
    health = configuration.health
    liveness, readiness = f"/{health.liveness_endpoint_name}", f"/{health.readiness_endpoint_name}"
    assert [probe["path"] for probe in probes] == [liveness, liveness, readiness]


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
def test_the_manager_is_safe(name: str) -> None:
    """The restricted profile of the Pod Security Standards, a root file system that cannot be written, and a
    configuration that leads one replica and asks who reads metrics."""
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
    assert container["image"] == f"trainmaster:{__version__}"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    lasting = ["/var/lib/trainmaster"] if name == "history" else []
    assert [path for path in writable if not path.startswith("/tmp")] == lasting
    configuration = parse_configuration(configuration_of(objects))
    assert configuration.leader_election is not None
    assert configuration.leader_election.leader_elect
    assert configuration.metrics.secure_serving
    assert configuration.metrics.auth.enabled
    assert configuration.webhook.enabled


@pytest.mark.defect("S10")
def test_the_manager_has_resources_and_a_disruption_budget_and_a_restricted_namespace() -> None:
    objects = overlay("standalone")
    (container,) = pod_of(objects)["spec"]["containers"]
    assert {"cpu", "memory"} == set(container["resources"]["requests"])
    # One that is throttled renews its lease late.
    assert set(container["resources"]["limits"]) == {"memory"}
    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    # Clients learn which release is served.
    public = one(objects, "ConfigMap", "kubeflow-trainer-public")["data"]
    assert public == {"kubeflow_trainer_version": TRAINER_VERSION}
    # Data in the manifest would set back the certificate at each `kubectl apply`.
    assert not {"data", "stringData"} & one(objects, "Secret", "kubeflow-trainer-webhook-cert").keys()
    labels = one(objects, "Namespace", "kubeflow")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_built_in_runtimes_are_admitted_while_no_manager_answers() -> None:
    rendered = overlay("runtimes")
    plain = by_identity(kustomize(DEPLOY / "runtimes"))
    del plain[("ClusterTrainingRuntime", "", "torch-distributed-with-cache")]
    for runtime in plain.values():
        runtime["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"] = "disabled"
    assert rendered == plain
