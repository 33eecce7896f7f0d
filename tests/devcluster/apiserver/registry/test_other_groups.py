"""NetworkPolicies, PodDisruptionBudgets, EndpointSlices and Endpoints at the API."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import assert_refused, mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, ENDPOINTS, POD_DISRUPTION_BUDGETS, GroupResource
from trainmaster.runtime.jsontree import JsonObject

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


@pytest.mark.parametrize(
    ("resource", "fields", "problem"),
    [
        (POLICIES, {"policyTypes": ["Both"]}, 'spec.policyTypes[0]: Unsupported value: "Both"'),
        (POLICIES, {"ingress": [{"from": [{}]}]}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
        (
            POLICIES,
            {"ingress": [{"from": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
            "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
        ),
        (POLICIES, {"egress": [{"to": [{"ipBlock": {"cidr": "ten"}}]}]}, "must be a valid CIDR value"),
        (
            POLICIES,
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}]}]},
            'spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/9": must be a strict subset of `cidr`',
        ),
        (
            POLICIES,
            {"ingress": [{"ports": [{"port": 5, "endPort": 4}]}]},
            "spec.ingress[0].ports[0].endPort: Invalid value: 4: must be greater than or equal to `port`",
        ),
        (
            POLICIES,
            {"ingress": [{"ports": [{"endPort": 4}]}]},
            "spec.ingress[0].ports[0].endPort: Required value: may not be specified when `port` is not specified",
        ),
        (POLICIES, {"ingress": [{"ports": [{"port": 70000}]}]}, "must be between 1 and 65535, inclusive"),
        (
            POD_DISRUPTION_BUDGETS,
            {"minAvailable": 1, "maxUnavailable": 1},
            "minAvailable and maxUnavailable cannot be both set",
        ),
        (
            POD_DISRUPTION_BUDGETS,
            {"minAvailable": "101%"},
            'spec.minAvailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            POD_DISRUPTION_BUDGETS,
            {"maxUnavailable": -1},
            "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            POD_DISRUPTION_BUDGETS,
            {"unhealthyPodEvictionPolicy": "Never"},
            'supported values: "AlwaysAllow", "IfHealthyBudget"',
        ),
        (
            POD_DISRUPTION_BUDGETS,
            {"selector": {"matchLabels": {"a b": "c"}}},
            "spec.selector.matchLabels: Invalid value",
        ),
        (ENDPOINT_SLICES, {"addressType": "Morse"}, 'addressType: Unsupported value: "Morse"'),
        (ENDPOINT_SLICES, {"endpoints": [{"addresses": []}]}, "endpoints[0].addresses: Required value"),
        (ENDPOINT_SLICES, {"endpoints": [{"addresses": ["here"]}]}, 'endpoints[0].addresses[0]: Invalid value: "here"'),
        (
            ENDPOINT_SLICES,
            {"ports": [{"port": 0}]},
            "ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (ENDPOINT_SLICES, {"ports": [{"port": 1}, {"port": 2}]}, 'ports[1].name: Duplicate value: ""'),
        (ENDPOINT_SLICES, {"ports": [{"port": 1, "protocol": "ICMP"}]}, 'ports[0].protocol: Unsupported value: "ICMP"'),
    ],
)
async def test_what_makes_no_sense_is_refused(
    api: Api, resource: GroupResource, fields: JsonObject, problem: str
) -> None:
    await assert_refused(made(api, resource, **fields), 422, problem)


async def test_endpoints_need_addresses_and_ports_that_exist(api: Api) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "e"},
        "subsets": [{"ports": [{"port": 0}]}, {"addresses": [{"ip": "x"}]}],
    }
    await assert_refused(
        api.create(ENDPOINTS, body, namespace="default"),
        422,
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
        "subsets[0].ports[0].port: Invalid value: 0",
        'subsets[1].addresses[0].ip: Invalid value: "x"',
    )


CLAIMS = GroupResource("resource.k8s.io", "resourceclaims")
TEMPLATES = GroupResource("resource.k8s.io", "resourceclaimtemplates")
GPU = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
PATH = "spec.devices"


def claim(**devices: Any) -> JsonObject:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [GPU], **devices}}}


def exactly(**fields: Any) -> JsonObject:
    return claim(requests=[{"name": "gpu", "exactly": {"deviceClassName": "gpu", **fields}}])


@pytest.mark.parametrize(
    ("obj", "mistakes"),
    [
        (exactly(count=-1), {(f"{PATH}.requests[0].exactly.count", "Invalid")}),
        (exactly(allocationMode="All", count=2), {(f"{PATH}.requests[0].exactly.count", "Invalid")}),
        (exactly(deviceClassName=""), {(f"{PATH}.requests[0].exactly.deviceClassName", "Required")}),
        (claim(requests=[{"name": "a"}]), {(f"{PATH}.requests[0]", "Required")}),
        (
            claim(requests=[{"name": "a", "firstAvailable": [{"name": "B", "deviceClassName": "x"}]}]),
            {(f"{PATH}.requests[0].firstAvailable[0].name", "Invalid")},
        ),
        (claim(constraints=[{"requests": ["gpu"]}]), {(f"{PATH}.constraints[0].matchAttribute", "Required")}),
        (claim(constraints=[{"matchAttribute": "a"}]), {(f"{PATH}.constraints[0].matchAttribute", "Invalid")}),
        (
            claim(constraints=[{"matchAttribute": "a.b/c", "requests": ["gpu/x"]}]),
            {(f"{PATH}.constraints[0].requests[0]", "Invalid")},
        ),
        (claim(config=[{}]), {(f"{PATH}.config[0].opaque", "Required")}),
        (claim(config=[{"opaque": {"driver": "a"}}]), {(f"{PATH}.config[0].opaque.parameters", "Required")}),
    ],
)
async def test_what_a_real_server_refuses_is_refused(api: Api, obj: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    assert await mistakes_of(api.create(CLAIMS, obj, namespace="default")) == mistakes


@pytest.mark.parametrize(
    "obj",
    [
        exactly(allocationMode="All"),
        exactly(selectors=[{"cel": {"expression": "true"}}]),
        claim(requests=[{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "x"}]}]),
        claim(constraints=[{"matchAttribute": "a.b/c"}]),
    ],
)
async def test_a_sound_claim_that_would_wait_for_ever_is_answered_with_501(api: Api, obj: JsonObject) -> None:
    await assert_refused(api.create(CLAIMS, obj, namespace="default"), 501)


async def test_a_count_of_zero_is_the_default(api: Api) -> None:
    made = await api.create(CLAIMS, exactly(count=0), namespace="default")
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_a_template_gives_its_claims_nothing_but_labels_and_annotations(api: Api) -> None:
    metadata = {"name": "x", "labels": {"a b": "c"}}
    template = {"metadata": {"name": "t"}, "spec": {"metadata": metadata, "spec": claim()["spec"]}}
    expected = {("spec.metadata.name", "Forbidden"), ("spec.metadata.labels", "Invalid")}
    assert await mistakes_of(api.create(TEMPLATES, template, namespace="default")) == expected
