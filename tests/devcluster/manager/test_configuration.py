"""The configuration that the manager runs with: where its servers are, and that it follows the user's file."""

import ipaddress
import re
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from support.commands import client_of, eventually, trainmaster
from support.machine import descendants, listening_addresses
from support.training import apply_runtime, ended, python, runtime, trainjob

from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.apiserver.admission.webhook import LocalServices
from trainmaster.devcluster.manager.configuration import ManagerConfiguration, ManagerPorts, merge_configuration
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks
from trainmaster.devcluster.state import StateDirectory

SNIPPET = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs" / "status-server.md").read_text(), re.DOTALL
)[-1]
HISTORY = Path("/state/history.sqlite")
PORTS = ManagerPorts(health=1001, metrics=1002, status_server=1003)


@pytest.fixture(scope="module")
def webhooks(tmp_path_factory: pytest.TempPathFactory) -> ManagerWebhooks:
    return ManagerWebhooks(tmp_path_factory.mktemp("certificates"), LocalServices())


def merged(directory: Path, webhooks: ManagerWebhooks, **given: Any) -> ManagerConfiguration:
    file = directory / "given.yaml"
    file.write_text(yaml.safe_dump(given))
    configuration = merge_configuration(file, webhooks, PORTS, history=HISTORY)
    assert configuration is not None
    return configuration


@pytest.mark.parametrize(
    ("section", "url"),
    [
        ({}, "http://127.0.0.1:1002/metrics"),
        (None, "http://127.0.0.1:1002/metrics"),
        ({"bindAddress": None}, "http://127.0.0.1:1002/metrics"),
        ({"auth": {"enabled": True}}, "http://127.0.0.1:1002/metrics"),
        ({"secureServing": True}, "https://127.0.0.1:1002/metrics"),
        ({"bindAddress": ":8443"}, "http://127.0.0.1:8443/metrics"),
        ({"bindAddress": "0"}, ""),
        ({"bindAddress": 8443}, ""),
    ],
)
def test_metrics_are_on_the_loopback_interface_unless_they_are_wanted_elsewhere(
    tmp_path: Path, webhooks: ManagerWebhooks, section: Any, url: str
) -> None:
    configuration = merged(tmp_path, webhooks, metrics=section)
    assert configuration.metrics == url
    assert configuration.content["metrics"] == {
        "bindAddress": "127.0.0.1:1002",
        "secureServing": False,
        **{key: value for key, value in (section or {}).items() if value is not None},
    }


@pytest.mark.parametrize(
    ("given", "server"),
    [
        ({}, None),
        ({"featureGates": {"TrainJobStatus": False}}, None),
        ({"featureGates": {"TrainJobStatus": True}}, "https://127.0.0.1:1003"),
        ({"featureGates": {"TrainJobStatus": True}, "statusServer": {"port": 7}}, "https://127.0.0.1:7"),
    ],
)
def test_trainers_are_told_where_the_status_server_is(
    tmp_path: Path, webhooks: ManagerWebhooks, given: dict[str, Any], server: str | None
) -> None:
    content = merged(tmp_path, webhooks, **given).content
    assert content["statusServer"]["host"] == "127.0.0.1"
    options = content.get("plugins", {}).get("options", {})
    assert options == ({} if server is None else {"trainjobstatus": {"server": server}})


@pytest.mark.parametrize(
    ("given", "file"),
    [({"enabled": True}, str(HISTORY)), (None, str(HISTORY)), ({"enabled": True, "file": "/mine"}, "/mine")],
)
def test_the_history_is_in_the_state_directory_unless_it_is_wanted_elsewhere(
    tmp_path: Path, webhooks: ManagerWebhooks, given: Any, file: str
) -> None:
    assert merged(tmp_path, webhooks, history=given).content["history"] == {**(given or {}), "file": file}


def test_what_the_user_says_of_the_status_server_counts(tmp_path: Path, webhooks: ManagerWebhooks) -> None:
    own = {"options": {"trainjobstatus": {"server": "https://elsewhere"}, "acme": {"a": 1}}, "disabled": ["jax"]}
    given = {"featureGates": {"TrainJobStatus": True}, "plugins": own}
    assert merged(tmp_path, webhooks, **given).content["plugins"] == own
    for wrong in (1, {"options": 1}, {"options": {"trainjobstatus": 1}}):
        assert merged(tmp_path, webhooks, **{**given, "plugins": wrong}).content["plugins"] == wrong


@pytest.mark.parametrize("content", [b"a: [", b"- 1", b"webhook: 1", b"metrics: x", None])
def test_the_manager_gets_what_no_merge_takes(tmp_path: Path, webhooks: ManagerWebhooks, content: bytes | None) -> None:
    file = tmp_path / "given.yaml"
    if content is not None:
        file.write_bytes(content)
    assert merge_configuration(file, webhooks, PORTS, history=HISTORY) is None


def test_metrics_stay_where_they_were_if_the_port_is_free(tmp_path: Path) -> None:
    before = tmp_path / "manager.yaml"
    port = ManagerPorts.choose(before).metrics
    before.write_text(yaml.safe_dump({"metrics": {"bindAddress": f"127.0.0.1:{port}"}}))
    assert ManagerPorts.choose(before).metrics == port
    with socket.create_server(("127.0.0.1", port)):
        assert ManagerPorts.choose(before).metrics != port
    for other in ("", "a: [", "{}", "metrics: 1", "metrics: {bindAddress: '0'}", "metrics: {bindAddress: ':8443'}"):
        before.write_text(other)
        assert ManagerPorts.choose(before).metrics not in {0, 8443}


def configure(home: Path, **content: Any) -> None:
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    (home / "given.yaml").write_text(yaml.safe_dump(head | content))


UP = ("cluster", "up", "--detach", "--config", "given.yaml")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A directory whose cluster has all servers that a manager can have."""
    home = tmp_path_factory.mktemp("configured")
    configure(home, featureGates={"TrainJobStatus": True})
    up = await trainmaster(*UP, cwd=home)
    assert (up.code, up.err) == (0, "")
    yield home
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0


async def metrics_of(home: Path) -> str:
    """The address that `cluster status` prints."""
    status = await trainmaster("cluster", "status", cwd=home)
    assert status.code == 0, status.out
    found = re.search(r"^metrics: +(\S+)$", status.out, re.MULTILINE)
    assert found, status.out
    return found[1]


@pytest.mark.asyncio(loop_scope="module")
class TestARunningCluster:
    """What its processes do."""

    @pytest.mark.nightly
    async def test_metrics_are_read_where_the_status_says(self, home: Path) -> None:
        async with aiohttp.request("GET", await metrics_of(home)) as answer:
            assert answer.status == 200
            assert "controller_runtime_reconcile_total" in await answer.text()

    @pytest.mark.nightly
    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/net/tcp")
    async def test_nothing_listens_on_other_interfaces(self, home: Path) -> None:
        """API server, webhooks, probes, metrics, status server."""
        pid = StateDirectory(home / ".trainmaster").holder()
        assert pid is not None
        addresses = listening_addresses(descendants(pid))
        assert len(addresses) >= 5
        assert [host for host, _ in addresses if not ipaddress.ip_address(host).is_loopback] == []

    @pytest.mark.nightly
    async def test_trainers_report_with_nothing_but_the_feature_gate(self, home: Path) -> None:
        async with client_of(home / ".trainmaster" / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            command = python(f"{SNIPPET}\nreport(42, 17, loss=0.5)")
            await client.create(TRAINJOBS, trainjob("reports", trainer={"command": command}), namespace="default")
            assert (await ended(client, "reports"))["type"] == "Complete"
            status = (await client.get(TRAINJOBS, "default", "reports"))["status"]["trainerStatus"]
            assert status.pop("lastUpdatedTime").startswith("20")
            assert status == {
                "progressPercentage": 42,
                "estimatedRemainingSeconds": 17,
                "metrics": [{"name": "loss", "value": "0.5"}],
            }

    @pytest.mark.nightly
    async def test_the_running_manager_follows_the_file(self, home: Path) -> None:
        copy = home / ".trainmaster" / "manager.yaml"
        before = yaml.safe_load(copy.read_text())
        log = home / ".trainmaster" / "cluster.log"
        configure(home, featureGates={"TrainJobStatus": True}, clientConnection={"qps": 17})
        await eventually(lambda: "the configuration of the manager has changed" in log.read_text())
        assert yaml.safe_load(copy.read_text()) == {**before, "clientConnection": {"qps": 17}}
        (home / "given.yaml").write_text("a: [")
        await eventually(lambda: "the configuration of the manager cannot be read any more" in log.read_text())
        assert yaml.safe_load(copy.read_text())["clientConnection"] == {"qps": 17}
        configure(home, featureGates={"TrainJobStatus": True})
        await eventually(lambda: yaml.safe_load(copy.read_text()) == before)

    @pytest.mark.nightly
    async def test_metrics_are_in_the_same_place_after_a_restart(self, home: Path) -> None:
        before = await metrics_of(home)
        assert (await trainmaster("cluster", "down", cwd=home)).code == 0
        assert (await trainmaster(*UP, cwd=home)).code == 0
        assert await metrics_of(home) == before
