"""The Helm chart makes the same objects as kustomize does."""

from __future__ import annotations

import copy
from operator import itemgetter
from typing import Any

import pytest
import yaml
from support.charts import NEEDS_HELM, installed_runtimes, template
from support.manifests import NEEDS_KUBECTL, one, overlay

from trainmaster.runtime.jsontree import JsonObject

pytestmark = NEEDS_HELM

HELMS_LABELS = {
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
}
HELMS_ANNOTATIONS = {"helm.sh/resource-policy", "checksum/config"}
OURS = {"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/component"}

SAME: dict[str, JsonObject] = {
    "standalone": {},
    "ha": {"ha": {"enabled": True}},
    "cert-manager": {"certManager": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
    "network-policy": {"networkPolicy": {"enabled": True}},
    "history": {"manager": {"config": {"history": {"enabled": True}}}},
    "namespaced": {"manager": {"config": {"watchNamespaces": ["team-a", "team-b"]}}},
    "kubeflow-platform": {
        "userRoles": {"enabled": True},
        "manager": {
            "podAnnotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "8443,9443,10443"},
        },
    },
}
"""Overlays, and the values with which the chart makes the same."""


def without_helm(tree: Any) -> Any:
    """Return an object as it is without what Helm's conventions add, in itself and in selectors and templates."""
    if isinstance(tree, list):
        return [without_helm(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    kept = {key: without_helm(each) for key, each in tree.items() if key not in HELMS_LABELS | HELMS_ANNOTATIONS}
    if kept.get("app.kubernetes.io/name") == "kubeflow-trainer":
        kept["app.kubernetes.io/name"] = "trainer"  # its name in the selectors of the original's chart
    if kept.get("annotations") == {}:
        del kept["annotations"]
    return kept


def normalised(obj: JsonObject, labels: set[str]) -> JsonObject:
    """Return an object of either for comparison: only those of our labels that `labels` has."""
    made: JsonObject = without_helm(copy.deepcopy(obj))
    mine = made["metadata"].pop("labels", {})
    made["metadata"]["labels"] = {key: value for key, value in mine.items() if key in labels or key not in OURS}
    if obj["kind"] == "Deployment":  # their order means nothing
        pod = made["spec"]["template"]["spec"]
        for mounting in (pod["volumes"], pod["containers"][0]["volumeMounts"]):
            mounting.sort(key=itemgetter("name"))
    if obj["kind"] == "ConfigMap" and "controller_manager_config.yaml" in obj["data"]:
        made["data"] = yaml.safe_load(obj["data"]["controller_manager_config.yaml"])
    return made


@NEEDS_KUBECTL[0]
@NEEDS_KUBECTL[1]
@pytest.mark.parametrize("name", SAME)
def test_the_chart_and_kustomize_make_the_same_objects(name: str) -> None:
    theirs, ours = overlay(name), template(**SAME[name])
    theirs.pop(("Namespace", "", "kubeflow"), None)  # helm has --create-namespace
    assert ours.keys() == theirs.keys()
    for key, obj in theirs.items():
        labels = set(obj["metadata"].get("labels", {}))
        assert normalised(ours[key], labels) == normalised(obj, labels)


@NEEDS_KUBECTL[0]
@NEEDS_KUBECTL[1]
def test_the_chart_and_kustomize_install_the_same_runtimes() -> None:
    assert installed_runtimes(template(runtimes={"defaultEnabled": True})) == overlay("runtimes")
    cache = {"enabled": True, "runtimes": {"torchDistributedWithCache": {"enabled": True}}}
    with_cache = template(runtimes={"defaultEnabled": True}, dataCache=cache)
    theirs = overlay("data-cache")
    role = theirs.pop(("ClusterRole", "", "kubeflow-trainer-cache-initializer"))
    assert installed_runtimes(with_cache) == theirs
    assert one(with_cache, "ClusterRole", "kubeflow-trainer-cache-initializer")["rules"] == role["rules"]
