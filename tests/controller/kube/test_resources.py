"""What to do about a kind that a cluster does not serve."""

from __future__ import annotations

import pytest

from trainmaster.controller.kube.rest.resources import EVENTS, JOBSETS, LEASES, PODS, TRAINJOBS, Resource


def gang(group: str) -> Resource:
    return Resource(group, "v1", "PodGroup", "podgroups", namespaced=True)


@pytest.mark.parametrize(
    ("resource", "origin"),
    [
        (TRAINJOBS, ": kubectl apply --server-side -f deploy/crds, in a checkout of Trainmaster"),
        (JOBSETS, ": it comes with JobSet, https://jobset.sigs.k8s.io"),
        (gang("scheduling.x-k8s.io"), ": it comes with the scheduler plugins, https://scheduler-plugins.sigs.k8s.io"),
        (gang("scheduling.volcano.sh"), ": it comes with Volcano, https://volcano.sh"),
        (gang("team.example.com"), ", which comes with what that kind belongs to"),
    ],
)
def test_a_kind_of_a_definition_is_told_with_where_that_is(resource: Resource, origin: str) -> None:
    assert resource.remedy == f"install the CustomResourceDefinition {resource.name}{origin}"


@pytest.mark.parametrize(
    "resource",
    [PODS, EVENTS, LEASES, Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)],
)
def test_a_kind_of_kubernetes_itself_takes_a_cluster_that_serves_it(resource: Resource) -> None:
    """Nobody can install a definition of it."""
    assert resource.remedy == "use a cluster that does"
