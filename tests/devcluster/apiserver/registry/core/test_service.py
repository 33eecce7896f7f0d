"""Services: the rules of a real server, addresses and node ports that no two of them share."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject, copy_tree

SERVICES = GroupResource("", "services")


async def create(api: Api, name: str = "s", *, dry_run: bool = False, **spec: Any) -> JsonObject:
    spec.setdefault("ports", [{"port": 80}])
    service = {"metadata": {"name": name}, "spec": spec}
    return await api.create(SERVICES, service, namespace="default", options=WriteOptions(dry_run=dry_run))


@pytest.mark.parametrize(
    ("spec", "mistakes"),
    [
        ({"ports": []}, {("spec.ports", "Required")}),
        ({"type": "Odd"}, {("spec.type", "NotSupported")}),
        (
            {"ports": [{"port": 1}, {"port": 2}]},
            {("spec.ports[0].name", "Required"), ("spec.ports[1].name", "Required")},
        ),
        ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, {("spec.ports[1].name", "Duplicate")}),
        ({"type": "LoadBalancer", "ports": [{"port": 10250}]}, {("spec.ports[0]", "Invalid")}),
        ({"type": "ExternalName", "externalName": "-"}, {("spec.externalName", "Invalid")}),
        ({"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.8"]}, {("spec.clusterIPs", "Invalid")}),
        ({"clusterIPs": ["10.0.0.8"]}, {("spec.clusterIPs", "Invalid")}),
        ({"ipFamilies": ["IPv6"]}, {("spec.ipFamilies[0]", "Invalid")}),
        ({"ipFamilies": ["IPv4", "IPv4"]}, {("spec.ipFamilies[1]", "Duplicate"), ("spec.ipFamilyPolicy", "Invalid")}),
        ({"ipFamilyPolicy": "Both"}, {("spec.ipFamilyPolicy", "NotSupported")}),
        ({"externalIPs": ["127.0.0.1"]}, {("spec.externalIPs[0]", "Invalid")}),
        ({"externalTrafficPolicy": "Local"}, {("spec.externalTrafficPolicy", "Invalid")}),
        ({"type": "NodePort", "externalTrafficPolicy": "Odd"}, {("spec.externalTrafficPolicy", "NotSupported")}),
        ({"healthCheckNodePort": 30000}, {("spec.healthCheckNodePort", "Invalid")}),
        ({"loadBalancerClass": "a/b"}, {("spec.loadBalancerClass", "Forbidden")}),
        ({"allocateLoadBalancerNodePorts": True}, {("spec.allocateLoadBalancerNodePorts", "Forbidden")}),
        ({"loadBalancerSourceRanges": ["10.0.0.0/8"]}, {("spec.LoadBalancerSourceRanges", "Forbidden")}),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10"]},
            {("spec.LoadBalancerSourceRanges[0]", "Invalid")},
        ),
        ({"trafficDistribution": "Far"}, {("spec.trafficDistribution", "NotSupported")}),
        ({"selector": {"a b": "c"}}, {("spec.selector", "Invalid")}),
    ],
)
async def test_what_a_real_server_refuses_is_refused(
    api: Api, spec: JsonObject, mistakes: set[tuple[str, str]]
) -> None:
    with pytest.raises(StatusError) as caught:
        await create(api, **spec)
    assert mistakes_of(caught.value) == mistakes


async def test_no_two_services_get_the_same_address_or_port(api: Api) -> None:
    first, second = [(await create(api, name, type="NodePort"))["spec"] for name in "ab"]
    assert first["clusterIP"] != second["clusterIP"]
    ports = {spec["ports"][0]["nodePort"] for spec in (first, second)}
    assert len(ports) == 2
    assert ports <= set(range(30_000, 32_768))
    with pytest.raises(StatusError, match="does not match the current range"):
        await create(api, "c", clusterIP="192.168.001.001")  # as older clients write it


async def test_an_update_keeps_what_was_given_out(api: Api) -> None:
    made = await create(api, type="NodePort")
    bare = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}, {"name": "x", "port": 81}]}}
    bare["spec"]["ports"][0]["name"] = "y"  # type: ignore[index]
    changed = await api.update(SERVICES, bare, namespace="default")
    assert changed["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    first, second = (port["nodePort"] for port in changed["spec"]["ports"])
    assert first == made["spec"]["ports"][0]["nodePort"]
    assert second not in (None, first)
    moved = copy_tree(changed)
    moved["spec"] |= {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}
    with pytest.raises(StatusError) as caught:
        await api.update(SERVICES, moved)
    assert mistakes_of(caught.value) == {("spec.clusterIPs[0]", "Invalid")}


async def test_another_type_drops_what_it_does_not_have(api: Api) -> None:
    made = copy_tree(await create(api, type="LoadBalancer", externalTrafficPolicy="Local"))
    made["spec"]["type"] = "ClusterIP"
    spec = (await api.update(SERVICES, made))["spec"]
    assert not spec.keys() & {"externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"}
    assert "nodePort" not in spec["ports"][0]
