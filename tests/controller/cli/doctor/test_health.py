"""The second question of `trainmaster doctor`: is the installation that is there healthy?"""

import asyncio
import base64
import dataclasses
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.authorities import Authority
from support.explained import NAMESPACE, findings
from support.installations import RBAC, allow
from support.manifests import DEPLOY
from support.processes import account_token
from support.stack import Stack, api_server

from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS, JOB_VALIDATOR, VALIDATING
from trainmaster.controller.cli import main
from trainmaster.controller.cli.config.text import KEY
from trainmaster.controller.cli.crds import definition
from trainmaster.controller.cli.doctor import command, health
from trainmaster.controller.cli.doctor.checks import look
from trainmaster.controller.cli.doctor.cluster import SELECTOR
from trainmaster.controller.cli.doctor.facts import CONFIG_MAP
from trainmaster.controller.cli.probes import DEFINITIONS, DEPLOYMENTS, SERVICE_ACCOUNTS
from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.config import Token
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, SECRETS, SERVICES, Resource
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import NAME, roles
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__
from trainmaster.runtime.yamltext import load_yaml_documents

SECRET = "kubeflow-trainer-webhook-cert"
HOST = f"{NAME}.{NAMESPACE}.svc"
VALIDATOR = "validator.trainer.kubeflow.org"
HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
AGAIN = "apply our manifests again, or upgrade the release of our chart"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """A cluster with an installation in which all is well."""
    async with api_server(tmp_path, rbac=True) as stack:
        for resource, obj in installation(Authority(), tmp_path):
            await stack.client.create(resource, obj)
            if resource is DEPLOYMENTS:
                await scale(stack, available=1)
        yield stack


def installation(authority: Authority, directory: Path) -> list[tuple[Resource, JsonObject]]:
    """What is there when the manifests are applied and a manager leads."""
    certificate, key = authority.issue(directory, name=HOST, valid=timedelta(days=90))
    pair = {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes(), "ca.crt": authority.pem}
    within = {"name": NAME, "namespace": NAMESPACE}
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {"holderIdentity": "pod_1", "leaseDurationSeconds": 15, "renewTime": renewed}
    pod: JsonObject = {"serviceAccountName": NAME, "containers": [{"name": "manager", "image": "trainmaster:1"}]}
    deployment = {
        "metadata": {**within, "labels": SELECTOR},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": SELECTOR},
            "template": {"metadata": {"labels": SELECTOR}, "spec": pod},
        },
    }
    rules = policy_rules(
        AS_DEPLOYED,
        features=(),
        watches=Framework(load_plugins()).watches(),
        job_kinds=job_kinds(AS_DEPLOYED),
        namespace=NAMESPACE,
    )
    encoded = {name: base64.b64encode(data).decode() for name, data in pair.items()}
    return [
        (SERVICE_ACCOUNTS, {"metadata": within}),
        (SERVICES, {"metadata": within, "spec": {"ports": [{"port": 443}]}}),
        (SECRETS, {"metadata": {"name": SECRET, "namespace": NAMESPACE}, "data": encoded}),
        (LEASES, {"metadata": {"name": "trainer.kubeflow.org", "namespace": NAMESPACE}, "spec": lease}),
        *((RBAC[role["kind"]], role) for role in roles(rules, namespace=NAMESPACE)),
        *webhooks(authority.pem),
        (DEFINITIONS, definition("tfjobs.kubeflow.org")),
        (DEPLOYMENTS, deployment),
    ]


def webhooks(bundle: bytes) -> list[tuple[Resource, JsonObject]]:
    """The webhook configurations of the manifests, with the bundle that the manager writes into them."""
    by_name = {each.name: each.resource for each in CONFIGURATIONS}
    found: list[tuple[Resource, JsonObject]] = []
    for path in sorted((DEPLOY / "webhooks").glob("*.yaml")):
        for _, obj in load_yaml_documents(path.read_bytes()):
            for webhook in obj["webhooks"]:
                webhook["clientConfig"]["service"]["namespace"] = NAMESPACE
                webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
            found.append((by_name[obj["metadata"]["name"]], obj))
    return found


async def scale(stack: Stack, *, available: int, **status: Any) -> None:
    """Write the status of the Deployment, as its controller does."""
    counted = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": available, "availableReplicas": available}
    body = {"status": {**counted, **status}}
    await stack.client.patch(DEPLOYMENTS, NAMESPACE, NAME, body, subresource="status")


async def told(stack: Stack, **options: Any) -> dict[str, list[str]]:
    """What is said of the installation, and is not ok."""
    found = await findings(stack, configuration=AS_DEPLOYED, **options)
    assert set(health.CHECKS) <= set(found), "an installation is there"
    bad = {name: [line for line in found[name] if not line.startswith("ok: ")] for name in health.CHECKS}
    return {name: lines for name, lines in bad.items() if lines}


async def test_a_healthy_installation_is_told_as_such(stack: Stack) -> None:
    assert await told(stack) == {}
    found = await findings(stack, configuration=AS_DEPLOYED)
    assert found["deployment"] == [
        f"ok: of the Deployment kubeflow/{NAME} (trainmaster:1) 1 of 1 replicas are available"
    ]
    assert [line.partition(" is registered")[0] for line in found["registration"]] == [
        f"ok: {each}" for each in CONFIGURATIONS
    ]
    assert found["kinds"] == [f"ok: the definitions are those of Trainmaster {__version__}"]
    assert found["lease"][0].startswith("ok: the lease kubeflow/trainer.kubeflow.org is held by pod_1, renewed ")


async def test_webhook_configurations_that_are_gone_or_trust_another_certificate_fail(stack: Stack) -> None:
    await stack.client.delete(VALIDATING, None, VALIDATOR)
    gone = f"fail: there is no ValidatingWebhookConfiguration {VALIDATOR}: TrainJobs are admitted unchecked; {AGAIN}"
    assert await told(stack) == {"registration": [gone]}
    (other,) = (obj for _, obj in webhooks(Authority("other").pem) if obj["metadata"]["name"] == VALIDATOR)
    await stack.client.create(VALIDATING, other)
    untrusted = (
        f"fail: ValidatingWebhookConfiguration {VALIDATOR} does not trust the certificate in the Secret "
        f"kubeflow/{SECRET}: the API server calls no webhook of it; see in the log of the manager that leads "
        "why it does not write the caBundle"
    )
    assert await told(stack) == {"registration": [untrusted]}


async def test_the_webhooks_of_v1_jobs_are_missed_where_such_jobs_are_served(stack: Stack) -> None:
    await stack.client.delete(VALIDATING, None, JOB_VALIDATOR.name)
    assert (await told(stack))["registration"] == [
        f"fail: there is no {JOB_VALIDATOR}: jobs of kubeflow.org/v1 are admitted unchecked; {AGAIN}"
    ]
    await stack.client.delete(DEFINITIONS, None, "tfjobs.kubeflow.org")
    assert await told(stack) == {}


async def test_a_secret_or_a_service_that_is_gone_fails(stack: Stack) -> None:
    await stack.client.delete(SECRETS, NAMESPACE, SECRET)
    assert (await told(stack))["certificate"] == [
        (
            f"fail: the Secret kubeflow/{SECRET} is gone: the manager cannot keep a certificate, and may not create "
            f"it; {AGAIN}"
        )
    ]
    # Nor is known whether the bundles of the webhook configurations fit.
    assert (await told(stack))["registration"][0] == (
        "unknown: MutatingWebhookConfiguration defaulter.trainer.kubeflow.org is registered; whether its caBundle fits "
        f"is not known: there is no certificate in the Secret kubeflow/{SECRET}; see that it trusts the one in "
        "webhook.certDir, when there is one again"
    )
    await stack.client.delete(SERVICES, NAMESPACE, NAME)
    assert (await told(stack))["service"] == [
        f"fail: there is no Service kubeflow/{NAME}, by which webhooks and the status server are called; {AGAIN}"
    ]


async def test_a_manager_that_is_not_available_or_does_not_lead_fails(stack: Stack) -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    await scale(stack, available=0, conditions=[refused])
    await stack.client.delete(LEASES, NAMESPACE, "trainer.kubeflow.org")
    unavailable = (
        f"fail: of the Deployment kubeflow/{NAME} (trainmaster:1) 0 of 1 replicas are available: exceeded "
        "quota; see why: kubectl -n kubeflow describe pods; /readyz of a pod says what it waits for"
    )
    absent = "fail: nobody leads: there is no lease kubeflow/trainer.kubeflow.org; see in the log of the manager why"
    assert await told(stack) == {"deployment": [unavailable], "lease": [absent]}
    stale = {"holderIdentity": "pod_1", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    metadata = {"name": "trainer.kubeflow.org", "namespace": NAMESPACE}
    await stack.client.create(LEASES, {"metadata": metadata, "spec": stale})
    assert (await told(stack))["lease"] == [
        (
            "fail: nobody leads: of the lease kubeflow/trainer.kubeflow.org pod_1 has not renewed it since "
            "2020-01-01T00:00:00.000000Z; see in the log of the manager why no replica takes it"
        )
    ]


async def test_bindings_that_are_gone_fail(stack: Stack) -> None:
    await stack.client.delete(RBAC["ClusterRoleBinding"], None, NAME)
    (line,) = (await told(stack)).pop("manager-rights")
    assert line.startswith(
        f"fail: the service account kubeflow/{NAME} may not get, list, watch, delete trainjobs.trainer.kubeflow.org; "
    )
    assert ", and there is no ClusterRoleBinding of its name; apply our roles, with the --config and " in line
    assert len(line) < 1000
    await stack.client.delete(SERVICE_ACCOUNTS, NAMESPACE, NAME)
    assert (await told(stack))["manager-rights"] == [
        f"fail: the service account kubeflow/{NAME} is gone, so that no pod of the manager can be made; {AGAIN}"
    ]


async def test_definitions_that_are_gone_or_of_another_version_are_told(stack: Stack) -> None:
    name = "trainingruntimes.trainer.kubeflow.org"
    live = await stack.client.get(DEFINITIONS, None, name)
    spec = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["podGroupPolicy"]
    await stack.client.update(DEFINITIONS, live)
    assert (await told(stack))["kinds"] == [
        (
            f"warn: other definitions than those of Trainmaster {__version__}: {name}; if the manager is of this "
            "version: trainmaster crds | kubectl apply --server-side --force-conflicts -f -"
        )
    ]
    await stack.client.delete(DEFINITIONS, None, name)
    assert (await told(stack))["kinds"][0].startswith(f"fail: not there: {name}; trainmaster crds | kubectl apply ")


async def test_what_may_not_be_read_is_not_known(stack: Stack) -> None:
    """Nor told as ok."""
    token = await account_token(stack.client, "reader")
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}
    await allow(stack.client, "reader", rule)
    access = dataclasses.replace(stack.access, credentials=Token(token))
    unknown = await told(stack, access=access)
    assert set(unknown) == set(health.CHECKS) - {"deployment"}
    assert all(line.startswith("unknown: ") for lines in unknown.values() for line in lines)
    # Whoever may read webhooks and not the Secret learns that they are there, and no more.
    webhooks_rule = {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]}
    await allow(stack.client, "reader", webhooks_rule, role="webhooks")
    assert (await told(stack, access=access))["registration"][0] == (
        "unknown: MutatingWebhookConfiguration defaulter.trainer.kubeflow.org is registered; whether its caBundle fits "
        f"the certificate is not known: may not get secrets {SECRET} in namespace kubeflow; ask somebody who may, or "
        "for that right"
    )


async def test_webhooks_that_are_left_without_a_manager_fail(stack: Stack) -> None:
    await stack.client.delete(DEPLOYMENTS, NAMESPACE, NAME)
    (line,) = (await findings(stack, configuration=AS_DEPLOYED))["installation"]
    assert line.startswith(
        "fail: there is no Deployment of a manager in the namespace kubeflow, and defaulter.trainer.kubeflow.org, "
    )
    for each in CONFIGURATIONS:
        await stack.client.delete(each.resource, None, each.name)
    assert (await findings(stack, configuration=AS_DEPLOYED))["installation"] == [
        "ok: no manager of Trainmaster is installed in the namespace kubeflow"
    ]


async def test_both_questions_are_told_apart_and_either_fails(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the configuration that the installation has: here one of its own certificates and without jobs of V1."""
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    files = {
        KEY: f"{HEAD}leaderElection: {{leaderElect: true}}\nmetrics: {{auth: {{enabled: true}}}}\n",
        "with-own-certificate.yaml": f"{HEAD}certManagement: {{enable: false}}\n",
        "without-training-operator.yaml": f"{HEAD}trainingOperator: {{enabled: false}}\n",
    }
    metadata = {"name": CONFIG_MAP, "namespace": NAMESPACE}
    await stack.client.create(CONFIGMAPS, {"metadata": metadata, "data": files})
    await stack.client.delete(VALIDATING, None, "validator.training-operator.kubeflow.org")
    kubeconfig = str(next(tmp_path.rglob("kubeconfig")))
    assert await asyncio.to_thread(main, ["doctor", "--kubeconfig", kubeconfig]) == 0
    before, _, after = capsys.readouterr().out.partition("Is the installation in the namespace kubeflow healthy?\n")
    assert "May the cluster take an installation in the namespace kubeflow?\nok       kubernetes         " in before
    assert after.startswith(f"ok       deployment         of the Deployment kubeflow/{NAME} ")
    assert "certManagement.enable is false" in after
    assert after.splitlines()[-1].startswith(f"{stack.access.server}: ")
    assert " warn, 0 fail, " in after.splitlines()[-1]
    await stack.client.delete(VALIDATING, None, VALIDATOR)
    assert await asyncio.to_thread(main, ["doctor", "--kubeconfig", kubeconfig, "-o", "json"]) == 1
    _, begins, text = capsys.readouterr().out.rpartition('{\n  "server"')  # behind what is logged in this process
    report = json.loads(begins + text)
    assert report["findings"][0].keys() == {"question", "check", "status", "message", "what_next"}
    assert sum(report["summary"].values()) == len(report["findings"])
    failed = [each for each in report["findings"] if each["status"] == "fail"]
    assert [(each["question"], each["check"]) for each in failed] == [("installation", "registration")]
    assert report["summary"]["fail"] == 1


async def test_the_configuration_of_a_manager_that_is_replaced_is_not_taken_for_ours(stack: Stack) -> None:
    """Our manifests bring their own, by which there is a leader: the other one's is waited for."""
    await stack.client.create(
        CONFIGMAPS, {"metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE}, "data": {KEY: HEAD}}
    )

    async def lines() -> dict[str, str]:
        found = await look(stack.access, None, Framework(load_plugins()), namespace=NAMESPACE)
        return {each.check: f"{each.status}: {each.message}" for each in found}

    assert (await lines())["lease"] == "ok: leaderElection.leaderElect is false: there is no lease"
    deployment = await stack.client.get(DEPLOYMENTS, NAMESPACE, NAME)
    image = "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0"
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
    await stack.client.update(DEPLOYMENTS, deployment)
    found = await lines()
    assert found["leases"] == "ok: the lease kubeflow/trainer.kubeflow.org is held by pod_1; ours waits for it"
    assert found["installation"].startswith("ok: no manager of Trainmaster is installed in the namespace kubeflow, but")
