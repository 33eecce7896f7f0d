"""What to do about a kind of a CustomResourceDefinition that a cluster does not serve."""

from __future__ import annotations

import pytest

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS, watched_resource
from trainmaster.runtime.listers import Watch


def gang(group: str) -> Resource:
    return watched_resource(Watch(f"{group}/v1", "PodGroup", plural="podgroups"))


@pytest.mark.parametrize(
    ("resource", "origin"),
    [
        (TRAINJOBS, ": trainmaster crds | kubectl apply --server-side -f -"),
        (JOBSETS, ": it comes with JobSet, https://jobset.sigs.k8s.io"),
        (gang("scheduling.x-k8s.io"), ": it comes with the scheduler plugins, https://scheduler-plugins.sigs.k8s.io"),
        (gang("scheduling.volcano.sh"), ": it comes with Volcano, https://volcano.sh"),
        (gang("team.example.com"), ", which comes with what that kind belongs to"),
    ],
)
def test_a_kind_of_a_definition_is_told_with_where_that_is(resource: Resource, origin: str) -> None:
    assert resource.remedy == f"install the CustomResourceDefinition {resource.name}{origin}"
