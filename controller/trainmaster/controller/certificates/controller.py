"""The certificates of one replica: watches what the leader has written, keeps the files, and knows what is missing.

Guarantees:
- Every replica takes the certificate from the Secret as soon as it changes, whoever leads, and hands it to the servers
  by the files in `webhook.certDir`.
- It is ready once each webhook configuration that exists calls our Service and has a bundle, and the webhook server
  shows a certificate that this bundle vouches for, under the name by which API servers call it. The time does not count
  there: a wrong clock of this machine says nothing about what API servers see. That of the Training Operator's jobs may
  be absent, or be the Training Operator's own; if it is ours, it counts like the others.
- A webhook configuration that is missing keeps none of the others from being served. It is told by a detail of
  readiness, by the log, an event (`rotator`) and a metric.
- Every replica asks the API server for its time once: what has ended is told by that, whatever the clock here says.
- A directory that cannot be written is told, with what to do, and tried again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from trainmaster.controller.certificates.ca_injector import ServiceReference
from trainmaster.controller.certificates.certdir import CertDir
from trainmaster.controller.certificates.pki import to_pem
from trainmaster.controller.certificates.rotator import CertRotator
from trainmaster.controller.certificates.secret import CERTIFICATE
from trainmaster.controller.certificates.server_time import ServerTime
from trainmaster.controller.certificates.watched import WatchedObjects, again
from trainmaster.controller.certificates.webhook_names import webhook_configurations
from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.metrics.certificates import set_expiry, set_missing

log = structlog.get_logger(__name__)

RETRY_INTERVAL: Final = 10.0
"""Seconds between two tries to write the files, and between two looks at those that somebody else writes."""

_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the module `ssl` does not name."""


class CertificateController:
    """Manages the certificates of this process.

    Args:
        namespace: That of the manager, with its Service and its Secret.
    """

    def __init__(
        self,
        client: KubeClient,
        configuration: Configuration,
        *,
        namespace: str,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        settings = configuration.cert_management
        self._client = client
        self._clock = clock
        self._time = ServerTime(clock)
        self._serves_webhooks = configuration.webhook.enabled
        self._directory = Path(configuration.webhook.cert_dir)
        self._files = CertDir(self._directory)
        self._files_problem: str | None = None
        service = ServiceReference(namespace, settings.webhook_service_name)
        self._watched = WatchedObjects(
            client,
            service=service,
            secret_name=settings.webhook_secret_name,
            configurations=webhook_configurations(configuration),
            clock=clock,
        )
        self._name = f"{service.name}.{service.namespace}.svc"
        self._rotator = CertRotator(
            client,
            self._watched,
            names=[self._name, f"{self._name}.cluster.local"],
            time=self._time,
            recorder=recorder,
            clock=clock,
        )
        self._contexts: dict[frozenset[x509.Certificate], ssl.SSLContext] = {}

    async def run(self) -> None:
        """Watch and keep the files until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watched.run())
            tasks.create_task(self._keep_files())
            tasks.create_task(self._learn_time())

    async def lead(self) -> None:
        """Keep Secret and webhook configurations right until cancelled; for the leader."""
        await self._rotator.run()

    def now(self) -> datetime:
        """Return the time that counts for certificates."""
        return self._time.now()

    def readiness(self) -> str | None:
        """Say what is missing until API servers can call our webhooks; None if nothing is, as far as we see."""
        if not self._serves_webhooks:
            return None
        if not (self._directory / CERTIFICATE).exists():
            problem = self._files_problem or self._watched.secret_problem()
            if problem is not None:
                return problem
        problem = self._watched.configuration_problem()
        if problem is not None:
            return problem
        for configuration in self._watched.configurations():
            problem = configuration.problem()
            if problem is not None and not configuration.name.optional:
                return problem
            if problem is None and not all(configuration.bundles()):
                why = self._watched.secret_problem() or "whoever leads injects it"
                return f"the {configuration.name} has no caBundle yet: {why}"
        return None

    def missing(self) -> str | None:
        """Name the webhook configurations that are missing, and what to do."""
        return "; ".join(f"the {each} does not exist: {again(each)}" for each in self._watched.missing()) or None

    def verifications(self) -> Sequence[tuple[ssl.SSLContext, str]]:
        """Return how API servers verify our webhook server, each way once, with the name by which they call it."""
        bundles = {
            frozenset(bundle)
            for configuration in self._watched.configurations()
            for bundle in configuration.bundles()
            if bundle
        }
        self._contexts = {bundle: self._contexts.get(bundle) or _trusting(bundle) for bundle in bundles}
        return [(context, self._name) for context in self._contexts.values()]

    async def _learn_time(self) -> None:
        path = SECRETS.path(self._watched.namespace, self._watched.secret_name)
        while True:
            try:
                _, headers, _ = await self._client.raw("GET", path)
            except KubeError:
                await self._clock.sleep(RETRY_INTERVAL)
            else:
                return self._time.observe(headers)

    async def _keep_files(self) -> None:
        changed = self._watched.subscribe()
        while True:
            changed.clear()
            self._write_files()
            set_missing(map(str, self._watched.missing()))
            if self._files_problem is None:
                await changed.wait()
            else:
                with suppress(TimeoutError):
                    async with self._clock.timeout(RETRY_INTERVAL):
                        await changed.wait()

    def _write_files(self) -> None:
        data = self._watched.secret_data()
        if data is None:
            return
        if data.authorities:
            set_expiry("ca", data.authorities[0].not_valid_after_utc.timestamp())
        problem = self._files.write(data)
        if problem is not None and problem != self._files_problem:
            log.warning("the certificate of the servers cannot be put where they look for it", error=problem)
        self._files_problem = problem


def _trusting(bundle: frozenset[x509.Certificate]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=to_pem(bundle).decode("ascii"))
    context.verify_flags |= _NO_CHECK_TIME
    return context
