"""The cluster itself, and what others have installed in it."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from support.explained import findings, only_finding
from support.plugins import indexed_job
from support.resolutions import FRAMEWORK
from support.stack import Stack

from trainmaster.controller.cli.doctor.cluster import check_jobset, check_version
from trainmaster.controller.cli.doctor.facts import JOBSETS, Fact, Finding
from trainmaster.controller.cli.probes import DEFINITIONS, DEPLOYMENTS
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.manager import rights
from trainmaster.runtime.framework import Framework, load_plugins


def judged(found: Iterable[Finding]) -> str:
    (finding,) = found
    return f"{finding.status}: {finding.message}; {finding.what_next}"


def test_versions() -> None:
    newer = (
        "warn: Kubernetes v1.38.0 is newer than 1.37, the newest one that is known here; look for a newer Trainmaster; "
        "fields of pods that are new in it are not merged by name"
    )
    for version, finding in {
        "v1.30.2": "fail: Kubernetes v1.30.2 is older than 1.31; use Kubernetes 1.31 or later",
        "v1.31.0": "ok: Kubernetes v1.31.0; ",
        "v1.37.1+k3s1": "ok: Kubernetes v1.37.1+k3s1; ",
        "v1.38.0": newer,
        "strange": "warn: strange is no version that is known here; use Kubernetes 1.31 to 1.37",
    }.items():
        facts: Any = SimpleNamespace(version=Fact(version))
        assert judged(check_version(facts)) == finding


async def test_jobset_and_the_namespace(stack: Stack) -> None:
    # The namespace.
    assert await only_finding(stack, "namespace", namespace="nowhere") == (
        "warn: there is no namespace nowhere; kubectl create namespace nowhere, unless your manifests bring it"
    )
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await stack.client.create(NAMESPACES, {"metadata": {"name": "strict", "labels": labels}})
    assert await only_finding(stack, "namespace", namespace="strict") == (
        "ok: the namespace strict is there; its pod security level is restricted, which the manager's pod fits"
    )
    # Jobset and its controller.
    known = "JobSet v1alpha2 is served, but no Deployment of its controller is known by its usual name"
    assert await only_finding(stack, "jobset") == (
        f"warn: {known}; see that its controller runs; otherwise JobSets get no pods"
    )
    await stack.client.create(NAMESPACES, {"metadata": {"name": "jobset-system"}})
    labels = {"app": "jobset"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "m", "image": "jobset:v0.12.0"}]}}
    deployment = {
        "metadata": {"name": "jobset-controller-manager", "namespace": "jobset-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
    await stack.client.create(DEPLOYMENTS, deployment)
    assert await only_finding(stack, "jobset") == (
        "fail: JobSet's controller jobset-system/jobset-controller-manager (jobset:v0.12.0) has no available "
        "replica; see why its pods do not run"
    )
    await stack.client.delete(DEFINITIONS, None, JOBSETS)
    found = await findings(stack)
    assert found["jobset"] == [
        (
            "fail: JobSet is not installed, and TrainJobs become JobSets; install JobSet, "
            "https://jobset.sigs.k8s.io, before any TrainJob runs"
        )
    ]


def test_jobset_of_some_version() -> None:
    rules = list(rights.trainjob_rules(FRAMEWORK.watches()))
    for version, finding in (
        ("v1alpha1", "fail: JobSet is served in v1alpha1, and v1alpha2 is needed; install another JobSet release"),
        ("v1alpha2", "ok: JobSet v1alpha2, its controller jobset-system/jobset runs (jobset:v0.12.0); "),
    ):
        definition = {"spec": {"versions": [{"name": version, "served": True}]}}
        controller = {
            "metadata": {"namespace": "jobset-system", "name": "jobset"},
            "spec": {"template": {"spec": {"containers": [{"image": "jobset:v0.12.0"}]}}},
            "status": {"availableReplicas": 1},
        }
        facts: Any = SimpleNamespace(
            definitions={JOBSETS: Fact(definition)},
            jobset_controllers=Fact([controller]),
            target=SimpleNamespace(rules=rules),
        )
        assert judged(check_jobset(facts)) == finding


def test_jobset_is_not_missed_where_no_plugin_builds_jobsets() -> None:
    """`plugins.disabled: [jobset]`, beside a plugin for another workload."""
    watches = Framework([*load_plugins(disabled=["jobset"]), indexed_job()]).watches()
    target = SimpleNamespace(rules=list(rights.trainjob_rules(watches)))
    facts: Any = SimpleNamespace(definitions={JOBSETS: Fact(None)}, target=target)
    [found] = check_jobset(facts)
    needless = "JobSet is not needed: no plugin of the configuration builds JobSets"
    assert (found.status, found.message) == ("ok", needless)


async def test_schedulers(stack: Stack) -> None:
    assert await only_finding(stack, "schedulers") == "ok: gang scheduling: coscheduling (scheduler plugins), Volcano"
    for group in ("scheduling.x-k8s.io", "scheduling.volcano.sh"):
        await stack.client.delete(DEFINITIONS, None, f"podgroups.{group}")
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "workloads", "kind": "Workload"}
    definition = {"group": "kueue.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]}
    await stack.client.create(DEFINITIONS, {"metadata": {"name": "workloads.kueue.x-k8s.io"}, "spec": definition})
    assert (await findings(stack))["schedulers"] == [
        "ok: gang scheduling: no PodGroups; runtimes cannot have a podGroupPolicy",
        "ok: Kueue is there; it admits TrainJobs if its configuration names trainer.kubeflow.org/trainjob",
    ]
