"""What is kept of deleted pods: their logs, as long as their job is there, within a limit."""

import os
from pathlib import Path

import pytest

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import JOBS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.kubelet.directories import RootDirectory
from trainmaster.devcluster.kubelet.former_pods import FormerPods
from trainmaster.runtime.jsontree import JsonObject

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
LINE = "2026-11-20T12:00:01.000000000Z F hello\n"


class Node:
    """A Job, and pods of it that have printed a line each."""

    def __init__(self, directory: Path) -> None:
        self.api = Api(Store(), builtin_registry())
        self.root = RootDirectory(directory / "kubelet", tmp=directory)
        self.root.prepare()
        self.former = FormerPods(self.api, self.root, limit=2 * len(LINE))
        self.job: JsonObject = {}

    async def start(self) -> None:
        await create_system_namespaces(self.api)
        self.job = await self.api.create(
            JOBS, {"metadata": {"name": "j"}, "spec": {"template": TEMPLATE}}, namespace="default"
        )

    def pod(self, number: int, *, owned: bool = True) -> JsonObject:
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": self.job["metadata"]["uid"],
            "controller": True,
        }
        log = self.root.pod(f"uid-{number}").log("c", 0)
        log.parent.mkdir(parents=True)
        log.write_text(LINE)
        os.utime(log, (number, number))
        return {
            "metadata": {
                "name": f"p-{number}",
                "namespace": "default",
                "uid": f"uid-{number}",
                "creationTimestamp": f"2026-11-20T12:00:0{number}Z",
                "ownerReferences": [owner] if owned else [],
            },
            **TEMPLATE,
        }

    def delete(self, pod: JsonObject) -> None:
        self.former.observe(pod)
        self.former.remover(pod["metadata"]["uid"])()

    def kept(self) -> list[str]:
        """The pods that are known, each with whether its log is there."""
        found = [self.former.find("default", f"p-{number}") for number in range(4)]
        uids = [pod["metadata"]["uid"] for pod in found if pod is not None]
        return [uid for uid in uids if self.former.files(uid).logs("c")]


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.start()
    return node


async def test_logs_of_deleted_pods_are_kept_until_their_job_is_deleted(node: Node) -> None:
    for number in range(3):
        node.delete(node.pod(number))
    assert node.kept() == ["uid-1", "uid-2"], "the oldest one had to go"
    assert node.former.find("default", "p-0") is not None, "though it is known that it was there"
    node.delete(node.pod(3, owned=False))
    assert node.kept() == ["uid-1", "uid-2"]
    await node.api.delete(JOBS, "default", "j")
    node.former.remove_orphans()
    assert node.kept() == []
    assert list(node.root.former.iterdir()) == []


async def test_of_a_job_that_is_deleted_before_its_pods_nothing_is_kept(node: Node) -> None:
    first, last = node.pod(0), node.pod(1)
    node.former.observe(last)
    node.delete(first)
    assert node.kept() == ["uid-0", "uid-1"], "also that of a pod which is about to be removed"
    await node.api.delete(JOBS, "default", "j")
    node.delete(last)
    assert list(node.root.former.iterdir()) == []
