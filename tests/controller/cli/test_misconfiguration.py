"""What the commands say when they are pointed at the wrong thing, or at nothing: one line that says what to do."""

import json
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.authorities import Authority
from support.commands import Running, eventually, started, trainmaster
from support.kubeconfigs import write_kubeconfig
from support.objects import trainjob_object
from support.stack import Stack, api_server

from trainmaster.devcluster.listener import free_port

pytestmark = pytest.mark.nightly

CONFIGURATION = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
webhook: {enabled: false}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "0"}
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    obj = trainjob_object()
    obj["metadata"] = {"name": "demo", "namespace": "team"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(obj))
    return "job.yaml"


async def complaint(tmp_path: Path, *arguments: str) -> str:
    """The one line that a command has to say before it ends."""
    done = await trainmaster(*arguments, cwd=tmp_path)
    assert done.code in {1, 2}
    (line,) = done.err.splitlines()
    return str(json.loads(line)["error"]) if line.startswith("{") else line.removeprefix("trainmaster: ")


@pytest.mark.parametrize("command", ["manager", "run", "diff"])
async def test_a_kubeconfig_without_a_cluster(tmp_path: Path, job: str, command: str) -> None:
    for text, fault in (
        ("", "there is nothing in it; "),
        ("apiVersion: v1\nkind: Config\nclusters: []\n", "it names no cluster; "),
    ):
        (tmp_path / "k").write_text(text)
        files = {"manager": [], "run": [job], "diff": ["-f", job]}[command]
        assert await complaint(tmp_path, command, "--kubeconfig", "k", *files) == (
            f"kubeconfig k (from --kubeconfig): {fault}"
            "have the tool that made the cluster write it again, or name another with --kubeconfig or KUBECONFIG"
        )


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Stack]:
    """An API server without definitions."""
    async with api_server(tmp_path, definitions=False) as stack:
        yield stack


@pytest.mark.usefixtures("bare")
async def test_credentials_that_the_server_refuses(tmp_path: Path, job: str) -> None:
    path = tmp_path / "cluster/kubeconfig"
    document = yaml.safe_load(path.read_text())
    document["users"][0]["user"] = {"token": "expired"}
    (tmp_path / "k").write_text(yaml.safe_dump(document))
    context, server = document["current-context"], document["clusters"][0]["cluster"]["server"]
    assert await complaint(tmp_path, "diff", "--kubeconfig", "k", "-f", job) == (
        f"401 Unauthorized: Unauthorized (GET {server}/apis/trainer.kubeflow.org/v1alpha1); "
        "the credentials are missing, wrong or expired; "
        f'log in again, or renew those of kubeconfig k (from --kubeconfig), context "{context}"'
    )


@pytest.mark.parametrize("command", ["run", "diff"])
async def test_a_server_that_is_no_api_server_is_named_with_the_request(tmp_path: Path, job: str, command: str) -> None:
    location = "https://login.example.com"
    answers: dict[str, dict[str, Any]] = {
        "the answer is an HTML page: Sign in; ": {"text": "<html><title>Sign in</title></html>"},
        'the answer is not an object: ["a"]; ': {"text": '["a"]'},
        "the answer is of kind Elsewhere, not an APIResourceList; ": {"text": '{"kind": "Elsewhere"}'},
        f"the server redirects to {location}": {"status": 302, "headers": {"Location": location}},
    }
    for told, answered in answers.items():

        async def answer(_request: web.Request, answered: dict[str, Any] = answered) -> web.Response:
            return web.Response(**answered)

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        async with TestServer(application) as server:
            write_kubeconfig(tmp_path / "k", server=f"http://127.0.0.1:{server.port}")
            files = {"run": [job], "diff": ["-f", job]}[command]
            said = await complaint(tmp_path, command, "--kubeconfig", "k", *files)
            assert f"GET http://127.0.0.1:{server.port}/" in said
        assert told in said


@pytest.mark.usefixtures("bare")
async def test_definitions_that_are_missing_are_named_with_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIGURATION)
    arguments = ("manager", "--config", "config.yaml", "--kubeconfig", str(tmp_path / "cluster/kubeconfig"))
    async with started(*arguments, cwd=tmp_path) as running:
        for told in (
            "trainjobs.trainer.kubeflow.org: trainmaster crds | kubectl apply --server-side -f -",
            "jobsets.jobset.x-k8s.io: it comes with JobSet, https://jobset.sigs.k8s.io",
        ):
            await eventually(partial(has_said, running, f"install the CustomResourceDefinition {told}"))


def has_said(running: Running, text: str) -> bool:
    return any(text in line for line in running.err)


@pytest.mark.parametrize(
    ("what", "option"),
    [
        ("probes", "health.healthProbeBindAddress"),
        ("metrics", "metrics.bindAddress"),
        ("secure metrics", "metrics.bindAddress"),
        ("webhooks", "webhook.port"),
        ("trainer status", "statusServer.port"),
    ],
)
@pytest.mark.usefixtures("stack")
async def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path, what: str, option: str) -> None:
    certificate, key = Authority().issue(tmp_path)
    certificate.rename(tmp_path / "tls.crt")
    key.rename(tmp_path / "tls.key")
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        sections: dict[str, Any] = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "webhook": {"enabled": what == "webhooks", "host": "127.0.0.1", "port": port, "certDir": str(tmp_path)},
            "certManagement": {"enable": False},
            "metrics": {
                "bindAddress": f"127.0.0.1:{port}" if what.endswith("metrics") else "0",
                "secureServing": what != "metrics",
            },
            "health": {"healthProbeBindAddress": f"127.0.0.1:{port}" if what == "probes" else "0"},
            "statusServer": {"port": port if what == "trainer status" else free_port()},
            "featureGates": {"TrainJobStatus": what == "trainer status"},
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
        done = await trainmaster(
            *("manager", "--config", "config.yaml", "--kubeconfig", "cluster/kubeconfig"), cwd=tmp_path
        )
    assert done.code == 1
    assert "Traceback" not in done.err
    (told,) = [each for each in map(json.loads, done.err.splitlines()) if each["level"] == "error"]
    assert told["event"] == "the manager cannot run"
    assert told["error"].startswith(f"cannot serve {what.removeprefix('secure ')} on ")
    assert f":{port}: " in told["error"]
    assert option in told["error"]
