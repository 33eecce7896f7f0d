"""The Helm chart: what its values make, and that it takes those of the original's chart."""

import base64
import gzip
import json
import shutil
from pathlib import Path

import pytest
import yaml
from support.manifests import (
    CHART,
    DEPLOY,
    NEEDS_HELM,
    Id,
    by_identity,
    complete_chart,
    helm,
    installed_runtimes,
    one,
    refusal,
    strings,
    template,
)

from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS
from trainmaster.controller.configuration import Configuration, load_configuration, parse_configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import CLUSTER, roles, scopes_of
from trainmaster.metrics.alerts import RUNBOOKS
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__
from trainmaster.runtime.yamltext import load_yaml, load_yaml_documents

pytestmark = NEEDS_HELM

JOB_KINDS = {"jaxjob", "mpijob", "paddlejob", "pytorchjob", "tfjob", "xgboostjob"}
HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}


def test_single_runtimes_and_their_images_can_be_chosen() -> None:
    image = {"registry": "registry.example", "repository": "mine/tune", "tag": "7"}
    objects = template(
        runtimes={
            "jaxDistributed": {"enabled": True},
            "torchtuneDistributed": {"image": image, "llama3_2_1B": {"enabled": True}},
            "commonLabels": {"team": "a"},
        }
    )
    runtimes = installed_runtimes(objects)
    assert {name for *_, name in runtimes} == {"jax-distributed", "torchtune-llama3.2-1b"}
    assert "registry.example/mine/tune:7" in strings(runtimes["ClusterTrainingRuntime", "", "torchtune-llama3.2-1b"])
    assert {each["metadata"]["labels"]["team"] for each in runtimes.values()} == {"a"}


@pytest.mark.defect("S9")
def test_runtimes_are_installed_without_a_download() -> None:
    """The original's Job installs kubectl from the network; ours runs the manager's image and has what it needs."""
    objects = template(runtimes={"defaultEnabled": True}, image={"pullSecrets": [{"name": "registry"}]})
    (manager,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    jobs = {name: obj for (kind, _, name), obj in objects.items() if kind == "Job"}
    hooks = {name: job["metadata"]["annotations"]["helm.sh/hook"] for name, job in jobs.items()}
    assert hooks == {
        "kubeflow-trainer-runtimes-installer": "post-install,post-upgrade",
        "kubeflow-trainer-runtimes-installer-cleanup": "pre-delete",
    }
    for job in jobs.values():
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == manager["image"]
        assert container["command"] == ["trainmaster", "runtimes"]
        assert container["securityContext"] == manager["securityContext"]
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["serviceAccountName"] == "kubeflow-trainer-runtimes-installer"
    assert jobs["kubeflow-trainer-runtimes-installer"]["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "install",
        "/runtimes/runtimes.yaml",
    ]
    assert not [key for key in template() if key[0] == "Job"]


@pytest.mark.defect("S7")
def test_the_chart_sets_metrics_and_tls_and_grants_what_they_need() -> None:
    objects = template(manager={"config": {"tls": {"minVersion": "1.3"}, "metrics": {"auth": {"enabled": True}}}})
    configuration = read_configuration(objects)
    assert configuration.tls.min_version == "1.3"
    assert configuration.metrics.auth.enabled
    granted = {
        (resource, verb)
        for rule in one(objects, "ClusterRole")["rules"]
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }
    assert {("tokenreviews", "create"), ("subjectaccessreviews", "create")} <= granted


def read_configuration(objects: dict[Id, JsonObject]) -> Configuration:
    """What the manager reads."""
    (text,) = (
        obj["data"]["controller_manager_config.yaml"]
        for (kind, *_), obj in objects.items()
        if kind == "ConfigMap" and "controller_manager_config.yaml" in obj["data"]
    )
    return parse_configuration(load_yaml(text))


def test_every_option_of_the_configuration_can_be_set() -> None:
    """The chart knows options by the models of the manager, not by a list of its own."""
    config = {
        "controller": {
            "groupKindConcurrency": {
                "trainJob": 7,
                "trainingRuntime": 2,
                "clusterTrainingRuntime": 3,
                "PyTorchJob.kubeflow.org": 4,
            }
        },
        "clientConnection": {"qps": 0.5, "burst": 3},
        "featureGates": {"TrainJobStatus": True},
        "plugins": {"disabled": ["flux"], "options": {"mpi": {}}},
        "leaderElection": {"leaseDuration": "30s"},
        "shutdownDelayDuration": "2s",
        "webhook": {"port": 9999},
    }
    objects = template(manager={"config": config})
    configuration = read_configuration(objects)
    assert configuration.controller.group_kind_concurrency == {
        "TrainJob.trainer.kubeflow.org": 7,
        "TrainingRuntime.trainer.kubeflow.org": 2,
        "ClusterTrainingRuntime.trainer.kubeflow.org": 3,
        "PyTorchJob.kubeflow.org": 4,
    }
    assert (configuration.client_connection.qps, configuration.client_connection.burst) == (0.5, 3)
    assert configuration.plugins.disabled == ["flux"]
    assert configuration.leader_election.lease_duration == "30s"
    assert configuration.leader_election.leader_elect, "what is not set keeps its default"
    # A file that is mounted by subPath does not change in a running pod.
    checksums = {
        one(each, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for each in (objects, template())
    }
    assert len(checksums) == 2
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]}["webhook"] == 9999


def test_certificates_may_be_the_administrators_own() -> None:
    """The manager reads them from a Secret that is none of the release, and nobody writes its authority for it."""
    certificates = {"enable": False, "webhookSecretName": "mine"}
    objects = template(manager={"config": {"certManagement": certificates}}, webhook={"caBundle": "YQ=="})
    assert not [key for key in objects if key[0] == "Secret"]
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "serving-certs")
    assert volume["secret"]["secretName"] == "mine"
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "serving-certs")
    assert mount["readOnly"]
    assert read_configuration(objects).cert_management.enable is False
    webhooks = [hook for (kind, *_), obj in objects.items() if "Webhook" in kind for hook in obj["webhooks"]]
    assert [hook["clientConfig"]["caBundle"] for hook in webhooks] == ["YQ=="] * 9


def test_a_feature_gate_brings_the_rights_that_it_needs() -> None:
    without_jobs = {"trainingOperator": {"enabled": False}}
    pods, jobs = ("", "pods", "", "get"), ("batch", "jobs", "", "get")
    for more, added in ((without_jobs, {pods, jobs}), ({}, {jobs})):  # jobs of the Training Operator take pods as well
        granted = {
            gate: rights(template(manager={"config": {"featureGates": {"TrainJobStatus": gate}, **more}}))
            for gate in (True, False)
        }
        assert granted[True] >= granted[False]
        assert granted[True] - granted[False] == added


def test_another_release_has_other_names_throughout() -> None:
    objects = template(
        fullnameOverride="ours",
        nameOverride="short",
        monitoring={"enabled": True},
        certManager={"enabled": True},
        networkPolicy={"enabled": True},
        ha={"enabled": True},
        runtimes={"defaultEnabled": True},
        manager={"config": {"leaderElection": {"resourceName": "our-lease"}}},
        commonLabels={"team": "a"},
    )
    fixed = {"kubeflow-trainer-public", *(each.name for each in CONFIGURATIONS)}
    names = {name for kind, _, name in objects if kind != "CustomResourceDefinition"} - fixed
    assert {name for name in names if not name.startswith(("ours", "short"))} == set()
    assert read_configuration(objects).cert_management.webhook_service_name == "ours-controller-manager"
    role = one(objects, "Role", "ours-controller-manager")
    named = {name for rule in role["rules"] for name in rule.get("resourceNames", ())}
    assert named == {"our-lease", "short-webhook-cert"}
    rule = one(objects, "PrometheusRule", "ours-controller-manager")
    assert {'job="ours-controller-manager"' in each["expr"] for each in rule["spec"]["groups"][0]["rules"]} == {True}
    dashboard = one(objects, "ConfigMap", "ours-dashboard-trainjobs")["data"]["trainmaster-trainjobs.json"]
    assert "controller-manager" not in dashboard, "it is the reader who chooses"
    assert {obj["metadata"]["labels"].get("team") for obj in objects.values()} == {"a"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"history": {"enabled": True}}, []),
        ({"history": {"databaseUrlFile": "/etc/history/url"}}, []),
        ({"history": {"enabled": True, "databaseUrlFile": "/etc/history/url"}}, [5432]),
        ({"tracing": {"endpoint": "otel.observability:4318"}}, [4318]),
        ({"tracing": {"endpoint": "http://jaeger:14318/v1/traces"}}, [14318]),
        ({"tracing": {"endpoint": "https://[fd00::1]:4318"}}, [4318]),
        ({"tracing": {"endpoint": "https://otel.example.org"}}, [443]),
        ({"tracing": {"endpoint": "http://jaeger/v1/traces"}}, [80]),
    ],
)
def test_the_network_policy_lets_it_reach_database_and_collector(config: JsonObject, expected: list[int]) -> None:
    more = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 8080, "protocol": "TCP"}]}
    objects = template(networkPolicy={"enabled": True, "egress": [more]}, manager={"config": config})
    dns, api_server, *rules, last = one(objects, "NetworkPolicy")["spec"]["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert [each["port"] for each in api_server["ports"]] == [443, 6443]
    assert rules == [{"ports": [{"port": port, "protocol": "TCP"}]} for port in expected]
    assert last == more


def test_alerts_say_where_their_runbooks_are() -> None:
    plain = template(monitoring={"enabled": True})
    for group in one(plain, "PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook"] == f"{RUNBOOKS}#{rule['alert'].lower()}"
    objects = template(monitoring={"enabled": True, "runbooks": "https://docs.example.com/runbooks/"})
    rules = [rule for group in one(objects, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    for rule in rules:
        assert (
            rule["annotations"]["runbook_url"] == f"https://docs.example.com/runbooks/README.md#{rule['alert'].lower()}"
        )


def test_definitions_stay_when_the_release_goes() -> None:
    """Without them the API server would delete every job of the cluster."""
    definitions = [obj for (kind, *_), obj in template().items() if kind == "CustomResourceDefinition"]
    assert len(definitions) == 10
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in definitions} == {"keep"}
    assert not [key for key in template(crds={"enabled": False}) if key[0] == "CustomResourceDefinition"]


def rights(objects: dict[Id, JsonObject], kind: str = "ClusterRole") -> set[tuple[str, str, str, str]]:
    """What the manager's roles grant: group, resource, name, verb."""
    return {
        (group, resource, name, verb)
        for (its_kind, _, role), obj in objects.items()
        if its_kind == kind and role.startswith("kubeflow-trainer-controller-manager")
        for rule in obj["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def jobs_in(objects: dict[Id, JsonObject]) -> set[str]:
    """The kinds of jobs of which anything is said but in the configuration."""
    kept = [obj for (kind, *_), obj in objects.items() if kind != "ConfigMap"]
    said = " ".join(text.lower() for obj in kept for text in strings(obj))
    return {kind for kind in JOB_KINDS if kind in said}


def test_without_the_jobs_of_the_training_operator_there_is_nothing_of_them() -> None:
    assert jobs_in(template()) == JOB_KINDS
    objects = template(manager={"config": {"trainingOperator": {"enabled": False}}}, userRoles={"enabled": True})
    assert jobs_in(objects) == set()
    assert not [key for key in objects if "kubeflow-training" in key[2] or "training-operator" in key[2]]
    assert not [right for right in rights(objects) if right[0] == "kubeflow.org" or right[1] == "pods/exec"]
    assert not read_configuration(objects).training_operator.enabled


@pytest.mark.defect("V1-B34")
@pytest.mark.parametrize(
    ("options", "kinds", "executes", "namespaces"),
    [
        ({"enableScheme": ["PyTorchJob"]}, {"pytorchjob"}, False, []),
        ({"enableScheme": ["tfjob", "MPIJOB"]}, {"tfjob", "mpijob"}, True, ["team-a"]),
        ({"enableScheme": ["mpijob"], "options": {"mpijob": {"transport": "ssh"}}}, {"mpijob"}, False, []),
        ({"options": {"mpijob": {"transport": "ssh"}}}, JOB_KINDS, False, ["team-a"]),
    ],
)
def test_of_the_jobs_that_are_served_alone_there_are_definitions_webhooks_and_rights(
    options: JsonObject, kinds: set[str], executes: bool, namespaces: list[str]
) -> None:
    """Where another controller has a kind, for instance the MPI Operator, its definition is left alone."""
    config = {"trainingOperator": options, "watchNamespaces": namespaces}
    objects = template(manager={"config": config}, userRoles={"enabled": True})
    assert jobs_in(objects) == kinds
    names = {name for kind, _, name in objects if kind == "CustomResourceDefinition" and "trainer" not in name}
    assert names == {f"{kind}s.kubeflow.org" for kind in kinds}
    hooks = objects.get(("ValidatingWebhookConfiguration", "", "validator.training-operator.kubeflow.org"))
    called = {hook["name"].split(".")[1] for hook in hooks["webhooks"]} if hooks else set()
    assert called == kinds - {"mpijob"}
    scheme = read_configuration(objects).training_operator.enable_scheme
    assert set(scheme or JOB_KINDS) == kinds
    granted = rights(objects) | {
        right for key, obj in objects.items() if key[:2] == ("Role", "team-a") for right in rights({key: obj}, "Role")
    }
    assert granted == declared(options, namespaces)
    assert (("", "pods/exec", "", "create") in granted) == executes


def declared(options: JsonObject, namespaces: list[str]) -> set[tuple[str, str, str, str]]:
    """What the manager declares to need of the cluster, and in the namespace that it serves."""
    shipped = load_configuration(DEPLOY / "base/controller_manager_config.yaml")
    jobs = parse_configuration({**HEAD, "trainingOperator": options}).training_operator
    configuration = shipped.model_copy(update={"training_operator": jobs, "watch_namespaces": namespaces})
    rules = policy_rules(
        configuration,
        features=(),
        watches=Framework(load_plugins()).watches(),
        job_kinds=job_kinds(configuration),
        namespace="kubeflow",
    )
    wanted = [rule for rule in rules if {CLUSTER, *namespaces} & set(scopes_of(rule, namespaces))]
    made = roles(wanted, namespace="kubeflow", watch_namespaces=namespaces)
    return {
        right
        for obj in made
        if obj["kind"] in ("ClusterRole", "Role") and obj["metadata"].get("namespace") != "kubeflow"
        for right in rights({(obj["kind"], "", obj["metadata"]["name"]): obj}, obj["kind"])
    }


def test_selectors_are_those_of_the_original() -> None:
    """Nothing can change them on a live Deployment."""
    expected = {
        "app.kubernetes.io/name": "kubeflow-trainer",
        "app.kubernetes.io/instance": "kubeflow-trainer",
        "app.kubernetes.io/part-of": "kubeflow",
        "app.kubernetes.io/component": "manager",
        "zone": "b",
    }
    objects = template(manager={"selectorLabels": {"zone": "b"}, "labels": {"more": "c"}})
    deployment = one(objects, "Deployment")["spec"]
    assert deployment["selector"]["matchLabels"] == expected
    assert deployment["template"]["metadata"]["labels"] == {**expected, "more": "c"}
    assert one(objects, "Service")["spec"]["selector"] == expected


def test_values_of_the_pod_arrive() -> None:
    manager: JsonObject = {
        "env": [{"name": "A", "value": "b"}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "mine",
        "podAnnotations": {"a": "b"},
        "resources": {"limits": {"memory": "1Gi"}},
        "replicas": 3,
    }
    objects = template(manager=manager, ha={"enabled": True}, image={"registry": "r.example", "tag": "9"})
    deployment = one(objects, "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["metadata"]["annotations"]["a"] == "b"
    assert {key: pod[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")} == {
        key: manager[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    }
    assert {key: container[key] for key in ("env", "envFrom")} == {key: manager[key] for key in ("env", "envFrom")}
    assert manager["volumes"][0] in pod["volumes"]
    assert manager["volumeMounts"][0] in container["volumeMounts"]
    assert container["resources"] == {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}}
    assert container["image"] == "r.example/trainmaster:9"


def test_the_history_is_on_a_volume_that_there_is_or_in_a_database() -> None:
    own = template(manager={"config": {"history": {"enabled": True}}, "historyVolume": {"storageClassName": "fast"}})
    claim = one(own, "PersistentVolumeClaim", "kubeflow-trainer-history")
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}, "records outlive the release"

    there = template(
        manager={
            "config": {"history": {"enabled": True, "file": "/history/jobs.sqlite"}},
            "historyVolume": {"existingClaim": "mine"},
        }
    )
    assert "PersistentVolumeClaim" not in {kind for kind, *_ in there}
    spec = one(there, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "history", "persistentVolumeClaim": {"claimName": "mine"}} in spec["volumes"]
    assert {"name": "history", "mountPath": "/history"} in spec["containers"][0]["volumeMounts"]

    database = {"enabled": True, "databaseUrlFile": "/etc/history/url"}
    several = template(manager={"config": {"history": database}}, ha={"enabled": True})
    assert "PersistentVolumeClaim" not in {kind for kind, *_ in several}
    deployment = one(several, "Deployment")["spec"]
    assert deployment["strategy"]["type"] == "RollingUpdate"
    assert "history" not in {each["name"] for each in deployment["template"]["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "Additional property replicas is not allowed"),
        ({"manager": {"replicas": "two"}}, "manager.replicas: Invalid type. Expected: integer, given: string"),
        (
            {"manager": {"config": {"leaderElection": {"leaseDuraton": "3s"}}}},
            "manager.config.leaderElection: Additional property leaseDuraton is not allowed",
        ),
        ({"webhook": {"failurePolicy": "fail"}}, "webhook.failurePolicy must be one of the following"),
        (
            {"dataCache": {"runtimes": {"torchDistributedWithCache": {"enabled": True}}}},
            "dataCache.runtimes.torchDistributedWithCache.enabled needs dataCache.enabled",
        ),
        (
            {"manager": {"config": {"history": {"enabled": True}}}, "ha": {"enabled": True}},
            "set manager.config.history.databaseUrlFile to have the history in PostgreSQL",
        ),
        ({"manager": {"config": {"history": {"enabled": True}}, "replicas": 2}}, "which serves one replica"),
    ],
)
def test_values_that_nothing_reads_are_refused(values: JsonObject, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, values)


def test_values_of_the_original_are_taken() -> None:
    """All that its values.yaml has, but the image of a Job that ours has no use for."""
    original = yaml.safe_load((Path(__file__).parent / "original_values.yaml").read_text())
    objects = template(**original)
    assert one(objects, "Deployment")["spec"]["replicas"] == original["manager"]["replicas"]
    configuration = read_configuration(objects)
    assert configuration.client_connection.qps == 50
    assert configuration.controller.group_kind_concurrency["TrainJob.trainer.kubeflow.org"] == 5


def test_lint_finds_nothing_and_files_are_of_this_version(tmp_path: Path) -> None:
    done = helm("lint", "--strict", complete_chart(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_a_package_has_all_that_is_rendered_and_fits_into_a_release(tmp_path: Path) -> None:
    """Helm keeps a release, with all files of its chart, in one Secret, of which the API server takes 1 MiB."""
    # With its links, as it lies in a checkout.
    shutil.copytree(DEPLOY, tmp_path / "deploy", symlinks=True)
    chart = complete_chart(tmp_path, source=tmp_path / "deploy/charts/kubeflow-trainer")
    shutil.copytree(chart / "charts", tmp_path / "deploy/charts/kubeflow-trainer/charts")
    done = helm("package", tmp_path / "deploy/charts/kubeflow-trainer", "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    package = tmp_path / f"kubeflow-trainer-{__version__}.tgz"
    rendered = helm("template", "kubeflow-trainer", package, "--namespace", "kubeflow")
    assert rendered.returncode == 0, rendered.stderr
    assert by_identity(document for _, document in load_yaml_documents(rendered.stdout.encode())) == template()
    files = [base64.b64encode(path.read_bytes()).decode() for path in sorted(chart.rglob("*")) if path.is_file()]
    assert len("".join(files)) > 1_000_000, "or this test says nothing"
    release = gzip.compress(json.dumps({"chart": files, "manifest": rendered.stdout}).encode())
    assert 4 / 3 * len(release) < 600_000


def test_every_value_is_documented() -> None:
    """A value that the table in README.md lacks is one that nobody finds."""
    described = set()
    for line in (CHART / "README.md").read_text().splitlines():
        if line.startswith("| `"):
            described.add(line.split("`")[1])

    def undocumented(values: JsonObject, path: str = "") -> list[str]:
        names = []
        for key, value in values.items():
            name = f"{path}{key}"
            if name in described:
                continue
            if isinstance(value, dict) and value:
                names += undocumented(value, f"{name}.")
            else:
                names.append(name)
        return names

    switches = {"ha.enabled", "certManager.enabled", "networkPolicy.enabled", "monitoring.enabled", "userRoles.enabled"}
    assert set(undocumented(yaml.safe_load((CHART / "values.yaml").read_text()))) <= switches
