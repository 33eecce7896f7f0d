"""The six job kinds as people meet them: real kubectl against an API server that has nothing but their definitions."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from support.stack import api_server

from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, definition_file
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
    pytest.mark.asyncio(loop_scope="module"),
]

REPLICAS = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Kubectl:
    """Runs kubectl against one server."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        """Return what it prints; fail if its exit code is another one."""
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *("--kubeconfig", str(self._home / "cluster/kubeconfig"), "--cache-dir", str(self._home / "cache")),
            *arguments,
            env={"HOME": str(self._home), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(stdin)
        assert process.returncode == code, output.decode()
        return output.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    """With a job of each kind in the namespace default."""
    home = tmp_path_factory.mktemp("kubectl")
    async with api_server(home, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a real cluster has definitions, and controllers")
        run = Kubectl(home)
        files = [word for name in TRAINING_OPERATOR_DEFINITIONS for word in ("-f", str(definition_file(name)))]
        # Not --server-side: the whole definition goes into an annotation, which those of the original do not fit into.
        output = await run("apply", *files)
        assert output.count("created") == len(REPLICAS)
        assert "metadata.annotations: Too long" not in output
        await run("create", "-f", "-", stdin=b"\n".join(orjson.dumps(job(kind)) for kind in REPLICAS))
        yield run


def job(kind: str) -> JsonObject:
    template = {"spec": {"containers": [{"name": "trainer", "image": "a"}]}}
    spec = {REPLICAS[kind]: {"Worker": {"replicas": 1, "template": template}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "demo"}, "spec": spec}


async def test_definitions_fit_into_the_annotation_of_a_client_side_apply(kubectl: Kubectl) -> None:
    crds = orjson.loads(await kubectl("get", "crds", "-o", "json"))["items"]
    assert {each["spec"]["names"]["kind"] for each in crds} == set(REPLICAS)
    assert all(orjson.loads(each["metadata"]["annotations"][APPLIED])["spec"] for each in crds)


@pytest.mark.parametrize("kind", REPLICAS)
async def test_the_columns_are_those_of_the_original(kubectl: Kubectl, kind: str) -> None:
    conditions = [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]
    patch = orjson.dumps({"status": {"conditions": conditions}}).decode()
    await kubectl("patch", kind.lower(), "demo", "--subresource=status", "--type=merge", "-p", patch)
    header, row = (await kubectl("get", kind.lower(), "demo")).splitlines()
    assert header.split() == (["NAME", "AGE", "STATE"] if kind == "MPIJob" else ["NAME", "STATE", "AGE"])
    assert "Running" in row


@pytest.mark.defect("V1-B40")
@pytest.mark.parametrize("kind", ["JAXJob", "PaddleJob", "PyTorchJob"])
async def test_workers_are_scaled(kubectl: Kubectl, kind: str) -> None:
    scaled = await kubectl("scale", f"{kind.lower()}/demo", "--current-replicas=1", "--replicas=3")
    assert scaled == f"{kind.lower()}.kubeflow.org/demo scaled\n"
    path = f"jsonpath={{.spec.{REPLICAS[kind]}.Worker.replicas}}"
    assert await kubectl("get", kind.lower(), "demo", "-o", path) == "3"


@pytest.mark.defect("V1-B40")
@pytest.mark.parametrize("kind", ["MPIJob", "TFJob", "XGBoostJob"])
async def test_other_kinds_say_that_they_cannot_be_scaled(kubectl: Kubectl, kind: str) -> None:
    refused = await kubectl("scale", f"{kind.lower()}/demo", "--replicas=3", code=1)
    assert "NotFound" in refused or "not found" in refused


async def test_fields_are_explained(kubectl: Kubectl) -> None:
    assert "before the job fails" in await kubectl("explain", "pytorchjob.spec.runPolicy.backoffLimit")
    assert "autoscalers" in await kubectl("explain", "pytorchjob.status.replicaStatuses.selector")
    assert "<integer>" in await kubectl("explain", "tfjob.spec.tfReplicaSpecs.replicas")
