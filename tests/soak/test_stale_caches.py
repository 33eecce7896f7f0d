"""A manager whose caches stand still: what it does not know to be gone."""

import asyncio
from collections import Counter
from pathlib import Path

from support.audit import AuditLogReader
from support.devcluster.faults import StallWatch
from support.devcluster.faultycluster import FaultyCluster
from support.stack import manager
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.crds.install import JOBSET_DEFINITIONS, TRAINER_DEFINITIONS, install_definitions
from trainmaster.devcluster.settings import GARBAGE_COLLECTION, ClusterSettings
from trainmaster.devcluster.state import StateDirectory


async def exists(client: KubeClient, resource: Resource, name: str) -> bool:
    try:
        await client.get(resource, "default", name)
    except NotFound:
        return False
    return True


async def test_nothing_is_made_again_for_a_trainjob_that_the_cache_does_not_know_to_be_gone(tmp_path: Path) -> None:
    """What is made for it is collected at once, which is an event, which lets it be made again, and so on."""
    state, audit = StateDirectory(tmp_path / "cluster"), AuditLogReader(tmp_path / "audit.log")
    parts = frozenset({GARBAGE_COLLECTION})
    async with FaultyCluster(
        ClusterSettings(state=state, port=0, parts=parts, audit_log=tmp_path / "audit.log")
    ) as cluster:
        await install_definitions(cluster.api, (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS))
        access = await load_config(kubeconfig=str(state.kubeconfig))
        async with KubeClient(access, user_agent="tests") as client:
            await apply_runtime(client, runtime())
            # It sees that there are no TrainJobs, then one, and no more.
            with cluster.faults.add(StallWatch(after=2), verb="watch", resource="trainjobs") as stalled:
                async with manager(access):
                    await client.create(TRAINJOBS, trainjob("gone"))
                    await until(lambda: exists(client, JOBSETS, "gone"))
                    assert stalled.count
                    await client.delete(TRAINJOBS, "default", "gone")
                    await until(lambda: is_quiet(cluster))
                    for resource in (JOBSETS, CONFIGMAPS):
                        assert not await exists(client, resource, "gone")
    made = Counter(write.resource for write in audit.read() if write.name.startswith("gone") and write.code == 201)
    assert made == {"trainjobs": 1, "configmaps": 1, "jobsets": 1}


async def is_quiet(cluster: FaultyCluster) -> bool:
    """Whether nothing is written for a while."""
    before = cluster.api.store.revision
    await asyncio.sleep(1)
    return cluster.api.store.revision == before
