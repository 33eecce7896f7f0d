"""A node of the embedded cluster in each mode of networking, and the kubelet that runs on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.node import MODES, Node

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.controllers.endpointslice import EndpointSliceController
from trainmaster.devcluster.kubelet.kubelet import Kubelet


@pytest.fixture(params=MODES)
async def node(tmp_path: Path, request: pytest.FixtureRequest) -> Node:
    """A node whose kubelet does not run yet; a module that needs other modes parametrizes it indirectly."""
    node = Node(tmp_path / "state", request.param)
    await create_system_namespaces(node.api)
    return node


@pytest.fixture
async def endpoints(node: Node) -> AsyncIterator[None]:
    """The controller that says where the pods of each Service are."""
    task = asyncio.create_task(EndpointSliceController(node.api).run())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def kubelet(node: Node) -> AsyncIterator[Kubelet]:
    """The running kubelet of the node."""
    async with node.running() as kubelet:
        yield kubelet
