"""Admission webhooks: the configurations in the store, which requests they concern, and the calls over HTTPS."""

from __future__ import annotations

from trainmaster.devcluster.admission.services import LocalServices, ServiceResolver, Unresolvable
from trainmaster.devcluster.admission.webhooks import Webhooks

__all__ = ["LocalServices", "ServiceResolver", "Unresolvable", "Webhooks"]
