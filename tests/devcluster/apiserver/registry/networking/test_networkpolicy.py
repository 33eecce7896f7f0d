"""NetworkPolicies at the API: defaults and rules."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.testing.stepper import Stepper
from trainmaster.runtime.jsontree import JsonObject

POLICIES = GroupResource("networking.k8s.io", "networkpolicies")


@pytest.fixture
def api(cluster: Stepper) -> Api:
    return cluster.api


async def made(api: Api, **spec: Any) -> JsonObject:
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "p"},
        "spec": {"podSelector": {}, **spec},
    }
    return await api.create(POLICIES, body, namespace="default")


async def test_the_types_follow_from_the_rules(api: Api) -> None:
    policy = await made(api, egress=[{"ports": [{"port": 53}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["egress"][0]["ports"] == [{"port": 53, "protocol": "TCP"}]
    assert policy["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"policyTypes": ["Both"]}, 'spec.policyTypes[0]: Unsupported value: "Both"'),
        ({"ingress": [{"from": [{}]}]}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
        (
            {"ingress": [{"from": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
            "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
        ),
        ({"egress": [{"to": [{"ipBlock": {"cidr": "ten"}}]}]}, "must be a valid CIDR value"),
        (
            {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}]}]},
            'spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/9": must be a strict subset of `cidr`',
        ),
        (
            {"ingress": [{"ports": [{"port": 5, "endPort": 4}]}]},
            "spec.ingress[0].ports[0].endPort: Invalid value: 4: must be greater than or equal to `port`",
        ),
        (
            {"ingress": [{"ports": [{"endPort": 4}]}]},
            "spec.ingress[0].ports[0].endPort: Required value: may not be specified when `port` is not specified",
        ),
        ({"ingress": [{"ports": [{"port": 70000}]}]}, "must be between 1 and 65535, inclusive"),
    ],
)
async def test_what_makes_no_sense_is_refused(api: Api, spec: JsonObject, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        await made(api, **spec)
    assert caught.value.code == 422
    assert problem in caught.value.message
