"""The admission webhooks of V1 jobs in a simulated cluster: as they are deployed, and called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from unittest.mock import AsyncMock, patch
from urllib.parse import urlsplit

from support.admission import job_manifest

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.webhooks.handlers import AdmissionHandlers
from trainmaster.controller.webhooks.server import review
from trainmaster.controller.webhooks.workers import Workers
from trainmaster.devcluster.apiserver.admission.webhook.accessors import WebhookAccessor
from trainmaster.devcluster.apiserver.admission.webhook.client import LocalServices, WebhookClient
from trainmaster.devcluster.apiserver.admission.webhook.dispatcher import WebhookDispatcher
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import VALIDATING_WEBHOOKS
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind


@asynccontextmanager
async def admitting_jobs(api: Api, kinds: Sequence[JobKind], clock: Clock) -> AsyncIterator[None]:
    """Have jobs judged by their webhooks while the block runs."""
    with closing(Workers()) as workers:
        # They judge jobs by nothing but the jobs themselves.
        handlers = AdmissionHandlers(
            Framework([]), {}, AsyncMock(), job_kinds=kinds, workers=workers, clock=clock
        ).handlers()

        async def call(_: WebhookClient, webhook: WebhookAccessor, body: bytes) -> bytes:
            path = urlsplit(webhook.url).path
            return await review(body, handlers[path], path=path, workers=workers, clock=clock)

        for configuration in job_manifest():
            await api.create(VALIDATING_WEBHOOKS, configuration, namespace=None)
        dispatcher = WebhookDispatcher(api, LocalServices())
        api.admit_by(dispatcher)
        with patch.object(WebhookClient, "call", call):
            yield
        await dispatcher.close()
