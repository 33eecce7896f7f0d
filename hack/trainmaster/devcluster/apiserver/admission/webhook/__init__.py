"""Admission webhooks: the configurations in the store, which requests they match, and the calls over HTTPS."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.webhook.client import (
    Address,
    LocalServices,
    ServiceResolver,
    ServiceUnresolvable,
    connection_error_text,
)
from trainmaster.devcluster.apiserver.admission.webhook.dispatcher import WebhookDispatcher

__all__ = [
    "Address",
    "LocalServices",
    "ServiceResolver",
    "ServiceUnresolvable",
    "WebhookDispatcher",
    "connection_error_text",
]
