"""What to do about a kind of Kubernetes that a cluster does not serve."""

from __future__ import annotations

import pytest

from trainmaster.controller.kube.rest.resources import EVENTS, LEASES, PODS, Resource


@pytest.mark.parametrize(
    "resource",
    [PODS, EVENTS, LEASES, Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)],
)
def test_a_kind_of_kubernetes_itself_takes_a_cluster_that_serves_it(resource: Resource) -> None:
    """Nobody can install a definition of it."""
    assert resource.remedy == "use a cluster that does"
