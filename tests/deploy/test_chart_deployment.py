"""What `helm template` makes of the chart, on a cluster that enforces roles; trainers report to the managers."""

import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml
from support.deployed import ACCOUNT, Deployed, deployed
from support.manifests import NEEDS_HELM, ROOT, template
from support.training import python, runtime, trainjob

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.timeout(200),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("told"),
    *NEEDS_HELM,
]

VALUES = {
    "jobset": {"install": False},
    "manager": {"replicas": 2, "config": {"featureGates": {"TrainJobStatus": True}}},
}
REPORT = re.findall(r"```python\n(.*?)```", (ROOT / "docs/status-server.md").read_text(), re.DOTALL)[0]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployed]:
    manifests = yaml.safe_dump_all(template(**VALUES).values())
    async with deployed(tmp_path_factory.mktemp("chart"), manifests) as running:
        await running.create(runtime())
        yield running


async def test_a_trainer_reports_through_the_service(cluster: Deployed) -> None:
    """By its name, over TLS, with the certificate that the manager made and the trainer was given the authority of."""
    await cluster.create(trainjob("reports", trainer={"command": python(REPORT)}))
    await cluster.completed("reports")
    found = json.loads(await cluster.kubectl("get", "trainjob", "reports", "-o", "json"))
    assert found["status"]["trainerStatus"]["progressPercentage"] == 45


async def test_the_roles_of_the_chart_grant_all_that_the_managers_ask_for(cluster: Deployed) -> None:
    asked = [each for each in cluster.asked() if each.user == ACCOUNT]
    assert {"tokenreviews", "jobsets"} <= {each.resource for each in asked}
    assert {(each.verb, each.resource, each.subresource) for each in asked if each.code == 403} == set()
