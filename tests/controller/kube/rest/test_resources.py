"""Paths of objects; what to do about a kind of Kubernetes that a cluster does not serve."""

from __future__ import annotations

import pytest

from trainmaster.controller.kube.rest.errors import InvalidName
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, LEASES, PODS, Resource


@pytest.mark.parametrize(
    "resource",
    [PODS, EVENTS, LEASES, Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)],
)
def test_a_kind_of_kubernetes_itself_takes_a_cluster_that_serves_it(resource: Resource) -> None:
    """Nobody can install a definition of it."""
    assert resource.remedy == "use a cluster that does"


@pytest.mark.parametrize("name", ["a/b", "..", ".", "../secrets/b", "a%2Fb", "/"])
@pytest.mark.parametrize("where", ["namespace", "name"])
def test_a_name_that_leads_to_another_path_is_refused(name: str, where: str) -> None:
    segments = {"namespace": "ns", "name": "a"} | {where: name}
    with pytest.raises(InvalidName, match=r'422 Invalid: invalid (namespace|ConfigMap name) ".*": may not'):
        CONFIGMAPS.path(**segments)


@pytest.mark.parametrize(
    ("name", "written"),
    [("a?watch=1", "a%3Fwatch%3D1"), ("a#b", "a%23b"), ("ä b", "%C3%A4%20b"), ("a..b:c", "a..b%3Ac")],
)
def test_what_a_path_cannot_hold_is_escaped(name: str, written: str) -> None:
    assert CONFIGMAPS.path("ns", name) == f"/api/v1/namespaces/ns/configmaps/{written}"
    assert PODS.path("ns", name, "log") == f"/api/v1/namespaces/ns/pods/{written}/log"
