"""What the manifests install for certificates, on an API server that calls the webhooks of managers in this process."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from support.admission import CONFIGURATIONS, NAMESPACE, SERVICE, job_manifest, manifest, requests_to
from support.stack import QUIET, Stack, manager
from support.training import trainjob, until

from trainmaster.controller.certificates.secret import SecretData, encode
from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS as CONFIGURED
from trainmaster.controller.certificates.webhook_names import ConfigurationName
from trainmaster.controller.configuration import Health, Webhook
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

SECRET = "kubeflow-trainer-webhook-cert"


class CertificateInstallation:
    """A cluster with the objects of the manifests, and managers of it."""

    def __init__(
        self, stack: Stack, directory: Path, *, access: RestConfig | None = None, namespace: str = NAMESPACE
    ) -> None:
        self.stack = stack
        self._access = access or stack.access
        self._namespace = namespace
        self.client = stack.client
        self._directory = directory

    async def create_secret(self, data: SecretData | None = None) -> None:
        """Create the Secret, empty as the manifests do, or with what another manager has left in it."""
        metadata = {"name": SECRET, "namespace": self._namespace}
        secret: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        await self.client.create(SECRETS, secret if data is None else {**secret, "data": encode(data)})

    async def patch_secret(self, patch: JsonObject) -> None:
        """Edit the Secret as somebody else."""
        await self.client.patch(SECRETS, self._namespace, SECRET, patch)

    async def patch_webhooks(self, name: ConfigurationName, patch: Any, *, manager: str = "kubectl-edit") -> None:
        """Edit a webhook configuration as somebody else, by a merge patch or, from a list, by a JSON patch."""
        kind = "json-patch+json" if isinstance(patch, list) else "merge-patch+json"
        content_type = f"application/{kind}"
        await self.client.patch(name.resource, None, name.name, patch, content_type=content_type, field_manager=manager)

    async def create_webhooks(self, *, jobs: bool = False) -> None:
        """Register the webhooks as the manifests do, without a bundle: those of Trainer, or those of jobs."""
        async with requests_to(self.stack) as requests:
            for each in job_manifest() if jobs else manifest():
                for webhook in each["webhooks"]:
                    webhook["clientConfig"]["service"]["namespace"] = self._namespace
                answer = await requests.send("POST", f"{CONFIGURATIONS}/{each['kind'].lower()}s", each)
                assert answer.code == 201, answer.message

    async def secret(self) -> SecretData:
        """What the Secret holds."""
        return SecretData.of(await self.client.get(SECRETS, self._namespace, SECRET))

    async def bundles(self) -> list[bytes]:
        """What each webhook trusts."""
        found = list[bytes]()
        for configuration in await self._configurations():
            bundles = [webhook["clientConfig"].get("caBundle", "") for webhook in configuration["webhooks"]]
            found += map(base64.b64decode, bundles)
        return found

    async def is_trusted(self, webhooks: int, *others: bytes) -> bool:
        """Whether so many webhooks trust what the Secret holds, and those after them others."""
        authority = (await self.secret()).ca_certificate
        return await self.bundles() == [authority] * webhooks + list(others)

    async def _configurations(self) -> list[JsonObject]:
        found = []
        for each in CONFIGURED:
            with suppress(NotFound):
                found.append(await self.client.get(each.resource, None, each.name))
        return found

    @asynccontextmanager
    async def manager(
        self, name: str = "certs", *, clock: Clock | None = None, **update: Any
    ) -> AsyncIterator["Probes"]:
        """Run a manager whose certificates are in a directory of its own; the API server calls the last one.

        Args:
            name: Of that directory.
            clock: The time.
            update: Other sections of the configuration.
        """
        webhooks, health = free_port(), free_port()
        configuration = QUIET.model_copy(
            update={
                "webhook": Webhook(host="127.0.0.1", port=webhooks, cert_dir=str(self._directory / name)),
                "health": Health(health_probe_bind_address=f"127.0.0.1:{health}"),
                "shutdown_delay_duration": "0s",
                **update,
            }
        )
        assert self.stack.cluster is not None
        services = self.stack.cluster.services
        services.register(namespace=self._namespace, name=SERVICE, address="127.0.0.1", local_port=webhooks)
        async with manager(self._access, configuration=configuration, clock=clock):
            yield Probes(health, files=self._directory / name)

    async def versions(self) -> dict[str, str]:
        """The versions of everything that a manager could write."""
        objects = [await self.client.get(SECRETS, self._namespace, SECRET)]
        objects += await self._configurations()
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in objects}

    async def admits(self) -> bool:
        """Whether the API server gets an answer of the webhooks to a TrainJob that is good."""
        async with requests_to(self.stack) as requests:
            answer = await requests.send("POST", TRAINJOBS.path("default"), trainjob("job"), dry=True)
            return answer.code == 201


class Probes:
    """The probes and the files of one manager."""

    def __init__(self, port: int, *, files: Path) -> None:
        self.port = port
        self.files = files

    async def ask(self) -> tuple[int, str]:
        """Ask whether it is ready, and why not."""
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}/readyz?verbose") as answer:
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
