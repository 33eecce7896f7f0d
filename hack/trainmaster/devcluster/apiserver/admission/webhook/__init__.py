"""Admission webhooks: the configurations in the store, which requests they concern, and the calls over HTTPS."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.webhook.dispatcher import Webhooks
from trainmaster.devcluster.apiserver.admission.webhook.services import LocalServices, ServiceResolver, Unresolvable

__all__ = ["LocalServices", "ServiceResolver", "Unresolvable", "Webhooks"]
