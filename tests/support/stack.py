"""A cluster with Trainmaster on it, for tests.

By default the embedded API server without its controllers and kubelet, so that JobSets stay as they were written and
tests play the part of everybody else. With TRAINMASTER_TEST_KUBECONFIG in the environment it is the cluster of that
kubeconfig, which must serve the definitions of Trainer, JobSet and the gang schedulers and run none of them.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.devcluster.faultycluster import FaultyCluster

from trainmaster.controller.configuration import OFF, Configuration, Health, Metrics, Webhook
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    install_definitions,
)
from trainmaster.devcluster.settings import ClusterSettings
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.framework import Framework, load_plugins

if TYPE_CHECKING:
    from trainmaster.controller.tracing.tracing import Tracing

KUBECONFIG_VARIABLE = "TRAINMASTER_TEST_KUBECONFIG"

QUIET = Configuration(
    webhook=Webhook(enabled=False), metrics=Metrics(bind_address=OFF), health=Health(health_probe_bind_address=OFF)
)
"""A configuration without servers, so that several managers fit on one machine."""


_made: list[Path] = []


@dataclass(frozen=True)
class Stack:
    """A running cluster and a client of it."""

    access: RestConfig
    client: KubeClient
    cluster: FaultyCluster | None
    """The embedded cluster, if it is one."""


@asynccontextmanager
async def api_server(directory: Path, *, definitions: bool = True, rbac: bool = False) -> AsyncIterator[Stack]:
    """The API server alone, with the definitions of Trainer, JobSet and the gang schedulers or without any.

    Without `rbac` the embedded one allows everything to everybody whom it knows.
    """
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    if kubeconfig:
        access = await load_config(kubeconfig=kubeconfig)
        async with KubeClient(access, user_agent="trainmaster-tests") as client:
            yield Stack(access, client, None)
        return
    state = StateDirectory(directory / "cluster")
    if definitions and not state.path.exists():
        shutil.copytree(await _state_with_definitions(), state.path)
    async with FaultyCluster(ClusterSettings(state=state, port=0, parts=frozenset(), rbac=rbac)) as cluster:
        access = await load_config(kubeconfig=str(state.kubeconfig))
        async with KubeClient(access, user_agent="trainmaster-tests") as client:
            yield Stack(access, client, cluster)


async def _state_with_definitions() -> Path:
    """The state of a cluster that has the definitions; made once, because installing them takes a second."""
    if not _made:
        directory = Path(tempfile.mkdtemp(prefix="trainmaster-tests-"))
        atexit.register(shutil.rmtree, directory)
        state = StateDirectory(directory / "cluster")
        async with FaultyCluster(ClusterSettings(state=state, port=0, parts=frozenset())) as cluster:
            await install_definitions(cluster.api, (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS, *GANG_DEFINITIONS))
        _made.append(state.path)
    return _made[0]


@asynccontextmanager
async def manager(
    access: RestConfig,
    *,
    framework: Framework | None = None,
    configuration: Configuration = QUIET,
    clock: Clock | None = None,
    tracing: Tracing | None = None,
) -> AsyncIterator[Manager]:
    """Run a manager in this process while the block runs; its caches are filled when the block begins."""
    stop, filled = asyncio.Event(), asyncio.Event()
    framework = framework or Framework(load_plugins())
    kinds = job_kinds(configuration)
    running = Manager(
        Setup(access, configuration, framework, clock=clock or SystemClock(), job_kinds=kinds, tracing=tracing),
        on_caches_synced=filled.set,
    )
    task = asyncio.create_task(running.run(stop))
    waiting = asyncio.create_task(filled.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        yield running
    finally:
        waiting.cancel()
        stop.set()
        await task
