"""Addresses and ports of pods, and names, ports and paths in text: what is replaced, and above all what is not."""

import ipaddress
import socket
import sys
from pathlib import Path
from typing import Any

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
from trainmaster.devcluster.kubelet.network.rewriter import Rewriter, job_ports, pod_names
from trainmaster.runtime.jsontree import JsonObject


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


def pod(**spec: Any) -> JsonObject:
    return {
        "metadata": {
            "name": "train-node-0-1-x7k2p",
            "namespace": "team",
            "labels": {"jobset.sigs.k8s.io/jobset-name": "train", "batch.kubernetes.io/job-name": "train-node-0"},
        },
        "spec": {"hostname": "train-node-0-1", "subdomain": "train", "containers": [{"name": "node"}], **spec},
    }


REWRITER = Rewriter(
    names=pod_names(pod()),
    ports={29500: 12345},
    paths={"/workspace": "/state/volumes/ws", "/workspace/data": "/state/claims/data", "/root": "/root/state/home"},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train-node-0-0.train", "127.0.0.1"),
        ("train-node-0-0.train.team.svc.cluster.local", "127.0.0.1"),
        ("train.team.svc.cluster.local", "127.0.0.1"),
        ("train-data-initializer-0-0.train:29500", "127.0.0.1:12345"),
        ("train-node-0-0.train:80", "127.0.0.1:80"),
        ("tcp://train-node-0-0.train:29500/x", "tcp://127.0.0.1:12345/x"),
        ("train-node-0-0.train,train-node-0-11.train slots=2", "127.0.0.1,127.0.0.1 slots=2"),
        ("my-train-node-0-0.train", "my-train-node-0-0.train"),
        ("x.train-node-0-0.train", "x.train-node-0-0.train"),
        ("train-node-0-0.trainer", "train-node-0-0.trainer"),
        ("train-node-0-0.train.other.svc", "train-node-0-0.train.other.svc"),
        ("train-node-0-0.train.example.com", "train-node-0-0.train.example.com"),
        ("train-node-0-0", "train-node-0-0"),
        ("train", "train"),
        ("model.train", "model.train"),
        ("other-node-0-0.train", "other-node-0-0.train"),
        ("train-node-0-0.train:295001", "127.0.0.1:295001"),
    ],
)
def test_names(text: str, expected: str) -> None:
    assert REWRITER.text(text) == expected


LABELS = {"training.kubeflow.org/job-name": "mnist", "training.kubeflow.org/replica-type": "worker"}
REPLICA: JsonObject = {
    "metadata": {"name": "mnist-worker-0", "namespace": "team", "labels": LABELS},
    "spec": {"containers": [{"name": "pytorch"}]},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist-master-0", "127.0.0.1"),
        ("mnist-worker-0:23456", "127.0.0.1:12345"),
        ("mnist-ps-0.team.svc:2222", "127.0.0.1:2222"),
        ("mnist-worker-0,mnist-worker-11", "127.0.0.1,127.0.0.1"),
        ('{"worker":["mnist-worker-0.team.svc:23456"]}', '{"worker":["127.0.0.1:12345"]}'),
        ("127.20.0.9:23456", "127.0.0.1:12345"),
        ("mnist", "mnist"),
        ("mnist-data-1", "mnist-data-1"),
        ("my-mnist-master-0", "my-mnist-master-0"),
        ("mnist-master-0.example.com", "mnist-master-0.example.com"),
        ("mnist-worker-0.team.svc.example.org:23456", "mnist-worker-0.team.svc.example.org:23456"),
        ("1127.20.0.9:23456", "1127.20.0.9:23456"),
    ],
)
def test_names_of_a_job_whose_pods_are_services(text: str, expected: str) -> None:
    rewriter = Rewriter(names=pod_names(REPLICA, address="127.20.0.9"), ports={23456: 12345})
    assert rewriter.text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/workspace", "/state/volumes/ws"),
        ("/workspace/data/a", "/state/claims/data/a"),
        ("--out=/workspace/o", "--out=/state/volumes/ws/o"),
        ("a:/workspace:/b", "a:/state/volumes/ws:/b"),
        ("file:///workspace/x", "file:///state/volumes/ws/x"),
        ("cp '/workspace/a' \"/workspace\"", "cp '/state/volumes/ws/a' \"/state/volumes/ws\""),
        ("/workspace2", "/workspace2"),
        ("/workspace.bak", "/workspace.bak"),
        ("/home/workspace", "/home/workspace"),
        ("./workspace", "./workspace"),
        ("$HOME/workspace ${HOME}/workspace ~/workspace", "$HOME/workspace ${HOME}/workspace ~/workspace"),
        ("https://host/workspace/x", "https://host/workspace/x"),
        ("/root/x", "/root/state/home/x"),
    ],
)
def test_paths(text: str, expected: str) -> None:
    assert REWRITER.text(text) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PET_MASTER_PORT", "29500", "12345"),
        ("SERVER_PORT", "29500", "12345"),
        ("SERVER_PORT", "8080", "8080"),
        ("KUBERNETES_SERVICE_PORT", "29500", "29500"),
        ("STEPS", "29500", "29500"),
        ("PET_MASTER_ADDR", "train-node-0-0.train", "127.0.0.1"),
        ("JAX_COORDINATOR_ADDRESS", "train-node-0-0.train:29500", "127.0.0.1:12345"),
    ],
)
def test_variables(name: str, value: str, expected: str) -> None:
    assert REWRITER.variable(name, value) == expected


def test_words() -> None:
    words = ["torchrun", "--rdzv_endpoint=train-node-0-0.train:29500", "--master-port", "29500", "--steps", "29500"]
    words += ["sh -c 'serve --port 29500 -p 29500 --ports 29500'", "--master_port=29500"]
    assert REWRITER.words(words) == [
        *("torchrun", "--rdzv_endpoint=127.0.0.1:12345", "--master-port", "12345", "--steps", "29500"),
        "sh -c 'serve --port 12345 -p 29500 --ports 29500'",
        "--master_port=12345",
    ]


def test_without_a_subdomain_there_are_no_names() -> None:
    assert pod_names(pod(subdomain=None)) is None
    assert Rewriter().text("train-node-0-0.train:29500 /workspace") == "train-node-0-0.train:29500 /workspace"


def test_names_of_a_plain_indexed_job() -> None:
    alone = pod()
    del alone["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
    rewriter = Rewriter(names=pod_names(alone))
    assert rewriter.text("train-node-0-7.train train-other-0-0.train") == "127.0.0.1 train-other-0-0.train"


def test_ports_of_a_job_are_the_declared_ones_and_those_of_its_rendezvous() -> None:
    container = {
        "name": "node",
        "ports": [{"containerPort": 8080}],
        "env": [
            {"name": "PET_MASTER_PORT", "value": "29500"},
            {"name": "JAX_COORDINATOR_ADDRESS", "value": "$(HOST):1234"},
            {"name": "OTHER_PORT", "value": "5"},
            {"name": "MASTER_PORT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }
    assert job_ports(pod(containers=[container])) == {8080, 29500, 1234}


def test_real_place_of_a_path() -> None:
    assert REWRITER.path("/workspace/data/x/y") == "/state/claims/data/x/y"
    assert REWRITER.path("/workspace/database") == "/state/volumes/ws/database"
    assert REWRITER.path("/elsewhere") is None
