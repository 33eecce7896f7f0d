"""EndpointSlices and Endpoints at the API."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, ENDPOINTS
from trainmaster.devcluster.testing.stepper import Stepper
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def api(cluster: Stepper) -> Api:
    return cluster.api


async def made(api: Api, **fields: Any) -> JsonObject:
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "s"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        **fields,
    }
    return await api.create(ENDPOINT_SLICES, body, namespace="default")


async def test_ports_get_their_defaults_and_changes_are_counted(api: Api) -> None:
    piece = await made(api, ports=[{"port": 80}])
    assert piece["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    assert piece["metadata"]["generation"] == 1
    piece = await api.update(ENDPOINT_SLICES, {**piece, "endpoints": []})
    assert piece["metadata"]["generation"] == 2
    with pytest.raises(StatusError, match='addressType: Invalid value: "IPv6": field is immutable'):
        await api.update(ENDPOINT_SLICES, {**piece, "addressType": "IPv6"})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"addressType": "Morse"}, 'addressType: Unsupported value: "Morse"'),
        ({"endpoints": [{"addresses": []}]}, "endpoints[0].addresses: Required value"),
        ({"endpoints": [{"addresses": ["here"]}]}, 'endpoints[0].addresses[0]: Invalid value: "here"'),
        ({"ports": [{"port": 0}]}, "ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ({"ports": [{"port": 1}, {"port": 2}]}, 'ports[1].name: Duplicate value: ""'),
        ({"ports": [{"port": 1, "protocol": "ICMP"}]}, 'ports[0].protocol: Unsupported value: "ICMP"'),
    ],
)
async def test_what_makes_no_sense_is_refused(api: Api, fields: JsonObject, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        await made(api, **fields)
    assert caught.value.code == 422
    assert problem in caught.value.message


async def test_endpoints_need_addresses_and_ports_that_exist(api: Api) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "e"},
        "subsets": [{"ports": [{"port": 0}]}, {"addresses": [{"ip": "x"}]}],
    }
    with pytest.raises(StatusError) as caught:
        await api.create(ENDPOINTS, body, namespace="default")
    for problem in (
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
        "subsets[0].ports[0].port: Invalid value: 0",
        'subsets[1].addresses[0].ip: Invalid value: "x"',
    ):
        assert problem in caught.value.message
