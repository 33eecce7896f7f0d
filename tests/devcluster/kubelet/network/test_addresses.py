"""Addresses and the table of ports."""

from __future__ import annotations

import ipaddress
import socket
import sys
from pathlib import Path

import pytest
from support.disk import full_disk

from trainmaster.devcluster.kubelet.container import CreateContainerError
from trainmaster.devcluster.kubelet.network.addresses import (
    PortTable,
    has_own_ports,
    host_address,
    is_free,
    job_key,
    pod_address,
    service_address,
)


def test_each_job_has_ports_of_its_own_which_its_pods_share_and_keep(tmp_path: Path) -> None:
    """Over a restart too, even if they are in use then."""
    table = PortTable(tmp_path / "ports.json")
    first, second = table.ports("ns/a", [29500]), table.ports("ns/b", [29500])
    assert first[29500] != second[29500]
    assert table.ports("ns/a", [8080]) == table.ports("ns/a", []) == first | {8080: table.ports("ns/a", [])[8080]}
    assert PortTable(tmp_path / "ports.json", free=lambda port: False).ports("ns/a", [29500])[29500] == first[29500]


def test_on_a_full_disk_a_port_is_given_to_nobody_before_it_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "ports"
    table = PortTable(path, free=lambda _: True)
    first = table.ports("ns/a", [29500])
    with full_disk(), pytest.raises(OSError, match="too large"):
        table.ports("ns/b", [29500])
    assert not path.with_suffix(".new").exists()
    with full_disk():
        table.keep(["ns/b"])
    second = table.ports("ns/b", [29500])
    assert PortTable(path, free=lambda _: True).ports("ns/b", [29500]) == second
    assert first.keys() == second.keys()


def test_a_finished_job_gives_its_ports_back(tmp_path: Path) -> None:
    only = PortTable(tmp_path / "ports.json", free=lambda port: port == 12000)
    assert only.ports("ns/a", [1]) == {1: 12000}
    with pytest.raises(CreateContainerError, match="no free port"):
        only.ports("ns/b", [1])
    only.keep([])
    assert only.ports("ns/b", [1]) == {1: 12000}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": {"x": "y"}}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ports.json"
    path.write_text(content)
    assert PortTable(path).ports("ns/a", [29500]).keys() == {29500}


def test_ports_in_use_are_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_free(server.getsockname()[1])


def test_pods_of_one_job_share_a_key() -> None:
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "ownerReferences": [{"uid": "o", "controller": True}]}
    assert job_key({"metadata": metadata, "spec": {"subdomain": "train"}}) == "ns/train"
    assert job_key({"metadata": metadata, "spec": {}}) == "ns/uid:o"
    assert job_key({"metadata": {"namespace": "ns", "uid": "u"}, "spec": {}}) == "ns/uid:u"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere only 127.0.0.1 exists")
def test_each_pod_has_an_address_of_its_own_that_can_be_bound() -> None:
    addresses = {host_address("ns", "train", f"host-{number}") for number in range(200)}
    assert len(addresses) == 200
    assert all(ipaddress.IPv4Address(address).is_loopback for address in addresses)
    with socket.socket() as server:
        server.bind((host_address("ns", "train", "host-1"), 0))


def test_addresses_of_pods_and_services_are_known_before_they_exist() -> None:
    pod = {"metadata": {"name": "p-x7z", "namespace": "ns", "uid": "u"}, "spec": {"hostname": "h", "subdomain": "s"}}
    assert pod_address(pod, cluster="/a") == host_address("ns", "s", "h")
    alone = {"metadata": {"name": "p-x7z", "namespace": "ns", "uid": "u"}, "spec": {"hostname": "h"}}
    assert pod_address(alone, cluster="/a") == pod_address(alone, cluster="/a")
    assert pod_address(alone, cluster="/a") != pod_address(alone, cluster="/b"), "two clusters may have such a pod"
    service = service_address("ns", "web", cluster="/a")
    assert service == service_address("ns", "web", cluster="/a")
    assert service not in (service_address("ns", "other", cluster="/a"), service_address("ns", "web", cluster="/b"))


@pytest.mark.parametrize(
    ("owner", "subdomain", "own"),
    [
        ("PyTorchJob", "", True),
        ("ReplicaSet", "", True),
        ("Job", "", False),
        ("Job", "train", False),
        ("MPIJob", "train", False),
        ("", "", False),
    ],
)
def test_pods_of_jobs_and_subdomains_share_the_ports_of_a_rendezvous(owner: str, subdomain: str, own: bool) -> None:
    owners = [{"kind": "Note"}, *([{"kind": owner, "controller": True}] if owner else [])]
    spec = {"subdomain": subdomain} if subdomain else {}
    assert has_own_ports({"metadata": {"name": "p", "ownerReferences": owners}, "spec": spec}) is own
