"""NetworkPolicies, PodDisruptionBudgets and EndpointSlices at the API."""

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, GroupResource
from trainmaster.runtime.jsontree import JsonObject

POD_DISRUPTION_BUDGETS = GroupResource("policy", "poddisruptionbudgets")
POLICIES = GroupResource("networking.k8s.io", "networkpolicies")

BODIES: dict[GroupResource, JsonObject] = {
    POLICIES: {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}},
    POD_DISRUPTION_BUDGETS: {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {}},
    ENDPOINT_SLICES: {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    },
}


async def made(api: Api, resource: GroupResource, **fields: Any) -> JsonObject:
    """Create an object with some fields of its spec, or of its own where it has no spec."""
    body = {**BODIES[resource], "metadata": {"name": "a"}}
    body |= {"spec": {**body["spec"], **fields}} if "spec" in body else fields
    return await api.create(resource, body, namespace="default")


async def test_the_types_of_a_policy_follow_from_its_rules(api: Api) -> None:
    policy = await made(api, POLICIES, egress=[{"ports": [{"port": 53}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["egress"][0]["ports"] == [{"port": 53, "protocol": "TCP"}]
    assert policy["metadata"]["generation"] == 1


async def test_a_new_budget_allows_nothing(api: Api) -> None:
    assert (await made(api, POD_DISRUPTION_BUDGETS, maxUnavailable=1))["status"]["disruptionsAllowed"] == 0


async def test_ports_get_their_defaults_and_changes_are_counted(api: Api) -> None:
    piece = await made(api, ENDPOINT_SLICES, ports=[{"port": 80}])
    assert piece["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    assert piece["metadata"]["generation"] == 1
    piece = await api.update(ENDPOINT_SLICES, {**piece, "endpoints": []})
    assert piece["metadata"]["generation"] == 2
    with pytest.raises(StatusError, match='addressType: Invalid value: "IPv6": field is immutable'):
        await api.update(ENDPOINT_SLICES, {**piece, "addressType": "IPv6"})
