"""Name resolution, host names, and the network of the host."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import container, wrong, wrong_in_template


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"dnsPolicy": "None"}, ["dnsConfig Required"]),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["::1"]}}, []),
        ({"dnsConfig": {"nameservers": ["1.2.3"]}}, ["dnsConfig.nameservers[0] Invalid"]),
        ({"dnsConfig": {"nameservers": ["010.0.0.1"]}}, []),
        ({"dnsConfig": {"nameservers": ["fe80::1%eth0"]}}, ["dnsConfig.nameservers[0] Invalid"]),
        ({"dnsConfig": {"searches": [".", "_tcp.example.com.", "a_b"]}}, []),
        ({"dnsConfig": {"searches": ["A.b", ""]}}, ["dnsConfig.searches[0] Invalid", "dnsConfig.searches[1] Invalid"]),
        ({"dnsConfig": {"searches": ["a" * 64]}}, []),
        (
            {"hostAliases": [{"ip": "nope", "hostnames": ["a", "B"]}]},
            ["hostAliases[0].hostnames[1] Invalid", "hostAliases[0].ip Invalid"],
        ),
        ({"hostname": "a.b"}, ["hostname Invalid"]),
        ({"hostnameOverride": "a.example.com"}, []),
        ({"hostnameOverride": "A"}, ["hostnameOverride Invalid"]),
        ({"hostnameOverride": "a" * 60 + ".b.cd"}, ["hostnameOverride TooLong"]),
    ],
)
def test_names_of_a_pod_and_of_others(fields: Any, found: list[str]) -> None:
    assert wrong(**fields) == found


def test_ports_are_those_of_the_host_in_its_network() -> None:
    one = [container(ports=[{"containerPort": 80}])]
    assert wrong(hostNetwork=True, containers=one) == [], "the server gives the port of the host"
    assert wrong_in_template(hostNetwork=True, containers=one) == [], "and may do so later"
    other = [container(ports=[{"containerPort": 80, "hostPort": 81}])]
    assert wrong_in_template(hostNetwork=True, containers=other) == ["containers[0].ports[0].hostPort Invalid"]
    assert wrong(containers=other) == []
