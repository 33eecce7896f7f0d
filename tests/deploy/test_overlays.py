"""What each overlay adds to the standalone one, and that they can be combined."""

import copy
from pathlib import Path

import pytest
import yaml
from support.manifests import (
    DEPLOY,
    FILE,
    MANAGER,
    NEEDS_KUBECTL,
    Id,
    by_identity,
    combined,
    configuration_of,
    kustomize,
    one,
    overlay,
    strings,
)

from trainmaster.controller.configuration import parse_configuration
from trainmaster.controller.configuration.loading import merged
from trainmaster.controller.configuration.types import History
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

pytestmark = NEEDS_KUBECTL

JOBS = sorted((DEPLOY / "crds").glob("kubeflow.org_*.yaml"))
JOBS_ROLE = f"{MANAGER}-training-operator"
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())


def changed(name: str) -> tuple[dict[Id, JsonObject], dict[Id, tuple[JsonObject, JsonObject]], set[Id]]:
    """What an overlay adds to the standalone one, what it changes (before, after), and what it takes away."""
    before, after = overlay("standalone"), overlay(name)
    return (
        {key: after[key] for key in after.keys() - before.keys()},
        {key: (before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]},
        before.keys() - after.keys(),
    )


def pod(deployment: JsonObject) -> JsonObject:
    """The spec of its pods."""
    spec: JsonObject = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.defect("S10")
def test_ha_is_two_replicas_apart_from_each_other() -> None:
    added, differing, removed = changed("ha")
    assert (added, list(differing), removed) == ({}, [("Deployment", "kubeflow", MANAGER)], set())
    before, after = differing["Deployment", "kubeflow", MANAGER]
    assert after["spec"]["replicas"] == 2
    ours = after["spec"]["selector"]["matchLabels"]
    (term,) = pod(after)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == ours
    (spread,) = pod(after)["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == ours
    assert pod(after)["priorityClassName"] == "system-cluster-critical"
    assert one(overlay("ha"), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    for key in ("affinity", "topologySpreadConstraints", "priorityClassName"):
        del pod(after)[key]
    after["spec"]["replicas"] = 1
    assert after == before


def test_cert_manager_makes_what_the_manager_reads() -> None:
    added, differing, removed = changed("cert-manager")
    assert {(kind, name) for kind, _, name in added} == {
        ("Issuer", "kubeflow-trainer-selfsigned"),
        ("Issuer", "kubeflow-trainer-ca"),
        ("Certificate", "kubeflow-trainer-ca"),
        ("Certificate", "kubeflow-trainer-webhook-cert"),
    }
    assert {key[1] for key in added} == {"kubeflow"}
    assert removed == {("Secret", "kubeflow", "kubeflow-trainer-webhook-cert")}
    assert {(kind, name) for kind, _, name in differing} == {
        ("Deployment", MANAGER),
        ("ConfigMap", "kubeflow-trainer-config"),
        ("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org"),
        ("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),
        ("ValidatingWebhookConfiguration", "validator.training-operator.kubeflow.org"),
    }
    objects = overlay("cert-manager")
    certificate = one(objects, "Certificate", "kubeflow-trainer-webhook-cert")
    assert f"{MANAGER}.kubeflow.svc" in certificate["spec"]["dnsNames"]
    deployment = one(objects, "Deployment")
    (volume,) = (each for each in pod(deployment)["volumes"] if each["name"] == "serving-certs")
    assert volume == {
        "name": "serving-certs",
        "secret": {"secretName": certificate["spec"]["secretName"], "defaultMode": 0o440},
    }
    (container,) = pod(deployment)["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "serving-certs")
    assert mount["readOnly"]
    for kind, name in (
        ("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org"),
        ("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),
        ("ValidatingWebhookConfiguration", "validator.training-operator.kubeflow.org"),
    ):
        annotations = one(objects, kind, name)["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"kubeflow/{certificate['metadata']['name']}"}
    before, after = configuration_of(overlay("standalone")), configuration_of(overlay("cert-manager"))
    assert (before["certManagement"].pop("enable"), after["certManagement"].pop("enable")) == (True, False)
    assert after == before


def test_history_is_in_a_file_on_a_volume_of_one_node() -> None:
    before, after = configuration_of(overlay("standalone")), configuration_of(overlay("history"))
    assert (before["history"]["enabled"], after["history"]["enabled"]) == (False, True)
    after["history"]["enabled"] = False
    assert after == before
    added, differing, removed = changed("history")
    ((_, _, claim),) = added
    assert added["PersistentVolumeClaim", "kubeflow", claim]["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert ({kind for kind, *_ in differing}, removed) == ({"ConfigMap", "Deployment"}, set())
    deployment = one(overlay("history"), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}, "the next pod may need the volume of the last one"
    (volume,) = (each for each in pod(deployment)["volumes"] if each["name"] == "history")
    assert volume["persistentVolumeClaim"] == {"claimName": claim}
    (mount,) = (each for each in pod(deployment)["containers"][0]["volumeMounts"] if each["name"] == "history")
    assert mount["mountPath"] == str(Path(History().file).parent)


NAMED = ["team-a", "team-b"]


def test_a_namespaced_manager_is_asked_about_its_namespaces_only() -> None:
    added, differing, removed = changed("namespaced")
    assert set(added) == {
        (kind, namespace, name)
        for kind in ("Role", "RoleBinding")
        for namespace in NAMED
        for name in (MANAGER, JOBS_ROLE)
    }
    assert removed == set()
    assert {(kind, name) for kind, _, name in differing} == {
        ("ClusterRole", MANAGER),
        ("ClusterRole", JOBS_ROLE),
        ("ConfigMap", "kubeflow-trainer-config"),
        ("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org"),
        ("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),
        ("ValidatingWebhookConfiguration", "validator.training-operator.kubeflow.org"),
    }
    selector = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": NAMED}]}
    for (kind, *_), (before, after) in differing.items():
        if kind.endswith("WebhookConfiguration"):
            for webhook in after["webhooks"]:
                assert webhook.pop("namespaceSelector") == selector
            assert after == before
    before, after = configuration_of(overlay("standalone")), configuration_of(overlay("namespaced"))
    assert (before.pop("watchNamespaces"), after.pop("watchNamespaces")) == ([], NAMED)
    assert after == before


def test_monitoring_adds_objects_and_changes_none() -> None:
    added, differing, removed = changed("monitoring")
    assert {(kind, name) for kind, _, name in added} == {
        ("ServiceMonitor", MANAGER),
        ("PrometheusRule", MANAGER),
        *(
            ("ConfigMap", f"kubeflow-trainer-dashboard{which}")
            for which in ("", "-trainjobs", "-controller", "-plugins", "-webhooks", "-v1-jobs")
        ),
        ("ServiceAccount", "kubeflow-trainer-metrics-reader"),
        ("Secret", "kubeflow-trainer-metrics-reader"),
        ("ClusterRole", "kubeflow-trainer-metrics-reader"),
        ("ClusterRoleBinding", "kubeflow-trainer-metrics-reader"),
    }
    assert (differing, removed) == ({}, set())
    objects = overlay("monitoring")
    service = one(objects, "Service")
    monitor = one(objects, "ServiceMonitor")["spec"]
    assert service["metadata"]["labels"].items() >= monitor["selector"]["matchLabels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["tlsConfig"]["serverName"] == f"{MANAGER}.kubeflow.svc"
    token = one(objects, "Secret", endpoint["authorization"]["credentials"]["name"])
    account = token["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    (subject,) = one(objects, "ClusterRoleBinding", "kubeflow-trainer-metrics-reader")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account, "namespace": "kubeflow"}
    assert one(objects, "ClusterRole", "kubeflow-trainer-metrics-reader")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


def test_network_policy_lets_in_each_port_that_is_served() -> None:
    added, differing, removed = changed("network-policy")
    assert (list(added), differing, removed) == ([("NetworkPolicy", "kubeflow", MANAGER)], {}, set())
    objects = overlay("network-policy")
    policy = one(objects, "NetworkPolicy")["spec"]
    deployment = one(objects, "Deployment")
    assert policy["podSelector"]["matchLabels"] == deployment["spec"]["selector"]["matchLabels"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (container,) = pod(deployment)["containers"]
    ports = {port["containerPort"]: port["name"] for port in container["ports"]}
    sources = {ports[rule["ports"][0]["port"]]: rule.get("from") for rule in policy["ingress"]}
    assert sources == {
        "webhook": None,
        "status-server": [{"namespaceSelector": {}}],
        "metrics": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
    }


def test_the_platform_has_its_namespace_already() -> None:
    added, differing, removed = changed("kubeflow-platform")
    assert removed == {("Namespace", "", "kubeflow")}
    assert added == {}
    assert list(differing) == [("Deployment", "kubeflow", MANAGER)]
    before, after = differing["Deployment", "kubeflow", MANAGER]
    annotations = after["spec"]["template"]["metadata"].pop("annotations")
    assert after == before
    # The sidecar would end TLS that only the manager can.
    excluded = annotations["traffic.sidecar.istio.io/excludeInboundPorts"].split(",")
    (container,) = pod(after)["containers"]
    assert {int(port) for port in excluded} == {
        port["containerPort"] for port in container["ports"] if port["name"] != "health"
    }


def test_users_of_the_platform_may_change_their_trainjobs() -> None:
    """The original's role for editing lacks update, which `kubectl edit` and clients with a whole object need."""
    objects = overlay("kubeflow-platform")
    verbs = {
        resource: set(rule["verbs"])
        for rule in one(objects, "ClusterRole", "kubeflow-trainer-edit")["rules"]
        for resource in rule["resources"]
    }
    assert verbs["trainjobs"] == {"create", "delete", "get", "list", "patch", "update", "watch"}
    assert verbs["trainjobs/scale"] == {"get", "patch", "update"}
    (selector,) = one(objects, "ClusterRole", "kubeflow-trainer-admin")["aggregationRule"]["clusterRoleSelectors"]
    labels = one(objects, "ClusterRole", "kubeflow-trainer-edit")["metadata"]["labels"]
    assert labels.items() >= selector["matchLabels"].items()


def test_the_runtime_with_a_cache_comes_with_the_role_that_its_initializer_needs() -> None:
    objects = overlay("data-cache")
    assert objects.keys() - overlay("runtimes").keys() == {
        ("ClusterTrainingRuntime", "", "torch-distributed-with-cache"),
        ("ClusterRole", "", "kubeflow-trainer-cache-initializer"),
    }
    for key, runtime in overlay("runtimes").items():
        assert objects[key] == runtime
    namespaced = by_identity(kustomize(DEPLOY / "overlays/data-cache/namespace-rbac"))
    jobs = one(objects, "ClusterTrainingRuntime", "torch-distributed-with-cache")["spec"]["template"]["spec"]
    account = jobs["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["serviceAccountName"]
    binding = one(namespaced, "RoleBinding", "kubeflow-trainer-cache-initializer")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert one(namespaced, "ServiceAccount", account)
    assert one(objects, "ClusterRole", binding["roleRef"]["name"])


def test_without_the_training_operators_jobs_another_controller_can_go_on_with_them() -> None:
    added, differing, removed = changed("without-training-operator")
    assert added == {}
    assert removed == {
        ("ValidatingWebhookConfiguration", "", "validator.training-operator.kubeflow.org"),
        ("ClusterRole", "", JOBS_ROLE),
        ("ClusterRoleBinding", "", JOBS_ROLE),
        *(("CustomResourceDefinition", "", path.stem.partition("_")[2] + ".kubeflow.org") for path in JOBS),
    }
    assert len(removed) == 9
    assert list(differing) == [("ConfigMap", "kubeflow", "kubeflow-trainer-config")]
    configuration = parse_configuration(configuration_of(overlay("without-training-operator")))
    assert not configuration.training_operator.enabled
    assert job_kinds(configuration) == []


def test_the_roles_of_kubernetes_have_the_rights_to_jobs_in_every_overlay() -> None:
    """As of any operator; `view` is a part of `edit`, and that of `admin`."""
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    for name in ("standalone", "kubeflow-platform", "namespaced", "ha"):
        found = {
            obj["metadata"]["name"]: aggregated
            for (kind, _, _), obj in overlay(name).items()
            if kind == "ClusterRole"
            and (
                aggregated := {
                    label.removeprefix(prefix)
                    for label in obj["metadata"].get("labels", {})
                    if label.startswith(prefix)
                }
            )
        }
        assert found == {
            "kubeflow-trainer-edit": {"admin", "edit"},
            "kubeflow-trainer-view": {"view"},
            "kubeflow-training-edit": {"admin", "edit"},
            "kubeflow-training-view": {"view"},
        }, name


def test_users_of_kubeflow_have_the_roles_that_the_training_operator_brings() -> None:
    objects = overlay("kubeflow-platform")
    prefix = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow"
    found = {
        name: {
            label.removeprefix(prefix)
            for label in objects[kind, namespace, name]["metadata"]["labels"]
            if label.startswith(prefix)
        }
        for kind, namespace, name in objects
        if name.startswith("kubeflow-training-")
    }
    assert found == {
        "kubeflow-training-admin": {"-admin"},
        "kubeflow-training-edit": {"-edit", "-training-admin"},
        "kubeflow-training-view": {"-view"},
    }
    plurals = {path.stem.partition("_")[2] for path in JOBS}
    for name, verbs in (("edit", {"create", "delete", "patch", "update"}), ("view", set())):
        rules = one(objects, "ClusterRole", f"kubeflow-training-{name}")["rules"]
        (rule,) = (rule for rule in rules if "tfjobs" in rule["resources"])
        assert set(rule["resources"]) == plurals
        assert set(rule["verbs"]) == {"get", "list", "watch"} | verbs
    (scaled,) = (
        rule
        for rule in one(objects, "ClusterRole", "kubeflow-training-edit")["rules"]
        if any(resource.endswith("/scale") for resource in rule["resources"])
    )
    having = {
        path.stem.partition("_")[2]
        for path in JOBS
        if "scale" in load_yaml(path.read_bytes())["spec"]["versions"][0]["subresources"]
    }
    assert set(scaled["resources"]) == {f"{plural}/scale" for plural in having}


@pytest.mark.parametrize("order", [COMPONENTS, COMPONENTS[::-1]], ids=["forwards", "backwards"])
def test_components_can_be_combined(order: list[str], tmp_path: Path) -> None:
    """Together they say what each of them says alone, whichever comes first."""
    together = combined(tmp_path / "all", resource=DEPLOY / "overlays/standalone", components=order)
    standalone = overlay("standalone")
    for name in COMPONENTS:
        added, differing, removed = changed(name)
        for key, obj in added.items():
            assert together[key] == obj
        for key, (before, _) in differing.items():
            assert together.get(key) != before
        assert not removed & together.keys()
    assert {key for key in together if together[key] == standalone.get(key)}
    assert len(together) == len(standalone) + sum(len(changed(name)[0]) - len(changed(name)[2]) for name in COMPONENTS)
    deployment = copy.deepcopy(one(together, "Deployment"))
    assert deployment["spec"]["replicas"] == 2
    (volume,) = (each for each in pod(deployment)["volumes"] if each["name"] == "serving-certs")
    assert "secret" in volume
    assert "emptyDir" not in volume


def test_components_follow_the_manager_into_another_namespace(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    combined(moved, resource=DEPLOY / "base", components=[], namespace="elsewhere")
    objects = combined(tmp_path / "all", resource=moved, components=COMPONENTS)
    assert {namespace for _, namespace, _ in objects} == {"", "elsewhere"}
    texts = strings([obj for (kind, *_), obj in objects.items() if kind != "CustomResourceDefinition"])
    assert not [text for text in texts if "kubeflow-system" in text]
    assert not [text for text in texts if ".kubeflow.svc" in text or text.startswith("kubeflow/")]
    assert f"{MANAGER}.elsewhere.svc" in texts
    (subject,) = one(objects, "ClusterRoleBinding", "kubeflow-trainer-metrics-reader")["subjects"]
    assert subject["namespace"] == "elsewhere"


OWN = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
leaderElection: {leaderElect: true, resourceName: trainer.kubeflow.org}
certManagement:
  webhookServiceName: kubeflow-trainer-controller-manager
  webhookSecretName: kubeflow-trainer-webhook-cert
metrics: {auth: {enabled: true}}
history: {enabled: false, maxRecords: 7}
enableDebuggingHandlers: false
web: {enabled: false}
"""
"""A file of an administrator, in an order and of a length of its own."""

CHANGED = {
    "cert-manager": {"certManagement": {"enable": False}},
    "history": {"history": {"enabled": True}},
    "without-training-operator": {"trainingOperator": {"enabled": False}},
}
"""What components say in the configuration."""


@pytest.mark.parametrize("behavior", ["merge", "replace"])
@pytest.mark.parametrize("name", CHANGED)
def test_a_component_changes_its_own_option_in_any_configuration(name: str, behavior: str, tmp_path: Path) -> None:
    objects = combined(
        tmp_path / "own",
        resource=DEPLOY / "overlays/standalone",
        components=[name],
        configuration=OWN,
        behavior=behavior,
    )
    own = yaml.safe_load(OWN)
    assert configuration_of(objects) == merged(own, CHANGED[name])
    parse_configuration(configuration_of(objects))


@pytest.mark.parametrize("name", [*CHANGED, "namespaced"])
def test_an_overlay_keeps_its_options_below_a_configuration_of_ones_own(name: str, tmp_path: Path) -> None:
    objects = combined(tmp_path / "own", resource=DEPLOY / "overlays" / name, components=[], configuration=OWN)
    changes = CHANGED.get(name, {"watchNamespaces": NAMED})
    assert configuration_of(objects) == merged(yaml.safe_load(OWN), changes)


def test_the_files_of_components_come_after_the_main_one() -> None:
    """The manager merges them in the order of their names."""
    names = [path.name for path in DEPLOY.glob("*/*/with*.yaml")]
    assert len(names) == len(CHANGED) + 1
    assert min(names) > FILE
