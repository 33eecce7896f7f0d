"""Resources: names, amounts, requests and limits of containers and of pods, and claims of devices."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import container, wrong, wrong_in_container

from trainmaster.devcluster.apiserver.registry.core.validation.containers.resources import requested_by_containers


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}, []),
        ({"requests": {"cpu": -1}}, ["requests[cpu] Invalid"]),
        (
            {"requests": {"requests.nvidia.com/gpu": 1}},
            ["limits Required", "requests[requests.nvidia.com/gpu] Invalid"],
        ),
        ({"requests": {"requests.cpu": 1}}, ["requests[requests.cpu] Invalid"]),
        ({"requests": {"services": "0.5"}}, ["requests[services] Invalid"]),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, [" Forbidden"]),
        ({"claims": [{}]}, ["claims[0] Required"]),
    ],
)
def test_what_a_container_asks_for(resources: Any, found: list[str]) -> None:
    expected = sorted(f"resources.{each}" if not each.startswith(" ") else f"resources{each}" for each in found)
    assert wrong_in_container(resources=resources) == expected


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}, {"name": "b"}], []),
        ([{"name": "a", "request": "x"}, {"name": "a", "request": "x"}], ["claims[1] Duplicate"]),
        ([{"name": "a", "request": "x"}, {"name": "a"}], ["claims[1] Duplicate"]),
        ([{"name": "a"}, {"name": "a", "request": "x"}], ["claims[1] Duplicate"]),
        ([{"name": "a", "request": "X"}], ["claims[0].request Invalid"]),
    ],
)
def test_a_claim_is_used_as_a_whole_or_by_its_requests(claims: Any, found: list[str]) -> None:
    pod = {"resourceClaims": [{"name": name, "resourceClaimName": "x"} for name in "ab"]}
    assert wrong_in_container(pod, resources={"claims": claims}) == [f"resources.{each}" for each in found]


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        ({"resourceClaimName": "x"}, [".name Required"]),
        ({"name": "A", "resourceClaimName": "x"}, [".name Invalid"]),
        ({"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}, [" Invalid"]),
        ({"name": "a", "resourceClaimTemplateName": "Y"}, [".resourceClaimTemplateName Invalid"]),
        ({"name": "a", "resourceClaimName": ""}, [".resourceClaimName Invalid"]),
    ],
)
def test_a_claim_of_a_pod_has_a_name_and_one_source(claim: Any, found: list[str]) -> None:
    assert wrong(resourceClaims=[claim]) == [f"resourceClaims[0]{each}" for each in found]


@pytest.mark.parametrize(
    ("of_pod", "of_container", "found"),
    [
        ({"limits": {"cpu": 2}}, {"requests": {"cpu": 1}}, []),
        ({"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}}, {"limits": {"cpu": 2}}, []),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": 2}, "requests": {"cpu": 1}}, ["containers[0][cpu].limits Invalid"]),
        ({"limits": {"ephemeral-storage": 1}}, {}, ["limits[ephemeral-storage] NotSupported"]),
        ({"limits": {"memory": -1}}, {}, ["limits[memory] Invalid", "requests[memory] Invalid"]),
    ],
)
def test_what_a_pod_asks_for_as_a_whole(of_pod: Any, of_container: Any, found: list[str]) -> None:
    assert wrong(resources=of_pod, containers=[container(resources=of_container)]) == [
        f"resources.{each}" for each in found
    ]


def test_containers_before_the_others_count_by_the_greatest_and_sidecars_always() -> None:
    def asking(cpu: int, **fields: Any) -> Any:
        return container(resources={"requests": {"cpu": cpu}}, **fields)

    spec = {
        "containers": [asking(1), asking(2)],
        "initContainers": [asking(7), asking(1, restartPolicy="Always"), asking(5)],
    }
    assert str(requested_by_containers(spec)["cpu"]) == "7"
    spec["initContainers"].append(asking(8))
    assert str(requested_by_containers(spec)["cpu"]) == "9"
