"""Admission webhooks: the configurations in the store, which requests they match, and the calls over HTTPS."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.webhook.client import (
    LocalServices,
    ServiceResolver,
    ServiceUnresolvable,
)
from trainmaster.devcluster.apiserver.admission.webhook.dispatcher import WebhookDispatcher

__all__ = ["LocalServices", "ServiceResolver", "ServiceUnresolvable", "WebhookDispatcher"]
