"""No alert is on its way where all is well: neither on an idle cluster, nor without what it need not have."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.debian import program
from support.monitoring.prometheus import Prometheus, scraping
from support.processes import DEFINITIONS, ManagerProcess, account_token, cluster_process
from support.training import until

from trainmaster.devcluster.crds.install import JOBSET_DEFINITIONS, definition_file
from trainmaster.devcluster.listener import free_port
from trainmaster.metrics.alerts import GROUPS
from trainmaster.runtime.yamltext import load_yaml

pytestmark = pytest.mark.timeout(240)

SCRAPES = 2
"""As many as a rate needs."""


@asynccontextmanager
async def watched(directory: Path, *, jobset: bool, **configuration: Any) -> AsyncIterator[Prometheus]:
    """Run a manager alone, in a cluster that has neither PodGroups nor jobs of `kubeflow.org/v1`, and a Prometheus."""
    program("prometheus")
    async with cluster_process(directory) as (cluster, client):
        for name in () if jobset else JOBSET_DEFINITIONS:
            await client.delete(DEFINITIONS, None, load_yaml(definition_file(name).read_bytes())["metadata"]["name"])
        port = free_port()
        configuration["metrics"] = {"bindAddress": f"127.0.0.1:{port}", "secureServing": False}
        token = await account_token(client, "quiet")
        manager = ManagerProcess(cluster, "quiet", token=token, port=cluster.port, configuration=configuration)
        await manager.start()
        try:
            await manager.logged("caches are filled")
            async with scraping({"manager-a": f"127.0.0.1:{port}"}, directory) as prometheus:
                yield prometheus
        finally:
            await manager.kill()


@pytest.mark.parametrize(
    ("jobset", "configuration", "expected"),
    [
        pytest.param(True, {"leaderElection": {"leaderElect": True, "resourceName": "quiet"}}, {}, id="as delivered"),
        pytest.param(
            # Without it there is no workload for any TrainJob, and the manager is not ready.
            False,
            {"leaderElection": {"leaderElect": False}, "trainingOperator": {"enabled": False}},
            {"TrainmasterCacheNotFilled": [{"pod": "manager-a", "resource": "jobsets.jobset.x-k8s.io"}]},
            id="without JobSet, V1 and election",
        ),
    ],
)
async def test_no_alert_is_pending_but_for_what_is_amiss(
    *, jobset: bool, configuration: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    async with watched(tmp_path, jobset=jobset, **configuration) as prometheus:

        async def asked(expression: str) -> list[dict[str, str]]:
            now = time.time()
            return [dict(line.labels) for line in await prometheus.query_range(expression, now, now, 1) if line.points]

        await until(lambda: asked(f"count_over_time(up[5m]) >= {SCRAPES}"))
        active: dict[str, list[dict[str, str]]] = {}

        async def is_quiet() -> bool:
            """On a busy machine an expression may hold for a moment: no alert comes of that."""
            asking = [(alert.name, alert.expression.text) for alerts in GROUPS.values() for alert in alerts]
            active.clear()
            active.update({name: series for name, text in asking if (series := await asked(text))})
            return active == expected

        try:
            await until(is_quiet)
        except TimeoutError:
            assert active == expected
        # Of caches some would come in time: what is not read must not grow old, nor count as failing.
        assert await asked("trainmaster_informer_watches_total > 0")
        assert await asked("trainmaster_informer_age_seconds > 0 unless trainmaster_informer_watches_total > 0") == []
        assert await asked("trainmaster_informer_failures_total > 0") == []
