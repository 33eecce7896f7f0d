"""Managers that make their own certificates, on a real API server which calls their webhooks."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.admission import CONFIGURATIONS, NAMESPACE, SERVICE, free_port, manifest, requests_to
from support.stack import QUIET, Stack, api_server, manager
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.certificates.pki import read_certificates
from trainmaster.controller.certificates.secret import SecretData
from trainmaster.controller.certificates.webhook_configuration import MUTATING, VALIDATING
from trainmaster.controller.configuration import Configuration, Health, Webhook
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

SECRET = "kubeflow-trainer-webhook-cert"
NAMES = {MUTATING: "defaulter.trainer.kubeflow.org", VALIDATING: "validator.trainer.kubeflow.org"}


class Installed:
    """A cluster with the objects of the manifests, and managers of it."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self.stack = stack
        self.client = stack.client
        self._directory = directory

    async def create_secret(self, data: dict[str, str] | None = None) -> None:
        """Create the Secret as the manifests do, empty."""
        metadata = {"name": SECRET, "namespace": NAMESPACE}
        await self.client.create(
            SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **({"data": data} if data else {})}
        )

    async def create_webhooks(self) -> None:
        """Register the webhooks as the manifests do, without a bundle."""
        async with requests_to(self.stack) as requests:
            for each in manifest():
                answer = await requests.send("POST", f"{CONFIGURATIONS}/{each['kind'].lower()}s", each)
                assert answer.code == 201, answer.message

    async def secret(self) -> SecretData:
        """What the Secret holds."""
        return SecretData.of(await self.client.get(SECRETS, NAMESPACE, SECRET))

    async def bundles(self) -> list[bytes]:
        """What each webhook trusts."""
        found = list[bytes]()
        for resource, name in NAMES.items():
            configuration = await self.client.get(resource, None, name)
            bundles = [webhook["clientConfig"].get("caBundle", "") for webhook in configuration["webhooks"]]
            found += map(base64.b64decode, bundles)
        return found

    @asynccontextmanager
    async def manager(self, name: str = "certs", **update: Any) -> AsyncIterator[Probes]:
        """Run a manager whose certificates are in a directory of its own; the API server calls the last one."""
        webhooks, health = free_port(), free_port()
        configuration = Configuration.model_validate(
            QUIET.model_copy(
                update={
                    "webhook": Webhook(host="127.0.0.1", port=webhooks, cert_dir=str(self._directory / name)),
                    "health": Health(health_probe_bind_address=f"127.0.0.1:{health}"),
                    "shutdown_delay_duration": "0s",
                    **update,
                }
            )
        )
        assert self.stack.cluster is not None
        self.stack.cluster.services.register(
            namespace=NAMESPACE, name=SERVICE, address="127.0.0.1", local_port=webhooks
        )
        async with manager(self.stack.access, configuration=configuration):
            yield Probes(health, self._directory / name)

    async def admits(self) -> bool:
        """Whether the API server gets an answer of the webhooks to a TrainJob that is good."""
        async with requests_to(self.stack) as requests:
            answer = await requests.send("POST", TRAINJOBS.path("default"), trainjob("job"), dry=True)
            return answer.code == 201


class Probes:
    """The probes and the files of one manager."""

    def __init__(self, port: int, files: Path) -> None:
        self._port = port
        self.files = files

    async def ask(self) -> tuple[int, str]:
        """Ask whether it is ready, and why not."""
        async with aiohttp.request("GET", f"http://127.0.0.1:{self._port}/readyz?verbose") as answer:
            return answer.status, await answer.text()

    async def ready(self) -> None:
        """Wait until it is."""

        async def reached() -> bool:
            return (await self.ask())[0] == 200

        await until(reached)

    async def says(self, text: str) -> None:
        """Wait until it is not ready and gives a reason."""

        async def reached() -> bool:
            return text in (await self.ask())[1]

        await until(reached)


@pytest.fixture
async def installed(tmp_path: Path) -> AsyncIterator[Installed]:
    async with api_server(tmp_path) as stack:
        await apply_runtime(stack.client, runtime())
        yield Installed(stack, tmp_path)


async def settled(installed: Installed) -> JsonObject:
    """The versions of everything that a manager could write."""
    secret = await installed.client.get(SECRETS, NAMESPACE, SECRET)
    configurations = [await installed.client.get(resource, None, name) for resource, name in NAMES.items()]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in (secret, *configurations)}


async def test_h11_an_empty_secret_is_filled_and_webhooks_work(installed: Installed) -> None:
    await installed.create_webhooks()
    async with installed.manager() as probes:
        await probes.says(
            f"[-]ca-bundle failed: the Secret {NAMESPACE}/{SECRET} does not exist; "
            f"kubectl create secret generic {SECRET} -n {NAMESPACE}; it is filled in by itself\n"
        )
        await installed.create_secret()
        await probes.ready()
        assert await installed.admits()
        found = await installed.secret()
        assert await installed.bundles() == [found.ca_certificate] * 4
        assert (probes.files / "tls.crt").read_bytes() == found.certificate
        assert (probes.files / "ca.crt").read_bytes() == found.ca_certificate
        assert not any(found.ca_key in each.read_bytes() for each in probes.files.rglob("*") if each.is_file())
        before = await settled(installed)
    async with installed.manager() as again:
        await again.ready()
        assert await installed.admits()
        assert await settled(installed) == before, "what is settled is written again"
        assert len(read_certificates(found.ca_certificate)) == 1
