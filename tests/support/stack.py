"""A cluster with Trainmaster on it, for tests.

By default the embedded API server without its controllers and kubelet, so that JobSets stay as they were written and
tests play the part of everybody else. With TRAINMASTER_TEST_KUBECONFIG in the environment it is the cluster of that
kubeconfig, which must serve the definitions of Trainer and JobSet and run neither controller.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.controller.configuration import OFF, Configuration, Health, Metrics
from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.configuration import ClusterAccess, load_cluster_access
from trainmaster.controller.manager import Manager
from trainmaster.devcluster.cluster import Cluster, ClusterSettings
from trainmaster.devcluster.parts.definitions import JOBSET_DEFINITIONS, TRAINER_DEFINITIONS, install_definitions
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.framework import Framework, load_plugins

KUBECONFIG_VARIABLE = "TRAINMASTER_TEST_KUBECONFIG"

QUIET = Configuration(metrics=Metrics(bind_address=OFF), health=Health(health_probe_bind_address=OFF))
"""A configuration without servers, so that several managers fit on one machine."""


@dataclass(frozen=True)
class Stack:
    """A running cluster and a client of it."""

    access: ClusterAccess
    client: KubeClient
    cluster: Cluster | None
    """The embedded cluster, if it is one."""


@asynccontextmanager
async def api_server(directory: Path, *, definitions: bool = True) -> AsyncIterator[Stack]:
    """The API server alone, with the definitions of Trainer and JobSet or without any."""
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    if kubeconfig:
        access = await load_cluster_access(kubeconfig=kubeconfig)
        async with KubeClient(access, user_agent="trainmaster-tests") as client:
            yield Stack(access, client, None)
        return
    state = StateDirectory(directory / "cluster")
    async with Cluster(ClusterSettings(state=state, port=0, parts=frozenset())) as cluster:
        if definitions:
            await install_definitions(cluster.api, (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS))
        access = await load_cluster_access(kubeconfig=str(state.kubeconfig))
        async with KubeClient(access, user_agent="trainmaster-tests") as client:
            yield Stack(access, client, cluster)


@asynccontextmanager
async def manager(access: ClusterAccess, *, framework: Framework | None = None) -> AsyncIterator[Manager]:
    """Run a manager in this process while the block runs."""
    stop = asyncio.Event()
    running = Manager(access, QUIET, framework or Framework(load_plugins()))
    task = asyncio.create_task(running.run(stop))
    try:
        yield running
    finally:
        stop.set()
        await task
