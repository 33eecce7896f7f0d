"""A manager whose admission webhooks are registered at the API server, and requests whose answers are seen in full."""

import asyncio
import base64
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from support.stack import QUIET, Stack, manager

from trainmaster.controller.configuration import CertManagement, Configuration, Webhook
from trainmaster.devcluster.certificates import ServerCertificates, ensure_certificates
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

_MANIFESTS = Path(__file__).parents[2] / "deploy/webhooks"
SERVICE, NAMESPACE = "kubeflow-trainer-controller-manager", "kubeflow-system"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    code: int
    body: JsonObject
    warnings: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        """Why it refused."""
        return str(self.body.get("message", ""))


class Requests:
    """Sends requests to the API server as kubectl would."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", dry: bool = False
    ) -> Answer:
        params = {"dryRun": "All"} if dry else {}
        data = None if body is None else BytesIO(orjson.dumps(body))
        headers = {"Content-Type": kind}
        async with self._session.request(method, path, data=data, headers=headers, params=params) as response:
            warnings = [warning.split('"', 1)[1][:-1] for warning in response.headers.getall("Warning", [])]
            return Answer(
                response.status,
                orjson.loads(await response.read()),
                [text.replace('\\"', '"').replace("\\\\", "\\") for text in warnings],
            )


async def accepted(requests: Requests, method: str, path: str, body: Any = None, *, dry: bool = False) -> Answer | None:
    """Send a request; returns the answer unless it is a refusal."""
    answer = await requests.send(method, path, body, dry=dry)
    return answer if answer.code < 300 else None


@asynccontextmanager
async def requests_to(stack: Stack) -> AsyncIterator[Requests]:
    """Requests as the user of the stack's kubeconfig."""
    connector = aiohttp.TCPConnector(ssl=stack.access.ssl_context or True)
    headers = dict(await stack.access.headers())
    async with aiohttp.ClientSession(stack.access.server, connector=connector, headers=headers) as session:
        yield Requests(session)


def serving_certificates(directory: Path) -> ServerCertificates:
    """A certificate for the webhooks, under the names that a mounted Secret has."""
    hosts = ("127.0.0.1", f"{SERVICE}.{NAMESPACE}.svc")
    made = ensure_certificates(directory, now=datetime.now(UTC), hosts=hosts)
    shutil.copy(made.certificate, directory / "tls.crt")
    shutil.copy(made.key, directory / "tls.key")
    return made


def served(directory: Path, port: int) -> Configuration:
    """A configuration in which the webhooks are all that is served."""
    webhook = Webhook(host="127.0.0.1", port=port, cert_dir=str(directory))
    return QUIET.model_copy(
        update={"webhook": webhook, "cert_management": CertManagement(enable=False), "shutdown_delay_duration": "0s"}
    )


def configurations(
    certificates: ServerCertificates, *, port: int | None, made: list[JsonObject] | None = None
) -> list[JsonObject]:
    """Return the webhook configurations, for the service, or for a port of this machine where there is one."""
    made = manifest() if made is None else made
    for webhook in (webhook for configuration in made for webhook in configuration["webhooks"]):
        client = webhook["clientConfig"]
        client["caBundle"] = base64.b64encode(certificates.authority_pem).decode()
        if port is not None:
            client["url"] = f"https://127.0.0.1:{port}{client.pop('service')['path']}"
    return made


@asynccontextmanager
async def admitting(stack: Stack, directory: Path, *, framework: Framework | None = None) -> AsyncIterator[Requests]:
    """Run a manager, with its webhooks registered; yields a way to ask the API server."""
    certificates = serving_certificates(directory)
    port = free_port()
    async with (
        manager(stack.access, framework=framework, configuration=served(directory, port)),
        requests_to(stack) as requests,
    ):
        await answering(port, certificates)
        if stack.cluster is not None:
            stack.cluster.services.register(namespace=NAMESPACE, name=SERVICE, address="127.0.0.1", local_port=port)
        made = []
        for configuration in configurations(certificates, port=port if stack.cluster is None else None):
            resource = f"{CONFIGURATIONS}/{configuration['kind'].lower()}s"
            answer = await requests.send("POST", resource, configuration)
            assert answer.code == 201, answer.message
            made.append(f"{resource}/{configuration['metadata']['name']}")
        try:
            yield requests
        finally:
            for path in made:
                await requests.send("DELETE", path)


def manifest(file: str = "webhooks.yaml") -> list[JsonObject]:
    """The webhook configurations that are deployed: those of Trainer, or those of another file."""
    return [document for _, document in load_yaml_documents((_MANIFESTS / file).read_bytes())]


def job_manifest() -> list[JsonObject]:
    """Those of jobs of `kubeflow.org/v1`."""
    return manifest("training_operator_webhooks.yaml")


async def answering(port: int, certificates: ServerCertificates) -> None:
    """Wait until the webhooks take connections."""
    context = ssl.create_default_context(cafile=str(certificates.authority))
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        await writer.wait_closed()
        return
