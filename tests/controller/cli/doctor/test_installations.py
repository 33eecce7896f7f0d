"""Other managers, their leases, and webhooks on our kinds."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.explained import NAMESPACE, findings, only_finding
from support.stack import Stack, api_server

from trainmaster.controller.certificates.webhook_names import MUTATING, VALIDATING
from trainmaster.controller.cli.config.text import KEY
from trainmaster.controller.cli.doctor.cluster import SELECTOR, check_managers
from trainmaster.controller.cli.doctor.facts import Fact, Target
from trainmaster.controller.cli.probes import DEPLOYMENTS
from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, NAMESPACES
from trainmaster.runtime.jsontree import JsonObject

NAME = "kubeflow-trainer-controller-manager"
GO = "ghcr.io/kubeflow/trainer/trainer-controller-manager"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        await stack.client.create(NAMESPACES, {"metadata": {"name": "elsewhere"}})
        yield stack


def deployment(
    image: str, namespace: str = NAMESPACE, name: str = NAME, *, replicas: int = 1, labels: Any = None
) -> JsonObject:
    labels = labels or SELECTOR
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": image}]}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": SELECTOR},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


@pytest.mark.parametrize(
    ("installed", "finding"),
    [
        (deployment(f"{GO}:v2.3.0"),
         f"ok: the Go manager ({GO}:v2.3.0) is installed as kubeflow/{NAME}; ours takes its place"),
        (deployment(f"{GO}:v2.0.1"),
         (f"warn: the Go manager ({GO}:v2.0.1) is installed as kubeflow/{NAME}; the take-over is tried from 2.1, "
          "2.2 and 2.3; update it to 2.3 first")),
        (deployment("trainmaster:1"),
         f"ok: a manager (trainmaster:1) is installed as kubeflow/{NAME}; ours takes its place"),
        (deployment(f"{GO}:v2.3.0", "elsewhere"),
         (f"fail: the Go manager ({GO}:v2.3.0) is installed as elsewhere/{NAME}; two managers in two namespaces "
          "have a lease each, and both would act; install into elsewhere in its place (trainmaster doctor -n "
          "elsewhere), or delete that one first")),
        (deployment(f"{GO}:v2.3.0", "elsewhere", replicas=0),
         (f"warn: the Go manager ({GO}:v2.3.0) is installed as elsewhere/{NAME}, with no replicas; delete it, or "
          "install into elsewhere: trainmaster doctor -n elsewhere")),
        (deployment(f"{GO}:v2.3.0", labels={"app": "x"}),
         (f"fail: the Go manager ({GO}:v2.3.0) is installed as kubeflow/{NAME}; it selects its pods by other "
          "labels, which are immutable, so that applying ours is refused; kubectl delete deployment "
          f"{NAME} -n kubeflow before; running jobs do not notice")),
        (deployment(f"{GO}:v2.3.0", name="release-trainer"),
         (f"warn: the Go manager ({GO}:v2.3.0) is installed as kubeflow/release-trainer, under another name than "
          f"{NAME}; both would run side by side, and one of them lead; kubectl delete deployment release-trainer "
          "-n kubeflow when ours is there")),
    ],
)  # fmt: skip
def test_managers_that_are_installed_are_told(installed: JsonObject, finding: str) -> None:
    target = Target(NAMESPACE, Configuration(), (), datetime.now(UTC))
    facts: Any = SimpleNamespace(managers=Fact([installed]), target=target)
    (found,) = check_managers(facts)
    assert ": ".join((found.status, "; ".join(filter(None, found[1:])))) == finding


async def test_managers_are_found_by_name_and_by_labels(stack: Stack) -> None:
    """Charts call them by their release."""
    helm = {"meta.helm.sh/release-name": "mine"}
    by_labels = deployment(f"{GO}:v2.3.0", name="mine-kubeflow-trainer-controller-manager")
    by_labels["metadata"] |= {"labels": {**SELECTOR, "app.kubernetes.io/name": "kubeflow-trainer"}, "annotations": helm}
    by_name = deployment("other:1", "elsewhere", replicas=0)
    del by_name["metadata"]["labels"]
    other = deployment("other:2", name="other")
    other["metadata"]["labels"] = {"app.kubernetes.io/name": "other"}
    for each in (by_labels, by_name, other):
        await stack.client.create(DEPLOYMENTS, each)
    assert sorted((await findings(stack))["managers"]) == [
        (
            f"ok: the Go manager ({GO}:v2.3.0) is installed as kubeflow/mine-kubeflow-trainer-controller-manager, "
            "by Helm; `helm upgrade mine` with our chart takes its place"
        ),
        (
            f"warn: a manager (other:1) is installed as elsewhere/{NAME}, with no replicas; delete it, or install into "
            "elsewhere: trainmaster doctor -n elsewhere"
        ),
    ]


async def lease(stack: Stack, namespace: str, *, age: float, holder: str = "go_1") -> None:
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    await stack.client.create(
        LEASES, {"metadata": {"name": "trainer.kubeflow.org", "namespace": namespace}, "spec": spec}
    )


async def test_leases_say_who_leads(stack: Stack) -> None:
    # A manager that leads elsewhere is told.
    found = await findings(stack)
    assert (found["managers"], found["leases"]) == (["ok: no manager of Trainer is installed"], ["ok: nobody leads"])
    await lease(stack, "elsewhere", age=3)
    assert await only_finding(stack, "leases") == (
        "fail: the lease elsewhere/trainer.kubeflow.org is held by go_1: another manager leads in that namespace, "
        "and both would act; install into elsewhere (trainmaster doctor -n elsewhere), or stop that manager first"
    )
    assert await only_finding(stack, "leases", watchNamespaces=["team"]) == (
        "warn: the lease elsewhere/trainer.kubeflow.org is held by go_1: another manager leads there; see that it "
        "serves other namespaces"
    )
    # The lease of the manager that is replaced is waited for.
    await stack.client.delete(LEASES, "elsewhere", "trainer.kubeflow.org")
    await lease(stack, NAMESPACE, age=3)
    await lease(stack, "elsewhere", age=3600)
    assert (await findings(stack))["leases"] == [
        "ok: the lease elsewhere/trainer.kubeflow.org is left over from a manager that does not run any more",
        "ok: the lease kubeflow/trainer.kubeflow.org is held by go_1; ours waits for it",
    ]
    told = (await findings(stack, leaderElection={"leaderElect": False}))["leases"]
    assert told[1] == (
        "fail: the lease kubeflow/trainer.kubeflow.org is held by go_1, and this configuration does not elect a "
        "leader: both would act; set leaderElection.leaderElect to true"
    )


def webhook(name: str, **rule: Any) -> JsonObject:
    everything = {key: ["*"] for key in ("apiVersions", "operations", "resources")}
    client = {"service": {"namespace": "elsewhere", "name": "s"}}
    known = {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {
        "name": name,
        "clientConfig": client,
        "rules": [everything | {"apiGroups": ["trainer.kubeflow.org"]} | rule],
        **known,
    }


async def test_webhooks_on_our_kinds_are_told(stack: Stack) -> None:
    assert await only_finding(stack, "webhooks") == "ok: none of our webhooks is registered yet"
    others = {
        "policy": webhook("a.b.c", apiGroups=["*"]),
        "pods": webhook("a.b.c", apiGroups=[""]),
        "status": webhook("a.b.c", resources=["trainjobs/status"]),
    }
    for name, each in others.items():
        await stack.client.create(VALIDATING, {"metadata": {"name": name}, "webhooks": [each]})
    ours = webhook("validator.trainjob.trainer.kubeflow.org")
    await stack.client.create(MUTATING, {"metadata": {"name": "defaulter.trainer.kubeflow.org"}, "webhooks": [ours]})
    assert (await findings(stack))["webhooks"] == [
        (
            "warn: defaulter.trainer.kubeflow.org leads to the Service elsewhere/s, not to the Service kubeflow/"
            f"{NAME}; applying our manifests changes that; whoever made it may change it back"
        ),
        (
            "warn: webhooks of others see our kinds, too: policy (Fail); see that they allow what users write, and the "
            "manager; one with Fail that does not answer stops writes"
        ),
    ]


async def test_the_configuration_that_is_there_is_checked(stack: Stack) -> None:
    where = "the ConfigMap kubeflow/kubeflow-trainer-config"
    head = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
    metadata = {"name": "kubeflow-trainer-config", "namespace": NAMESPACE}
    await stack.client.create(CONFIGMAPS, {"metadata": metadata})
    for data, finding in (
        ({KEY: head}, f"ok: the configuration in {where} can be used"),
        ({KEY: f"{head}webhook: {{port: 0}}\n"},
         (f"fail: the configuration in {where} cannot be used: webhook.port: must be greater than or equal to 1, "
          "got 0; correct it")),
        ({KEY: f"{head}webhook: {{port: 8081}}\n"},
         (f"fail: the configuration in {where} cannot be used: health.healthProbeBindAddress: port 8081 is that "
          "of webhook.port; give each server one of its own; correct it")),
        ({KEY: f"{head}statusServer: {{qps: 6}}\n"},
         (f"warn: in {where}: statusServer.qps: no effect: the feature gate TrainJobStatus is off, so there is "
          "no status server")),
        ({"other": ""}, f"warn: {where} has no key {KEY}; see who made it; our manifests bring their own"),
    ):  # fmt: skip
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        await stack.client.update(CONFIGMAPS, config_map)
        assert (await findings(stack))["configuration"] == [finding]
