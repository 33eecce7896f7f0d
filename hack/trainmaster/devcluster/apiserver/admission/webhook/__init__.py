"""Admission webhooks: the configurations in the store, which requests they match, and the calls over HTTPS."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.webhook.dispatcher import WebhookDispatcher
from trainmaster.devcluster.apiserver.admission.webhook.service_resolver import (
    LocalServices,
    ServiceResolver,
    ServiceUnresolvable,
)

__all__ = ["LocalServices", "ServiceResolver", "ServiceUnresolvable", "WebhookDispatcher"]
