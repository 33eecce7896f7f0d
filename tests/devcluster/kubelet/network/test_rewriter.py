"""Names, ports and paths in text: what is replaced, and above all what is not."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.kubelet.network.rewriter import Rewriter, job_ports, pod_names
from trainmaster.runtime.jsontree import JsonObject


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
        "torchrun",
        "--rdzv_endpoint=127.0.0.1:12345",
        "--master-port",
        "12345",
        "--steps",
        "29500",
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
